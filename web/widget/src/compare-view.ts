// Two plans side by side: their maps on one scale, and what differs.

import { Legend } from "../../page/src/arena/legend";
import { ArenaMap } from "../../page/src/arena/map";
import { compare, sentence } from "../../page/src/compare/compare";
import { differencesTable } from "../../page/src/compare/table";
import { bytes, duration } from "../../page/src/format";
import { make } from "../../page/src/ui/dom";
import { planOf } from "./columns";
import type { CompareTraits, Model, NotebookPlan, View } from "./model";

export class CompareView implements View {
  /** Says what either map points at. */
  readonly #detail = make("div", { class: "detail", id: "detail", "aria-live": "polite" });
  readonly #maps: ArenaMap[] = [];

  constructor(model: Model<CompareTraits>, root: HTMLElement) {
    const names = model.get("names");
    const plans = [planOf(model.get("first")), planOf(model.get("second"))] as const;
    const top = Math.max(...plans.map((plan) => plan.peak_bytes));
    root.append(
      make("div", { class: "head" }, make("h2", {}, "Two plans of a training step")),
      make("p", { class: "why" }, sentence(compare(...plans))),
      make("div", { class: "pair" }, ...plans.map((plan, index) => this.#side(plan, names[index] ?? "", top))),
      make(
        "div",
        { class: "arena-row" },
        make("div", { class: "difference" }, differencesTable(...plans, names)),
        this.#detail,
      ),
    );
  }

  restyle(): void {
    for (const map of this.#maps) map.restyle();
  }

  dispose(): void {
    for (const map of this.#maps) map.dispose();
  }

  /** One plan, on a scale that reaches `top`. */
  #side(plan: NotebookPlan, name: string, top: number): HTMLElement {
    const place = make("div");
    const legend = make("div", { class: "legend", role: "group", "aria-label": `Bytes at the peak of “${name}”` });
    const map = new ArenaMap(place, this.#detail, `Tensors of the plan “${name}”`);
    new Legend(legend, (shown) => map.highlight(shown)).show(plan);
    map.show(plan, plan.budget_bytes, top);
    this.#maps.push(map);
    const figures = `${bytes(plan.peak_bytes)}, ${duration(plan.step_s)} a step`;
    const head = make("div", { class: "head" }, make("h3", {}, name), make("p", { class: "unit" }, figures));
    return make("section", { "aria-label": name }, head, place, legend);
  }
}
