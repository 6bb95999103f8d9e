// What a run looks like: figures, curve and samples.

import type { History, StepRecord } from "../engine/types";
import { type Setup, reads } from "../setup";
import { LossChart } from "./chart";
import { byId } from "./dom";
import { Readouts } from "./readouts";
import { Samples } from "./samples";

/** A screen reader hears how it goes this often. */
const REPORT_MS = 20_000;

export class RunView {
  readonly #chart = new LossChart(byId("loss"));
  readonly #samples = new Samples(byId("samples"));
  readonly #readouts = new Readouts();
  readonly #status = byId("status");
  #steps = 0;
  #reported = 0;

  /** Shows that there's no run, only a setup. */
  clear(setup: Setup): void {
    this.#chart.reset();
    this.#samples.reset();
    this.await(setup);
  }

  /** Shows how far a setup would go. */
  await(setup: Setup): void {
    byId("written").hidden = reads(setup) !== "text";
    this.#readouts.reset(0, setup);
  }

  /** Shows a run that begins or goes on. */
  begin(setup: Setup, step: number, history: History): void {
    this.#steps = setup.train.steps;
    this.#reported = performance.now();
    this.#chart.reset(history.losses, history.heldout);
    this.#samples.reset();
    for (const [step, text] of history.samples) this.#samples.add(step, text);
    byId("written").hidden = reads(setup) !== "text";
    this.#readouts.reset(step, setup);
    const heldout = history.heldout.at(-1)?.[1];
    if (heldout !== undefined) this.#readouts.heldout(heldout, null);
  }

  steps(records: readonly StepRecord[]): void {
    const last = records.at(-1);
    if (last === undefined) return;
    this.#chart.addLosses(records.map(({ step, loss }) => [step, loss]));
    this.#readouts.records(records, this.#steps);
    const now = performance.now();
    if (now - this.#reported < REPORT_MS) return;
    this.#reported = now;
    this.say(`Step ${last.step}, loss ${last.loss.toFixed(2)}`);
  }

  heldout(step: number, loss: number, accuracy: number | null): void {
    this.#chart.addHeldout(step, loss);
    this.#readouts.heldout(loss, accuracy);
  }

  sample(step: number, text: string): void {
    this.#samples.add(step, text);
  }

  /** The run has stopped: shows where, and tells a screen reader. */
  stopped(text: string): void {
    this.#readouts.settle();
    this.say(text);
  }

  /** Tells a screen reader. */
  say(text: string): void {
    this.#status.textContent = text;
  }
}
