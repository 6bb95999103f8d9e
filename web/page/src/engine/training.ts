// The training loop, in the worker: steps in calls of about a tenth of a second, and in between held-out
// loss, samples and automatic saves, each given a small share of the time.

import { saveRun } from "../storage";
import { type Setup, accuracyName, reads } from "../setup";
import type { Queue } from "./queue";
import type { Engine, Event, History, Memory, StepRecord } from "./types";

/** How long one call should take: short enough that a new plan is never far away. */
const CALL_MS = 120;
const MOST_STEPS_A_CALL = 64;
/** Evaluation and sampling may each take this share of the time. */
const SHARE = 0.08;
/** Between two of them lies at least this long. */
const LEAST_GAP_MS = 1500;
/** Samples that are saved with a run. */
const KEPT_SAMPLES = 8;
const SAMPLE_TOKENS = 120;
const TEMPERATURE = 0.8;
/** Points of a curve that are kept; then every second one is dropped. */
const MOST_POINTS = 4000;
export const AUTOSAVE_S = 30;

/** Something that is done now and then, with a bounded share of the time. */
class Pace {
  #due = performance.now() + LEAST_GAP_MS;

  isDue(): boolean {
    return performance.now() >= this.#due;
  }

  async time(task: () => Promise<void>): Promise<void> {
    const start = performance.now();
    await task();
    const end = performance.now();
    this.#due = end + Math.max(LEAST_GAP_MS, (end - start) / SHARE);
  }
}

function keep(points: [number, number][], point: [number, number]): void {
  points.push(point);
  if (points.length > MOST_POINTS) {
    points.splice(0, points.length, ...points.filter((_, index) => index % 2 === 1));
  }
}

export class Training {
  readonly history: History;
  #step: number;
  #running = false;
  #stepMs = 0;
  #savedStep: number;
  #lastSave = performance.now();
  #evaluations = new Pace();
  #samples = new Pace();
  readonly #engine: Engine;
  readonly #queue: Queue;
  readonly #emit: (event: Event) => void;
  readonly #setup: Setup;
  readonly #hasText: boolean;
  autosave: number;

  constructor(
    engine: Engine,
    queue: Queue,
    emit: (event: Event) => void,
    run: { setup: Setup; step: number; history: History; hasText: boolean; autosave: number },
  ) {
    this.#engine = engine;
    this.#queue = queue;
    this.#emit = emit;
    this.#setup = run.setup;
    this.#hasText = run.hasText;
    this.#step = run.step;
    this.#savedStep = run.step;
    this.history = run.history;
    this.autosave = run.autosave;
  }

  /** Trains until it's paused, done or fails. */
  async run(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    const total = this.#setup.train.steps;
    try {
      while (this.#running && this.#step < total) {
        const fitting = this.#stepMs > 0 ? Math.round(CALL_MS / this.#stepMs) : 1;
        const most = Math.min(MOST_STEPS_A_CALL, total - this.#step);
        await this.#train(Math.max(1, Math.min(fitting, most)));
        await this.#between();
        // Lets messages in: a pause, or a setup to plan.
        await new Promise((resolve) => setTimeout(resolve));
      }
      const done = this.#step >= total;
      this.#running = false;
      if (done) await this.#evaluate();
      if (done) await this.#sample();
      if (done) await this.save();
      this.#emit({ event: "stopped", reason: done ? "done" : "paused" });
    } catch (error) {
      this.#running = false;
      this.#emit({ event: "failed", message: (error as Error).message ?? String(error) });
    }
  }

  pause(): void {
    this.#running = false;
  }

  /** One step, and what it changed. */
  async single(): Promise<void> {
    if (this.#running) return;
    await this.#train(1);
    await this.#evaluate();
    await this.#sample();
    const done = this.#step >= this.#setup.train.steps;
    this.#emit({ event: "stopped", reason: done ? "done" : "paused" });
  }

  /** Saves the run in the browser, if it went on since the last time. */
  async save(): Promise<void> {
    this.#lastSave = performance.now();
    if (this.#step === this.#savedStep) return;
    try {
      const step = this.#step;
      const tar = await this.#queue.run(() => this.#engine.checkpoint());
      const run = {
        step,
        setup: this.#setup,
        bytes: tar.length,
        at: Date.now(),
        history: this.history,
      };
      await saveRun(run, tar as Uint8Array<ArrayBuffer>, this.#hasText);
      this.#savedStep = step;
      this.#emit({ event: "saved", step, bytes: run.bytes, at: run.at });
    } catch (error) {
      // Training goes on without a saved copy; private windows, for one, have no such storage.
      this.#emit({ event: "unsaved", message: (error as Error).message ?? String(error) });
    }
  }

  async #between(): Promise<void> {
    if (this.#evaluations.isDue()) await this.#evaluations.time(() => this.#evaluate());
    if (this.#samples.isDue()) await this.#samples.time(() => this.#sample());
    const since = (performance.now() - this.#lastSave) / 1000;
    if (this.autosave > 0 && since >= this.autosave) await this.save();
  }

  async #train(count: number): Promise<void> {
    const start = performance.now();
    const records = JSON.parse(await this.#queue.run(() => this.#engine.step(count))) as StepRecord[];
    const ms = (performance.now() - start) / count;
    this.#stepMs = this.#stepMs === 0 ? ms : (this.#stepMs + ms) / 2;
    this.#step = records.at(-1)?.step ?? this.#step;
    for (const { step, loss } of records) keep(this.history.losses, [step, loss]);
    const memory = JSON.parse(this.#engine.memory()) as Memory;
    this.#emit({ event: "steps", records, memory, recoveries: this.#engine.recoveries() });
  }

  async #evaluate(): Promise<void> {
    const loss = await this.#queue.run(() => this.#engine.evaluate());
    const accuracy = accuracyName(this.#setup) === null ? null : await this.#queue.run(() => this.#engine.accuracy());
    keep(this.history.heldout, [this.#step, loss]);
    this.#emit({ event: "heldout", step: this.#step, loss, accuracy });
  }

  async #sample(): Promise<void> {
    if (reads(this.#setup) !== "text") return;
    const seed = this.#setup.train.seed;
    const text = await this.#queue.run(() =>
      this.#engine.sample("", SAMPLE_TOKENS, TEMPERATURE, seed),
    );
    const { samples } = this.history;
    samples.push([this.#step, text]);
    if (samples.length > KEPT_SAMPLES) samples.shift();
    this.#emit({ event: "sample", step: this.#step, text });
  }
}
