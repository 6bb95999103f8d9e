// Plans the setup being edited, as it changes.

import { type EngineClient, latest } from "./engine/client";
import type { Planned } from "./engine/types";
import { type Setup, same, withValue } from "./setup";

/** What one setup comes to, with its budget and without any. */
export interface Outcome {
  setup: Setup;
  planned: Planned;
  /** The plan of the same setup without a limit. */
  free: Planned;
  /** Bytes of the smallest plan that the setup leaves open. */
  smallest: number;
}

type Bounds = Pick<Outcome, "free" | "smallest">;

/** While a slider moves or someone types, a plan is asked for only this often. */
const DEBOUNCE_MS = 30;
/** What the planner recomputes where it must save the most. */
const SMALLEST = ["block", "sqrt"];

export class Planning {
  readonly #client: EngineClient;
  readonly #ask: (setup: Setup) => void;
  #known: { setup: Setup; bounds: Bounds } | null = null;
  #timer = 0;

  constructor(client: EngineClient, done: (outcome: Outcome) => void, failed: (error: Error) => void) {
    this.#client = client;
    this.#ask = latest((setup: Setup) => this.#plan(setup), done, failed);
  }

  /** Plans `setup` soon; of several in a row, the last. */
  soon(setup: Setup): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#ask(setup), DEBOUNCE_MS);
  }

  async #plan(setup: Setup): Promise<Outcome> {
    const limitless = withValue(setup, "memory", "budget", null);
    if (this.#known === null || !same(this.#known.setup, limitless)) {
      this.#known = { setup: limitless, bounds: await this.#bounds(limitless) };
    }
    const { bounds } = this.#known;
    const isFree = setup.memory.budget === null;
    const planned = isFree ? bounds.free : await this.#client.call("plan", setup);
    return { setup, planned, ...bounds };
  }

  /** What a budget can range over. */
  async #bounds(setup: Setup): Promise<Bounds> {
    const free = await this.#client.call("plan", setup);
    let smallest = free.smallest_seen_bytes;
    // Gradients that are consumed are of one pass.
    const isOpen = setup.train.micro_batch === "auto" && !setup.memory.consume_gradients;
    const open = isOpen ? withValue(setup, "train", "micro_batch", 1) : setup;
    const choices = setup.memory.recompute === "auto" ? SMALLEST : [setup.memory.recompute];
    for (const recompute of choices) {
      const planned = await this.#client.call("plan", withValue(open, "memory", "recompute", recompute));
      smallest = Math.min(smallest, planned.peak_bytes);
    }
    return { free, smallest };
  }
}
