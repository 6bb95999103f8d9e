// Plans without a run.

import type { Info } from "../../page/src/engine/types";
import { Disposed } from "./errors";
import { type Device, type EngineOptions, type Link, type Opened, open } from "./link";
import { Plan } from "./plan";
import { type Settings, asked } from "./settings";

/** A known model, and settings that train it. */
export interface Preset {
  name: string;
  settings: Settings;
}

/** An engine for many plans in a row. */
export class Planner {
  readonly device: Device;
  /** Models that `model.preset` may name: those that are likely to fit the device first. */
  readonly presets: readonly Preset[];
  readonly #link: Link;
  #isDisposed = false;

  private constructor({ link, device, info }: Opened) {
    this.#link = link;
    this.device = device;
    this.presets = presetsOf(info);
  }

  static async open(options: EngineOptions = {}): Promise<Planner> {
    return new Planner(await open(options, () => undefined));
  }

  /** What training takes. A plan that exceeds its budget says so in `fits`, and what would fit in `suggestion`. */
  async plan(settings: Settings = {}): Promise<Plan> {
    if (this.#isDisposed) throw new Disposed();
    return new Plan(await this.#link.call("plan", asked(settings).json));
  }

  dispose(): void {
    this.#isDisposed = true;
    this.#link.close();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** One plan. For several in a row, a `Planner` opens its device once. */
export async function plan(settings: Settings = {}, options: EngineOptions = {}): Promise<Plan> {
  const planner = await Planner.open(options);
  try {
    return await planner.plan(settings);
  } finally {
    planner.dispose();
  }
}

function presetsOf({ presets }: Info): Preset[] {
  return presets.map(({ name, setup }) => ({ name, settings: setup as Settings }));
}
