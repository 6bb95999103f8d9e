// An engine beside its caller, in the same thread.

import { Disposed, failure, thrown } from "./errors";
import { Host } from "./host";
import type { Link } from "./link";
import type { HostEvent, Method, Methods } from "./protocol";

/** Lets the page draw and answer. Timers would do it too, but browsers slow those of hidden tabs down. */
function breathe(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

export class LocalLink implements Link {
  readonly #host: Host;
  #isClosed = false;

  constructor(onEvent: (event: HostEvent) => void) {
    this.#host = new Host(onEvent);
  }

  call<M extends Method>(method: M, ...args: Parameters<Methods[M]>): ReturnType<Methods[M]> {
    return this.#call(method, args) as ReturnType<Methods[M]>;
  }

  close(): void {
    this.#isClosed = true;
    this.#host.close();
  }

  async #call(method: Method, args: unknown[]): Promise<unknown> {
    try {
      if (!this.#isClosed) await breathe();
      const value = this.#isClosed ? undefined : await this.#host.call(method, args);
      if (!this.#isClosed) return value;
    } catch (error) {
      if (!this.#isClosed) throw thrown(failure(error));
    }
    throw new Disposed();
  }
}
