// The pinned plan beside the one that is shown: its map, and what differs.

import { ArenaMap } from "../arena/map";
import { differencesTable } from "../compare/table";
import type { Planned, TensorClass } from "../engine/types";
import { bytes } from "../format";
import { byId, setText } from "./dom";

/** What the two plans are called. */
export type Names = readonly [pinned: string, shown: string];

export class Comparison {
  readonly #maps = byId("maps");
  readonly #pinned = byId("pinned");
  readonly #difference = byId("difference");
  readonly #captions = [byId("pinned-caption"), byId("arena-caption")] as const;
  readonly #map: ArenaMap;

  constructor(detail: HTMLElement) {
    this.#map = new ArenaMap(byId("pinned-arena"), detail, "Tensors of the pinned plan");
  }

  /** Shows both plans; the maps' axes reach up to `top`. */
  show(pinned: Planned, shown: Planned, names: Names, top: number): void {
    this.#toggle(true);
    const peaks = [pinned, shown].map((planned) => bytes(planned.peak_bytes));
    this.#captions.forEach((caption, index) => setText(caption, `${names[index]}: ${peaks[index]}`));
    this.#map.show(pinned, null, top);
    this.#difference.replaceChildren(differencesTable(pinned, shown, names));
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
