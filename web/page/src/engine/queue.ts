// One call at a time: an asynchronous method of the engine holds it until it's done.

export class Queue {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `task` after all that were given before it. */
  run<T>(task: () => T | Promise<T>): Promise<T> {
    const result = this.#last.then(task);
    this.#last = result.catch(() => undefined);
    return result;
  }
}
