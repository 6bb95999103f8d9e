// The figures of a plan, and of the run that measured it.

import type { Memory, Planned } from "../engine/types";
import { bytes, duration, exact } from "../format";
import { make, setText } from "./dom";
import { type Word, term } from "./terms";

type Value = [value: string, note: string];

/** A plan, with what was measured of a run. */
export interface Measured {
  planned: Planned;
  /** Rows of logits of one pass. */
  rows: number;
  memory: Memory | null;
  /** Whether the measured run is of this plan. */
  isHere: boolean;
}

/** `notes` is the word of the small print, where that has a definition of its own. */
type Figure = [name: string, word: Word | null, value: (measured: Measured) => Value, notes?: Word];

const FIGURES: readonly Figure[] = [
  ["Predicted peak", "peak", ({ planned }) => [bytes(planned.peak_bytes), `${exact(planned.peak_bytes)} B`]],
  ["Measured peak", null, measuredText],
  ["Lower bound", "lower bound", ({ planned }) => [bytes(planned.lower_bound_bytes), gapText(planned)], "gap"],
  ["Offloaded", "offloaded", ({ planned }) => offloadedText(planned)],
  ["WebAssembly heap", null, ({ memory }) => hostText(memory)],
  ["Predicted step", null, ({ planned }) => [duration(planned.step_s), planned.fits ? "" : "can’t run"]],
  [
    "Micro-batch",
    "micro-batch",
    ({ planned: { choices } }) => [
      `${choices.micro_batch} × ${choices.accumulation}`,
      choices.accumulation === 1 ? "in one pass" : `${choices.accumulation} passes a step`,
    ],
  ],
  ["Recomputed", "recomputed", ({ planned: { choices }, rows }) => [choices.checkpoint, lossText(choices.loss_chunk, rows)]],
];

function measuredText({ memory, isHere }: Measured): Value {
  if (memory === null) return ["–", "once it runs"];
  const difference = memory.allocated_bytes - memory.predicted_bytes;
  const off = difference === 0 ? "0 B off the prediction" : `${exact(Math.abs(difference))} B off`;
  return [bytes(memory.allocated_bytes), isHere ? off : "of the run, not this setup"];
}

function gapText({ peak_bytes, lower_bound_bytes }: Planned): string {
  const gap = peak_bytes - lower_bound_bytes;
  return gap === 0 ? "no gap" : `a gap of ${bytes(gap)}`;
}

function hostText(memory: Memory | null): Value {
  if (memory === null || memory.wasm_heap_bytes === 0) return ["–", "once it runs"];
  const copies = memory.host_copy_bytes;
  return [bytes(memory.wasm_heap_bytes), copies > 0 ? `${bytes(copies)} of copies for recovery` : "no copies for recovery"];
}

function offloadedText({ offloaded_bytes: kept }: Planned): Value {
  return kept === 0 ? ["nothing", ""] : [bytes(kept), "of the tab’s memory"];
}

function lossText(chunk: number, rows: number): string {
  return chunk === 0 || chunk >= rows ? "loss in one piece" : `loss in chunks of ${chunk}`;
}

export class Figures {
  readonly #rows: { value: Text; note: HTMLElement }[];

  constructor(host: HTMLElement) {
    this.#rows = FIGURES.map(([name, word, , notes]) => {
      const value = document.createTextNode("–");
      const note = notes === undefined ? make("span", {}) : term(notes, notes);
      const label = make("dt", {}, word === null ? name : term(name, word));
      const figure = make("dd", { "data-figure": name }, value, make("small", {}, note));
      host.append(make("div", {}, label, figure));
      return { value, note };
    });
  }

  show(measured: Measured): void {
    FIGURES.forEach(([, , text], index) => {
      const row = this.#rows[index];
      if (row === undefined) return;
      const [value, note] = text(measured);
      if (row.value.data !== value) row.value.data = value;
      setText(row.note, note);
    });
  }
}
