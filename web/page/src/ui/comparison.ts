// The pinned plan beside the one that is shown: its map, and what differs.

import { type Cursor, ArenaMap } from "../arena/map";
import { bytesChange, compare, secondsChange } from "../compare/compare";
import type { Planned, TensorClass } from "../engine/types";
import { bytes, duration } from "../format";
import { byId, make, setText } from "./dom";

/** What the two plans are called. */
export type Names = readonly [pinned: string, shown: string];

export class Comparison {
  readonly #maps = byId("maps");
  readonly #pinned = byId("pinned");
  readonly #difference = byId("difference");
  readonly #captions = [byId("pinned-caption"), byId("arena-caption")] as const;
  readonly #map: ArenaMap;

  constructor(onCursor: (cursor: Cursor | null) => void) {
    this.#map = new ArenaMap(byId("pinned-arena"), onCursor);
  }

  /** Shows both plans; the maps' axes reach up to `top`. */
  show(pinned: Planned, shown: Planned, names: Names, top: number): void {
    this.#toggle(true);
    const peaks = [pinned, shown].map((planned) => bytes(planned.peak_bytes));
    this.#captions.forEach((caption, index) => setText(caption, `${names[index]}: ${peaks[index]}`));
    this.#map.show(pinned, null, top);
    this.#difference.replaceChildren(table(pinned, shown, names));
  }

  hide(): void {
    this.#toggle(false);
    this.#difference.replaceChildren();
  }

  highlight(name: TensorClass | null): void {
    this.#map.highlight(name);
  }

  #toggle(isCompared: boolean): void {
    this.#maps.classList.toggle("compared", isCompared);
    for (const element of [this.#pinned, this.#difference, ...this.#captions]) element.hidden = !isCompared;
  }
}

function table(pinned: Planned, shown: Planned, names: Names): HTMLElement {
  const { peak, step, classes, choices } = compare(pinned, shown);
  const row = (name: (Node | string)[], first: string, second: string, change: string): HTMLElement =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, ...name),
      ...[first, second, change].map((text) => make("td", {}, text)),
    );
  const rows = [
    row(["Peak"], bytes(peak.first), bytes(peak.second), bytesChange(peak)),
    ...classes.map((figure) => {
      const name = [make("i", { class: `swatch-${figure.name}` }), figure.name];
      return row(name, bytes(figure.first), bytes(figure.second), bytesChange(figure));
    }),
    row(["Predicted step"], duration(step.first), duration(step.second), secondsChange(step)),
    ...choices.map(({ name, first, second }) => row([name], first, second, "")),
  ];
  const heads = ["At the peak", ...names, "Change"].map((text) => make("th", { scope: "col" }, text));
  return make(
    "table",
    {},
    make("caption", { class: "unseen" }, "What differs between the two plans"),
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...rows),
  );
}
