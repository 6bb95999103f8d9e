// Text that the model writes, as streams of pieces.

import type { Link } from "./link";

export interface GenerateOptions {
  /** 200 by default. */
  maxTokens?: number;
  /** Divides the logits; 0 takes the likeliest token. 0.8 by default. */
  temperature?: number;
  /** Only this many of the likeliest tokens; 0 for all. */
  topK?: number;
  /** Only the likeliest tokens that together have this probability. */
  topP?: number;
  /** The same seed after the same step gives the same text. */
  seed?: number;
}

type Controller = ReadableStreamDefaultController<string>;

export class Generations {
  readonly #link: () => Promise<Link>;
  readonly #open = new Map<number, Controller>();
  #next = 0;

  constructor(link: () => Promise<Link>) {
    this.#link = link;
  }

  start(prompt: string, options: GenerateOptions): ReadableStream<string> {
    const id = this.#next++;
    return iterable(
      new ReadableStream<string>({
        start: (controller) => {
          this.#open.set(id, controller);
          // Not awaited: a stream can't be read before its start is done.
          void this.#write(id, controller, prompt, options);
        },
        cancel: async () => {
          this.#open.delete(id);
          const link = await this.#link().catch(() => null);
          // An engine that is gone writes no more.
          await link?.call("cancel", id).catch(() => undefined);
        },
      }),
    );
  }

  /** A piece has come. */
  hear(id: number, text: string): void {
    this.#open.get(id)?.enqueue(text);
  }

  async #write(id: number, controller: Controller, prompt: string, options: GenerateOptions): Promise<void> {
    const { maxTokens = 200, temperature = 0.8, topK = 0, topP = 1, seed = 0 } = options;
    const asked = { id, prompt, tokens: maxTokens, temperature, topK, topP, seed };
    try {
      await (await this.#link()).call("generate", asked);
      if (this.#open.has(id)) controller.close();
    } catch (error) {
      if (this.#open.has(id)) controller.error(error);
    }
    this.#open.delete(id);
  }
}

/** Safari has had streams for longer than loops over them. */
function iterable(stream: ReadableStream<string>): ReadableStream<string> {
  if (Symbol.asyncIterator in stream) return stream;
  return Object.assign(stream as ReadableStream<string>, {
    async *[Symbol.asyncIterator]() {
      const reader = (stream as ReadableStream<string>).getReader();
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) return;
          yield value;
        }
      } finally {
        await reader.cancel();
        reader.releaseLock();
      }
    },
  });
}
