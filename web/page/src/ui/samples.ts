// What the model writes, the newest first.

import { make } from "./dom";

const MOST = 40;

export class Samples {
  readonly #host: HTMLElement;

  constructor(host: HTMLElement) {
    this.#host = host;
    this.reset();
  }

  reset(): void {
    const hint = make("p", { class: "hint" }, "Samples appear here as it learns.");
    this.#host.replaceChildren(hint);
  }

  add(step: number, text: string): void {
    this.#host.querySelector(".hint")?.remove();
    const shown = text.trim() === "" ? "(blank)" : text;
    const parts = [make("h3", {}, `step ${step}`), make("pre", {}, shown)];
    const entry = make("article", { class: "sample" }, ...parts);
    this.#host.prepend(entry);
    if (this.#host.childElementCount > MOST) this.#host.lastElementChild?.remove();
  }
}
