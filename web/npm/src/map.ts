// `<tightrope-map>`: a plan as a map of its arena, ops to the right and offsets upwards. It's the page's own map.

import { Legend } from "../../page/src/arena/legend";
import { ArenaMap } from "../../page/src/arena/map";
import memory from "../../page/src/style/memory.css?inline";
import tokens from "../../page/src/style/tokens.css?inline";
import { make } from "../../page/src/ui/dom";
import own from "./map.css?inline";
import type { Plan } from "./plan";

/** On a server there are no elements to extend. */
const Base = (globalThis.HTMLElement ?? Object) as typeof HTMLElement;

interface View {
  map: ArenaMap;
  legend: Legend;
}

/**
 * A map of the plan in its property `plan`.
 *
 * Colours and fonts are custom properties of CSS, such as `--ink`, `--surface` and `--class-weight`; `--map-height` is the
 * height of the map itself.
 */
export class TightropeMap extends Base {
  #plan: Plan | null = null;
  #view: View | null = null;

  connectedCallback(): void {
    this.#view = this.#build();
    this.#show();
  }

  disconnectedCallback(): void {
    this.#view?.map.dispose();
    this.#view = null;
  }

  get plan(): Plan | null {
    return this.#plan;
  }

  set plan(plan: Plan | null) {
    this.#plan = plan;
    this.#show();
  }

  #build(): View {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    // Unlike a style element, a sheet that a script makes is allowed by every policy.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(tokens.replaceAll(":root", ":host") + memory + own);
    root.adoptedStyleSheets = [sheet];
    const arena = make("div");
    const bar = make("div", { class: "legend", role: "group", "aria-label": "Bytes at the peak, by class" });
    const detail = make("div", { class: "detail", id: "detail", "aria-live": "polite" });
    root.replaceChildren(arena, bar, detail);
    const map = new ArenaMap(arena, detail);
    return { map, legend: new Legend(bar, (name) => map.highlight(name)) };
  }

  #show(): void {
    if (this.#view === null || this.#plan === null) return;
    const { report, budgetBytes, peakBytes } = this.#plan;
    this.#view.map.show(report, budgetBytes, peakBytes);
    this.#view.legend.show(report);
  }
}

/** Makes `<tightrope-map>` known to the page. */
export function defineMap(name = "tightrope-map"): void {
  if (customElements.get(name) === undefined) customElements.define(name, TightropeMap);
}

declare global {
  interface HTMLElementTagNameMap {
    "tightrope-map": TightropeMap;
  }
}
