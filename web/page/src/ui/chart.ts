// Loss over steps, with the held-out loss.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const FRAME_MS = 100;
/** The smoothed curve averages over this share of all points, centred. */
const WINDOW = 1 / 40;
const POINT = 5;
/** Points of a curve that are drawn; then every second one is dropped. */
const MOST_POINTS = 4000;

type Points = [step: number, loss: number][];

/** The mean around each value. */
export function smoothed(values: readonly (number | null)[]): (number | null)[] {
  const half = Math.floor((values.length * WINDOW) / 2);
  const sums = [0];
  const counts = [0];
  for (const value of values) {
    const isNumber = value !== null && Number.isFinite(value);
    sums.push((sums.at(-1) ?? 0) + (isNumber ? value : 0));
    counts.push((counts.at(-1) ?? 0) + (isNumber ? 1 : 0));
  }
  return values.map((_, index) => {
    const from = Math.max(0, index - half);
    const to = Math.min(values.length, index + half + 1);
    const count = (counts[to] ?? 0) - (counts[from] ?? 0);
    return count === 0 ? null : ((sums[to] ?? 0) - (sums[from] ?? 0)) / count;
  });
}

export class LossChart {
  readonly #host: HTMLElement;
  readonly #plot: uPlot;
  #losses: Points = [];
  #heldout: Points = [];
  #timer = 0;

  constructor(host: HTMLElement) {
    this.#host = host;
    const color = (name: string) => (): string =>
      getComputedStyle(host).getPropertyValue(`--${name}`).trim();
    const font = `11px ${color("mono")()}`;
    const axis: uPlot.Axis = {
      stroke: color("muted"),
      font,
      grid: { stroke: color("rule"), width: 1 },
      ticks: { show: false },
    };
    const line = { points: { show: false } };
    this.#plot = new uPlot(
      {
        width: host.clientWidth || 300,
        height: host.clientHeight || 200,
        padding: [8, 8, 0, 0],
        legend: { show: false },
        scales: { x: { time: false } },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        axes: [
          { ...axis, size: 26, space: 60 },
          { ...axis, size: 44, space: 34 },
        ],
        series: [
          {},
          { ...line, label: "loss", stroke: color("faint"), width: 1 },
          { ...line, label: "smoothed", stroke: color("ink"), width: 1.75 },
          {
            label: "held-out",
            stroke: color("accent"),
            width: 1.75,
            spanGaps: true,
            points: { show: true, size: POINT, fill: color("accent") },
          },
        ],
      },
      [[], [], [], []],
      host,
    );
    new ResizeObserver(() => {
      this.#plot.setSize({ width: host.clientWidth, height: host.clientHeight });
    }).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#plot.redraw(false, true);
    });
  }

  reset(losses: Points = [], heldout: Points = []): void {
    this.#losses = [...losses];
    this.#heldout = [...heldout];
    this.#draw();
  }

  addLosses(points: Points): void {
    this.#losses.push(...points);
    if (this.#losses.length > MOST_POINTS) {
      this.#losses = this.#losses.filter((_, index) => index % 2 === 1);
    }
    this.#schedule();
  }

  addHeldout(step: number, loss: number): void {
    this.#heldout.push([step, loss]);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#timer !== 0) return;
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      requestAnimationFrame(() => this.#draw());
    }, FRAME_MS);
  }

  #draw(): void {
    const heldout = new Map(this.#heldout);
    const losses = new Map(this.#losses);
    const steps = [...new Set([...losses.keys(), ...heldout.keys()])].sort((a, b) => a - b);
    const raw = steps.map((step) => losses.get(step) ?? null);
    const held = steps.map((step) => heldout.get(step) ?? null);
    this.#plot.setData([steps, raw, smoothed(raw), held]);
    const [step, loss] = this.#losses.at(-1) ?? [];
    const newest = this.#heldout.at(-1)?.[1];
    this.#host.setAttribute(
      "aria-label",
      step === undefined || loss === undefined
        ? "Loss over steps: nothing yet"
        : `Loss over steps: ${loss.toFixed(3)} at step ${step}` +
            (newest === undefined ? "" : `, held-out ${newest.toFixed(3)}`),
    );
  }
}
