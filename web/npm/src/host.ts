// Where the engine lives: in a worker, or beside its caller. Calls are answered one after another.

import init, { Engine as Exported } from "../../page/src/wasm/tightrope_web.js";
import { Queue } from "../../page/src/engine/queue";
import type { Info, Memory, Plan, Started, StepRecord } from "../../page/src/engine/types";
import { NoWebGpu } from "./errors";
import type { Engine, EngineClass, HostEvent, Method, Methods, Opening } from "./protocol";
import type { Settings } from "./settings";

export class Host {
  readonly #tell: (event: HostEvent) => void;
  readonly #queue = new Queue();
  #engine: Engine | null = null;
  #recoveries = 0;
  /** Generations that nobody has cancelled. */
  readonly #wanted = new Set<number>();

  constructor(tell: (event: HostEvent) => void) {
    this.#tell = tell;
  }

  call(method: Method, args: unknown[]): Promise<unknown> {
    const work = this.#methods[method] as (...args: unknown[]) => Promise<unknown>;
    return work(...args);
  }

  close(): void {
    this.#engine?.close();
    this.#engine = null;
  }

  readonly #methods: Methods = {
    open: (opening) => this.#open(opening),

    plan: (settings) => this.#ask((engine) => JSON.parse(engine.plan(settings)) as Plan),

    settingsOf: (checkpoint) => this.#ask((engine) => JSON.parse(engine.setup_of(checkpoint)) as Settings),

    start: ({ settings, text, checkpoint }) =>
      this.#ask(async (engine) => {
        const started = await engine.start(settings, text ?? undefined, checkpoint ?? undefined);
        return JSON.parse(started) as Started;
      }),

    step: (count) =>
      this.#ask(async (engine) => {
        const records = JSON.parse(await engine.step(count)) as StepRecord[];
        return records.at(-1) ?? null;
      }),

    evaluate: () => this.#ask((engine) => engine.evaluate()),

    accuracy: () => this.#ask((engine) => engine.accuracy()),

    generate: async (prompt) => {
      const { id } = prompt;
      this.#wanted.add(id);
      const piece = (text: string): boolean => {
        if (text !== "") this.#tell({ event: "piece", id, text });
        return this.#wanted.has(id);
      };
      try {
        await this.#ask(async (engine) => {
          if (this.#wanted.has(id)) await engine.generate({ ...prompt, piece });
        });
      } finally {
        this.#wanted.delete(id);
      }
    },

    // Doesn't wait for its turn, which is after the generation.
    cancel: async (id) => {
      this.#wanted.delete(id);
    },

    checkpoint: () => this.#ask(async (engine) => (await engine.checkpoint()) as Uint8Array<ArrayBuffer>),

    memory: () => this.#ask((engine) => JSON.parse(engine.memory()) as Memory),

    lose: (moment) => this.#ask((engine) => engine.lose_device(moment)),
  };

  async #open({ wasm, device, defaultLimits }: Opening): Promise<Info> {
    await init({ module_or_path: wasm });
    try {
      this.#engine = await (Exported as EngineClass).open(device, defaultLimits);
    } catch (error) {
      if (device === "webgpu" && error instanceof Error) throw new NoWebGpu(error.message);
      throw error;
    }
    return JSON.parse(this.#engine.info()) as Info;
  }

  #ask<T>(work: (engine: Engine) => T | Promise<T>): Promise<T> {
    return this.#queue.run(async () => {
      if (this.#engine === null) throw new Error("the engine isn't open");
      const engine = this.#engine;
      try {
        return await work(engine);
      } finally {
        this.#tellOfRecoveries(engine);
      }
    });
  }

  #tellOfRecoveries(engine: Engine): void {
    const recoveries = engine.recoveries();
    if (recoveries > this.#recoveries) this.#tell({ event: "recovered", recoveries });
    this.#recoveries = recoveries;
  }
}
