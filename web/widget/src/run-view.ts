// A run in a notebook: the loss so far, and the bytes that were planned beside those that the device gave.

import { ROWS } from "../../page/src/engine/types";
import { bytes, duration, exact } from "../../page/src/format";
import { LossChart } from "../../page/src/ui/chart";
import { make } from "../../page/src/ui/dom";
import { floats } from "./columns";
import { figure } from "./elements";
import type { Model, RunFigures, RunTraits, View } from "./model";

export class RunView implements View {
  readonly #model: Model<RunTraits>;
  readonly #figures = make("dl", { class: "figures" });
  readonly #chart: LossChart;
  readonly #bars = make("div", { class: "bars" });
  readonly #show = (): void => this.#showRun();

  constructor(model: Model<RunTraits>, root: HTMLElement) {
    this.#model = model;
    const chart = make("div", { class: "loss", role: "img" });
    const keys = make(
      "p",
      { class: "keys", "aria-hidden": true },
      make("span", {}, "loss of a step"),
      make("span", { class: "smoothed" }, "smoothed"),
      make("span", { class: "heldout" }, "held-out"),
    );
    root.append(this.#figures, keys, chart, this.#bars);
    this.#chart = new LossChart(chart);
    model.on("change:figures", this.#show);
    this.#showRun();
  }

  restyle(): void {
    this.#showRun();
  }

  dispose(): void {
    this.#model.off("change:figures", this.#show);
  }

  #showRun(): void {
    const run = this.#model.get("figures");
    this.#chart.reset(points(this.#model.get("losses")), points(this.#model.get("heldout")));
    this.#figures.replaceChildren(
      figure("Step", `${run.step}`),
      figure("Loss", number(run.loss)),
      figure("Held-out", number(run.heldout)),
      figure("Time of a step", run.step_s === null ? "–" : duration(run.step_s)),
    );
    this.#bars.replaceChildren(...bars(run));
  }
}

const number = (value: number | null): string => (value === null ? "–" : value.toFixed(3));

/** Pairs of step and loss. */
function points(column: DataView): [number, number][] {
  const values = floats(column);
  return Array.from({ length: values.length / 2 }, (_, index) => [values[2 * index] ?? 0, values[2 * index + 1] ?? 0]);
}

/** What was planned, by class, and what was measured, on one scale. */
function bars({ planned_bytes: planned, measured_bytes: measured, by_class }: RunFigures): Node[] {
  const whole = Math.max(planned, measured, 1);
  const part = (className: string, size: number, title: string): HTMLElement => {
    const made = make("i", { class: className, title });
    made.style.width = `${(100 * size) / whole}%`;
    return made;
  };
  const classes = ROWS.filter((name) => (by_class[name] ?? 0) > 0).map((name) =>
    part(`swatch-${name}`, by_class[name], `${name}: ${bytes(by_class[name])}`),
  );
  const off = measured - planned;
  const apart = off === 0 ? "0 B off" : `${exact(Math.abs(off))} B ${off > 0 ? "more" : "less"}`;
  return [
    make("span", {}, "Planned"),
    make("div", { class: "bar" }, ...classes),
    make("span", { "data-figure": "Planned" }, bytes(planned)),
    make("span", {}, "Measured"),
    make("div", { class: "bar" }, part("measured", measured, `measured: ${bytes(measured)}`)),
    make("span", { "data-figure": "Measured" }, `${bytes(measured)}, ${apart}`),
  ];
}
