// Everything about memory: the budget, what the plan chose, the map and its legend.

import { showDetail } from "../arena/detail";
import { Legend } from "../arena/legend";
import { ArenaMap } from "../arena/map";
import type { Memory, Planned } from "../engine/types";
import { bytes, count, duration, exact } from "../format";
import type { Setup } from "../setup";
import { byId, button, make, setText } from "./dom";
import { PeakTable } from "./peak-table";

export class MemoryPanel {
  readonly #slider = byId<HTMLInputElement>("budget");
  readonly #sliderText = byId("budget-text");
  readonly #figures = byId("figures");
  readonly #detail = byId("detail");
  readonly #refusal = byId("refusal");
  readonly #note = byId("plan-note");
  readonly #map: ArenaMap;
  readonly #legend: Legend;
  readonly #table = new PeakTable(byId<HTMLDetailsElement>("peak-table"));
  readonly #onBudget: (budget: number | null) => void;
  #planned: Planned | null = null;
  #measured: Memory | null = null;
  #isMeasuredHere = false;
  #range: [smallest: number, most: number] = [0, 0];
  /** Rows of logits of one pass. */
  #rows = 0;

  constructor(onBudget: (budget: number | null) => void) {
    this.#onBudget = onBudget;
    this.#map = new ArenaMap(byId("arena"), (cursor) => showDetail(this.#detail, this.#planned, cursor));
    this.#legend = new Legend(byId("legend"), (name) => this.#map.highlight(name));
    this.#slider.addEventListener("input", () => {
      const budget = this.#budget();
      this.#nameBudget(budget);
      this.#onBudget(budget);
    });
    showDetail(this.#detail, null, null);
  }

  /** The budgets that the slider spans: from the smallest plan to one without a limit. */
  range(smallest: number, most: number, budget: number | null): void {
    this.#range = [smallest, Math.max(most, smallest)];
    const last = Number(this.#slider.max);
    const span = this.#range[1] - this.#range[0];
    this.#slider.disabled = span <= 0;
    const at = budget === null ? last : ((budget - smallest) / Math.max(1, span)) * last;
    this.#slider.value = String(Math.min(last, Math.max(0, Math.round(at))));
    this.#nameBudget(budget);
  }

  show(planned: Planned, { model, memory }: Setup): void {
    const { budget } = memory;
    this.#planned = planned;
    this.#rows = planned.choices.micro_batch * model.context;
    const took = duration(planned.plan_ms / 1000);
    const ops = `${planned.program.ops.length} ops`;
    setText(this.#note, `${count(planned.parameters)} parameters · ${ops} · planned in ${took}`);
    this.#map.show(planned, budget, Math.max(this.#range[1], planned.peak_bytes));
    this.#table.show(planned);
    this.#legend.show(planned);
    this.#showFigures();
  }

  /** What the run took; `isHere` where the shown plan is the run's. */
  measured(memory: Memory | null, isHere: boolean): void {
    const before = [this.#measured, this.#isMeasuredHere];
    this.#measured = memory;
    this.#isMeasuredHere = isHere;
    // Most steps change nothing here.
    if (JSON.stringify(before) !== JSON.stringify([memory, isHere])) this.#showFigures();
  }

  /** Says why the setup can't start, and offers the nearest that can. */
  refuse(text: string | null, nearest: { text: string; take: () => void } | null = null): void {
    this.#refusal.hidden = text === null;
    this.#refusal.replaceChildren();
    if (text === null) return;
    this.#refusal.append(make("p", {}, text));
    if (nearest !== null) this.#refusal.append(button(nearest.text, nearest.take));
  }

  #budget(): number | null {
    const last = Number(this.#slider.max);
    const at = Number(this.#slider.value);
    if (at >= last) return null;
    const [smallest, most] = this.#range;
    return Math.round(smallest + ((most - smallest) * at) / last);
  }

  #nameBudget(budget: number | null): void {
    const text = budget === null ? "no limit" : bytes(budget);
    setText(this.#sliderText, text);
    this.#slider.setAttribute("aria-valuetext", text);
  }

  #showFigures(): void {
    const planned = this.#planned;
    if (planned === null) return;
    const { choices } = planned;
    const measured = this.#measured;
    const isWhole = choices.loss_chunk === 0 || choices.loss_chunk >= this.#rows;
    const rows: [name: string, value: string, note: string][] = [
      ["Predicted peak", bytes(planned.peak_bytes), `${exact(planned.peak_bytes)} B`],
      ["Measured peak", ...this.#measuredText(measured)],
      ["WebAssembly heap", ...this.#hostText(measured)],
      ["Predicted step", duration(planned.step_s), planned.fits ? "" : "can’t run"],
      [
        "Micro-batch",
        `${choices.micro_batch} × ${choices.accumulation}`,
        choices.accumulation === 1 ? "in one pass" : `${choices.accumulation} passes a step`,
      ],
      [
        "Recomputed",
        choices.checkpoint,
        isWhole ? "loss in one piece" : `loss in chunks of ${choices.loss_chunk}`,
      ],
    ];
    this.#figures.replaceChildren(
      ...rows.map(([name, value, note]) => {
        const term = make("dd", { "data-figure": name }, value);
        if (note !== "") term.append(make("small", {}, note));
        return make("div", {}, make("dt", {}, name), term);
      }),
    );
  }

  #measuredText(measured: Memory | null): [string, string] {
    if (measured === null) return ["–", "once it runs"];
    const difference = measured.allocated_bytes - measured.predicted_bytes;
    const off = difference === 0 ? "0 B off the prediction" : `${exact(Math.abs(difference))} B off`;
    return [bytes(measured.allocated_bytes), this.#isMeasuredHere ? off : "of the run, not this setup"];
  }

  #hostText(measured: Memory | null): [string, string] {
    if (measured === null || measured.wasm_heap_bytes === 0) return ["–", "once it runs"];
    const copies = measured.host_copy_bytes;
    const note = copies > 0 ? `${bytes(copies)} of copies for recovery` : "no copies for recovery";
    return [bytes(measured.wasm_heap_bytes), note];
  }
}
