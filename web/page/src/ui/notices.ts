// Lines above the run: what the user should know, each with what can be done about it.

import { button, make } from "./dom";

export interface Action {
  text: string;
  run: () => void;
}

export class Notices {
  readonly #host: HTMLElement;
  readonly #shown = new Map<string, HTMLElement>();

  constructor(host: HTMLElement) {
    this.#host = host;
  }

  /** Shows a notice in place of the earlier one of the same name. */
  show(name: string, text: string, options: { wrong?: boolean; actions?: Action[] } = {}): void {
    const { wrong = false, actions = [] } = options;
    const close = button("Dismiss", () => this.hide(name), "button quiet");
    const element = make(
      "div",
      { class: wrong ? "notice wrong" : "notice", role: wrong ? "alert" : "status", "data-notice": name },
      make("p", {}, text),
      ...actions.map(({ text, run }) => button(text, run)),
      close,
    );
    const before = this.#shown.get(name);
    if (before === undefined) this.#host.append(element);
    else before.replaceWith(element);
    this.#shown.set(name, element);
  }

  hide(name: string): void {
    this.#shown.get(name)?.remove();
    this.#shown.delete(name);
  }
}
