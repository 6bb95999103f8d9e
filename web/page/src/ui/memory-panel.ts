// Everything about memory: the budget, what the plan chose, the map, and the plan that it's compared with.

import { Legend } from "../arena/legend";
import { ArenaMap } from "../arena/map";
import type { Memory, Planned, TensorClass } from "../engine/types";
import { bytes, count, duration } from "../format";
import type { Setup } from "../setup";
import { Comparison, type Names } from "./comparison";
import { byId, button, make, setText, withCode } from "./dom";
import { saveMapAs } from "./export-buttons";
import { Figures } from "./figures";
import { PeakTable } from "./peak-table";
import { type Word, define } from "./terms";

/** A plan that another is compared with. */
export interface Pinned {
  planned: Planned;
  names: Names;
}

export class MemoryPanel {
  readonly #slider = byId<HTMLInputElement>("budget");
  readonly #sliderText = byId("budget-text");
  readonly #refusal = byId("refusal");
  readonly #note = byId("plan-note");
  readonly #why = byId("why");
  readonly #figures = new Figures(byId("figures"));
  readonly #table = new PeakTable(byId<HTMLDetailsElement>("peak-table"));
  readonly #map: ArenaMap;
  readonly #comparison: Comparison;
  readonly #legend: Legend;
  readonly #onBudget: (budget: number | null) => void;
  #planned: Planned | null = null;
  #budgetShown: number | null = null;
  #pinned: Pinned | null = null;
  #measured: Memory | null = null;
  #isMeasuredHere = false;
  #range: [smallest: number, most: number] = [0, 0];
  /** Rows of logits of one pass. */
  #rows = 0;

  constructor(onBudget: (budget: number | null) => void) {
    this.#onBudget = onBudget;
    const detail = byId("detail");
    this.#map = new ArenaMap(byId("arena"), detail);
    this.#comparison = new Comparison(detail);
    this.#legend = new Legend(byId("legend"), (name) => this.#highlight(name));
    saveMapAs(byId("save-map"), () => this.#planned);
    this.#slider.addEventListener("input", () => {
      const budget = this.#budget();
      this.#nameBudget(budget);
      this.#onBudget(budget);
    });
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
    this.#planned = planned;
    this.#budgetShown = memory.budget;
    this.#rows = planned.choices.micro_batch * model.context;
    const took = duration(planned.plan_ms / 1000);
    const ops = `${planned.program.ops.length} ops`;
    setText(this.#note, `${count(planned.parameters)} parameters · ${ops} · planned in ${took}`);
    this.#why.replaceChildren(...(planned.why === "" ? [] : withCode(`The peak is ${planned.why}.`)));
    this.#table.show(planned);
    this.#showFigures();
    this.#showMaps();
  }

  /** Shows another plan beside this one; `null` shows this one alone. */
  pin(pinned: Pinned | null): void {
    this.#pinned = pinned;
    this.#showMaps();
  }

  /** What the run took; `isHere` where the shown plan is the run's. */
  measured(memory: Memory | null, isHere: boolean): void {
    this.#measured = memory;
    this.#isMeasuredHere = isHere;
    this.#showFigures();
  }

  /** Says why the setup can't start, and offers the nearest that can. */
  refuse(text: string | null, nearest: { text: string; take: () => void } | null = null): void {
    this.#refusal.hidden = text === null;
    this.#refusal.replaceChildren();
    if (text === null) return;
    this.#refusal.append(make("p", {}, ...withCode(text)));
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
    if (this.#planned === null) return;
    const [planned, memory] = [this.#planned, this.#measured];
    this.#figures.show({ planned, memory, rows: this.#rows, isHere: this.#isMeasuredHere });
  }

  /** One map, or two on one scale. */
  #showMaps(): void {
    const [planned, pinned] = [this.#planned, this.#pinned];
    if (planned === null) return;
    const top = Math.max(this.#range[1], planned.peak_bytes, pinned?.planned.peak_bytes ?? 0);
    this.#map.show(planned, this.#budgetShown, top);
    if (pinned === null) this.#comparison.hide();
    else this.#comparison.show(pinned.planned, planned, pinned.names, top);
    this.#legend.show(planned);
    for (const item of byId("legend").querySelectorAll("button")) define(item, item.dataset["class"] as Word);
  }

  #highlight(name: TensorClass | null): void {
    this.#map.highlight(name);
    this.#comparison.highlight(name);
  }
}
