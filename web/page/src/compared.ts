// The plan that the shown one is compared with: one that the user pinned, or that of a lesson's beginning.

import type { EngineClient } from "./engine/client";
import type { Planned } from "./engine/types";
import type { Lesson } from "./lessons";
import type { Setup } from "./setup";
import type { Shared } from "./share";

export class Compared {
  readonly #client: EngineClient;
  readonly #changed: () => void;
  #lesson: Lesson | null = null;
  #pinned: { setup: Setup; planned: Planned | null } | null = null;
  /** The setup from before the lessons, to go back to. */
  #left: Setup | null = null;

  /** `changed` is called where there's another plan to compare with, or none. */
  constructor(client: EngineClient, changed: () => void) {
    this.#client = client;
    this.#changed = changed;
  }

  get lesson(): Lesson | null {
    return this.#lesson;
  }

  get setup(): Setup | null {
    return this.#pinned?.setup ?? null;
  }

  /** `null` until it's planned. */
  get planned(): Planned | null {
    return this.#pinned?.planned ?? null;
  }

  /** Takes over what a link compares with, once there's an engine. */
  async take({ pinned, lesson }: Shared): Promise<void> {
    this.#lesson = lesson;
    if (pinned !== null) await this.#plan(pinned);
  }

  /** Keeps a plan to compare later ones with. */
  pin(setup: Setup, planned: Planned): void {
    this.#pinned = { setup, planned };
    this.#changed();
  }

  /** Opens a lesson from `setup`. */
  async open(lesson: Lesson, setup: Setup): Promise<void> {
    if (this.#lesson === null) this.#left = setup;
    this.#lesson = lesson;
    await this.#plan(lesson.before);
  }

  /** Ends the comparison, and the lesson where one is open: the setup from before it. */
  clear(): Setup | null {
    const left = this.#lesson === null ? null : this.#left;
    this.#lesson = this.#left = this.#pinned = null;
    this.#changed();
    return left;
  }

  async #plan(setup: Setup): Promise<void> {
    const pinned: { setup: Setup; planned: Planned | null } = { setup, planned: null };
    this.#pinned = pinned;
    this.#changed();
    pinned.planned = await this.#client.call("plan", setup);
    // Meanwhile another may have taken its place.
    if (this.#pinned === pinned) this.#changed();
  }
}
