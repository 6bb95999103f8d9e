// The classes of a plan with their bytes at the peak. Each is a button that brings its tensors out on the map.

import { CLASSES, type Planned, type TensorClass } from "../engine/types";
import { bytes } from "../format";
import { button, make } from "../ui/dom";

export class Legend {
  readonly #host: HTMLElement;
  readonly #onPick: (name: TensorClass | null) => void;
  #picked: TensorClass | null = null;

  constructor(host: HTMLElement, onPick: (name: TensorClass | null) => void) {
    this.#host = host;
    this.#onPick = onPick;
  }

  show({ by_class }: Pick<Planned, "by_class">): void {
    const classes = CLASSES.filter((name) => (by_class[name] ?? 0) > 0);
    const gaps = make("span", {}, make("i", { class: "swatch-gaps" }), "gaps", make("b", {}, bytes(by_class.gaps)));
    this.#host.replaceChildren(...classes.map((name) => this.#button(name, by_class[name])), gaps);
  }

  #button(name: TensorClass, size: number): HTMLButtonElement {
    const item = button("", () => this.#pick(name), "");
    item.dataset["class"] = name;
    item.setAttribute("aria-pressed", String(this.#picked === name));
    item.append(make("i", { class: `swatch-${name}` }), name, make("b", {}, bytes(size)));
    return item;
  }

  #pick(name: TensorClass): void {
    this.#picked = this.#picked === name ? null : name;
    this.#onPick(this.#picked);
    for (const item of this.#host.querySelectorAll("button")) {
      item.setAttribute("aria-pressed", String(item.dataset["class"] === this.#picked));
    }
  }
}
