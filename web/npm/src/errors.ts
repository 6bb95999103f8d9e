// What can go wrong, and how it comes out of a worker, from which an error keeps its message alone.

import type { Settings } from "./settings";

/** Something went wrong; its subclasses say what. */
export class TightropeError extends Error {
  override name = "TightropeError";
}

/** A setting is wrong: the message names the nearest known one, or what the value must be. */
export class SettingError extends TightropeError {
  override name = "SettingError";
}

/** The training step doesn't fit the memory. */
export class DoesNotFit extends TightropeError {
  override name = "DoesNotFit";
  /** Bytes of the smallest plan. */
  readonly needed: number | null;
  /** Bytes that the plan may take; `null` where the device had fewer than it promised. */
  readonly budget: number | null;
  /** The nearest settings that fit, where some were found. */
  readonly suggestion: Settings | null;

  constructor(message: string, { needed, budget, suggestion }: Partial<Misfit> = {}) {
    super(message);
    this.needed = needed ?? null;
    this.budget = budget ?? null;
    this.suggestion = suggestion ?? null;
  }
}

/** A device failed, and opening it again didn't help. */
export class DeviceError extends TightropeError {
  override name = "DeviceError";
}

/** WebGPU was asked for, and there is none. */
export class NoWebGpu extends DeviceError {
  override name = "NoWebGpu";
}

/** Another trainer, in this tab or in another, holds the saved run. */
export class RunInUse extends TightropeError {
  override name = "RunInUse";
  readonly run: string;

  constructor(run: string) {
    super(`the run “${run}” is open in another tab or trainer: close that one first, or name another run`);
    this.run = run;
  }
}

/** No run of this name is saved in the browser. */
export class NoSuchRun extends TightropeError {
  override name = "NoSuchRun";
  readonly run: string;

  constructor(run: string) {
    super(`no run “${run}” is saved in this browser; savedRuns() lists those that are`);
    this.run = run;
  }
}

/** A call of a trainer or planner after `dispose()`. */
export class Disposed extends TightropeError {
  override name = "Disposed";

  constructor() {
    super("it was disposed of: make a new one");
  }
}

interface Misfit {
  needed: number | null;
  budget: number | null;
  suggestion: Settings | null;
}

/** An error as data. */
export interface Failure {
  name: string;
  message: string;
  misfit?: Misfit;
}

const PLAIN = { TightropeError, SettingError, DeviceError, NoWebGpu };

/** The error that a failure is of. */
export function thrown({ name, message, misfit }: Failure): TightropeError {
  if (name === "DoesNotFit") return new DoesNotFit(message, misfit);
  const Class = PLAIN[name as keyof typeof PLAIN] ?? TightropeError;
  return new Class(message);
}

/** What the engine or a browser threw, as data. */
export function failure(error: unknown): Failure {
  if (!(error instanceof Error)) return { name: "TightropeError", message: String(error) };
  const { name, message } = error;
  return name === "DoesNotFit" ? refused(message) : { name, message };
}

/** The engine's refusals are objects in JSON, unless the device ran out of memory in the middle of a run. */
function refused(message: string): Failure {
  const name = "DoesNotFit";
  if (!message.startsWith("{")) return { name, message };
  const { what, smallest_bytes, budget_bytes, nearest } = JSON.parse(message) as Refusal;
  return { name, message: what, misfit: { needed: smallest_bytes, budget: budget_bytes, suggestion: nearest } };
}

interface Refusal {
  what: string;
  smallest_bytes: number;
  budget_bytes: number | null;
  nearest: Settings | null;
}
