// The examples to choose from, and what the one that is chosen trains.

import { EXAMPLES, type Example } from "../examples";
import type { Setup } from "../setup";
import { byId, button, setText } from "./dom";

export class ExampleBar {
  readonly #buttons = new Map<Example, HTMLButtonElement>();
  readonly #text = byId("example");

  constructor(choose: (example: Example) => void) {
    const host = byId("examples");
    for (const example of EXAMPLES) {
      const item = button(example.title, () => choose(example));
      this.#buttons.set(example, item);
      host.append(item);
    }
  }

  /** Shows which example a setup is of, if of any. */
  show(setup: Setup): void {
    let said = "";
    for (const [example, item] of this.#buttons) {
      const isOf = example.isOf(setup);
      item.setAttribute("aria-pressed", String(isOf));
      if (isOf) said = example.text.join(" ");
    }
    setText(this.#text, said);
  }
}
