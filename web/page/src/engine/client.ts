// The page's side of the worker.

import type { Call, Event, Method, Methods, Refusal, Reply } from "./types";

/** A run that doesn't fit. */
export class RefusedError extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.what);
    this.refusal = refusal;
  }
}

interface Waiting {
  resolve: (value: never) => void;
  reject: (error: Error) => void;
}

function toError(message: string): Error {
  try {
    const value: unknown = JSON.parse(message);
    if (typeof value === "object" && value !== null && "what" in value && "smallest_bytes" in value) {
      return new RefusedError(value as Refusal);
    }
  } catch {
    // Not JSON: a message for people.
  }
  return new Error(message);
}

export class EngineClient {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #next = 0;

  constructor(onEvent: (event: Event) => void) {
    this.#worker = new Worker(new URL("../worker.ts", import.meta.url), {
      type: "module",
      name: "tightrope",
    });
    this.#worker.onmessage = ({ data }: MessageEvent<Reply | Event>) => {
      if ("event" in data) onEvent(data);
      else this.#settle(data);
    };
    this.#worker.onerror = (error) => {
      const message = error.message || "The training worker could not be loaded.";
      for (const { reject } of this.#waiting.values()) reject(new Error(message));
      this.#waiting.clear();
      onEvent({ event: "failed", message });
    };
  }

  call<M extends Method>(method: M, ...args: Parameters<Methods[M]>): ReturnType<Methods[M]> {
    const call: Call = { id: this.#next++, method, args };
    const result = new Promise((resolve, reject) => {
      this.#waiting.set(call.id, { resolve, reject });
    });
    this.#worker.postMessage(call);
    return result as ReturnType<Methods[M]>;
  }

  #settle(reply: Reply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.ok) waiting?.resolve(reply.value as never);
    else waiting?.reject(toError(reply.message));
  }
}

/** Calls `task` with the newest argument only: while one call is under way, later ones replace each other. */
export function latest<A, R>(
  task: (argument: A) => Promise<R>,
  done: (result: R, argument: A) => void,
  failed: (error: Error) => void,
): (argument: A) => void {
  let running = false;
  let next: { argument: A } | null = null;
  const start = async (argument: A): Promise<void> => {
    running = true;
    try {
      const result = await task(argument);
      if (next === null) done(result, argument);
    } catch (error) {
      if (next === null) failed(error as Error);
    }
    running = false;
    const waiting = next;
    next = null;
    if (waiting !== null) void start(waiting.argument);
  };
  return (argument) => {
    if (running) next = { argument };
    else void start(argument);
  };
}
