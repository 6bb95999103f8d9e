// A plan in a notebook: the page's map, and a slider that has the kernel plan again.

import { Legend } from "../../page/src/arena/legend";
import { ArenaMap } from "../../page/src/arena/map";
import { bytes, count, duration, exact } from "../../page/src/format";
import { make, setText, withCode } from "../../page/src/ui/dom";
import { PeakTable } from "../../page/src/ui/peak-table";
import { planOf } from "./columns";
import { figure } from "./elements";
import type { Model, NotebookPlan, PlanTraits, View } from "./model";
import { classTable, disclosure, layerTable } from "./tables";

/** Positions of the slider. */
const LAST = 200;
/** A kernel that answers does so within this. */
const PATIENCE_MS = 2000;

export class PlanView implements View {
  readonly #model: Model<PlanTraits>;
  readonly #slider = make("input", { type: "range", id: "budget", min: 0, max: LAST, step: 1 });
  readonly #budgetText = make("output", { for: "budget" });
  readonly #note = make("p", { class: "unit" });
  readonly #why = make("p", { class: "why" });
  readonly #refusal = make("div", { class: "refusal", role: "alert", hidden: true });
  readonly #figures = make("dl", { class: "figures" });
  readonly #detail = make("div", { class: "detail", id: "detail", "aria-live": "polite" });
  readonly #byClass = disclosure("Bytes at the peak by class");
  readonly #byLayer = disclosure("Bytes and predicted time by layer");
  readonly #atPeak = disclosure("Tensors alive at the peak");
  readonly #map: ArenaMap;
  readonly #legend: Legend;
  readonly #peakTable: PeakTable;
  readonly #show = (): void => this.#showPlan();
  readonly #fail = (): void => this.#refuse(this.#model.get("error"));
  #plan: NotebookPlan;
  #patience = 0;

  constructor(model: Model<PlanTraits>, root: HTMLElement) {
    this.#model = model;
    this.#plan = planOf(model.get("plan"));
    const map = make("div");
    const legend = make("div", { class: "legend", role: "group", "aria-label": "Bytes at the peak, by class" });
    root.append(
      make("div", { class: "head" }, make("h2", {}, "Memory of a training step"), this.#note),
      make("div", { class: "budget" }, make("label", { for: "budget" }, "Budget"), this.#slider, this.#budgetText),
      this.#refusal,
      this.#figures,
      this.#why,
      make("div", { class: "arena-row" }, make("div", {}, map, legend), this.#detail),
      make("div", { class: "tables" }, this.#byClass, this.#byLayer, this.#atPeak),
    );
    this.#map = new ArenaMap(map, this.#detail);
    this.#legend = new Legend(legend, (name) => this.#map.highlight(name));
    this.#peakTable = new PeakTable(this.#atPeak);
    this.#slider.addEventListener("input", () => this.#ask());
    model.on("change:plan", this.#show);
    model.on("change:error", this.#fail);
    this.#placeSlider();
    this.#showPlan();
  }

  restyle(): void {
    this.#map.restyle();
  }

  dispose(): void {
    clearTimeout(this.#patience);
    this.#model.off("change:plan", this.#show);
    this.#model.off("change:error", this.#fail);
    this.#map.dispose();
  }

  #placeSlider(): void {
    const [smallest, fastest] = this.#model.get("range");
    const span = fastest - smallest;
    const budget = this.#model.get("budget") ?? this.#plan.budget_bytes ?? fastest;
    this.#slider.disabled = span <= 0;
    const at = span > 0 ? ((budget - smallest) / span) * LAST : LAST;
    this.#slider.value = String(Math.min(LAST, Math.max(0, Math.round(at))));
    this.#nameBudget(Math.min(budget, Math.max(fastest, this.#plan.peak_bytes)));
  }

  /** Asks for the plan within the budget that the slider is at. */
  #ask(): void {
    const [smallest, fastest] = this.#model.get("range");
    const budget = Math.round(smallest + ((fastest - smallest) * Number(this.#slider.value)) / LAST);
    this.#nameBudget(budget);
    this.#model.set("budget", budget);
    this.#model.save_changes();
    clearTimeout(this.#patience);
    this.#patience = window.setTimeout(() => {
      this.#refuse("The kernel doesn’t answer: it’s at work or gone. The map still shows the plan before.");
    }, PATIENCE_MS);
  }

  #nameBudget(budget: number): void {
    setText(this.#budgetText, bytes(budget));
    this.#slider.setAttribute("aria-valuetext", bytes(budget));
  }

  #refuse(text: string): void {
    clearTimeout(this.#patience);
    this.#refusal.hidden = text === "";
    this.#refusal.replaceChildren(make("p", {}, text));
  }

  #showPlan(): void {
    const plan = planOf(this.#model.get("plan"));
    this.#plan = plan;
    this.#refuse(this.#model.get("error"));
    const took = duration(plan.plan_ms / 1000);
    const { ops, tensors } = plan.program;
    const sizes = `${count(plan.parameters)} parameters · ${ops.length} ops · ${tensors.length} tensors`;
    setText(this.#note, `${sizes} · planned in ${took}`);
    const why = [plan.why === "" ? "" : `The peak is ${plan.why}.`, recomputed(plan)].join(" ");
    this.#why.replaceChildren(...withCode(why));
    this.#map.show(plan, plan.budget_bytes, Math.max(this.#model.get("range")[1], plan.peak_bytes));
    this.#legend.show(plan);
    this.#peakTable.show(plan);
    this.#byClass.querySelector(".scroll")?.replaceChildren(classTable(plan));
    this.#byLayer.querySelector(".scroll")?.replaceChildren(layerTable(plan));
    this.#figures.replaceChildren(...figures(plan));
  }
}

function figures(plan: NotebookPlan): HTMLElement[] {
  const { choices } = plan;
  const { ops } = plan.program;
  const again = ops.filter(({ phase }) => phase === "recompute").length;
  return [
    figure("Predicted peak", bytes(plan.peak_bytes), `${exact(plan.peak_bytes)} B`),
    figure("Lower bound", bytes(plan.lower_bound_bytes), `${exact(plan.lower_bound_bytes)} B`),
    figure("Predicted step", duration(plan.step_s)),
    figure(
      "Micro-batch",
      `${choices.micro_batch} × ${choices.accumulation}`,
      choices.accumulation > 1 ? `the map shows one of ${choices.accumulation} passes` : "in one pass",
    ),
    figure(
      "Recomputed",
      isList(choices.checkpoint) ? `${again} of ${ops.length} ops` : choices.checkpoint,
      choices.loss_chunk === 0 ? "loss in one piece" : `loss in chunks of ${choices.loss_chunk}`,
    ),
  ];
}

/** Whether what is recomputed is named tensor by tensor. */
const isList = (checkpoint: string): boolean => checkpoint.includes("×");

function recomputed({ choices: { checkpoint } }: NotebookPlan): string {
  return isList(checkpoint) ? `The backward pass computes again: ${checkpoint}.` : "";
}
