// Definitions: shown where a word is pointed at, focused or pressed, and told to screen readers.

import WORDS from "../words.json";
import { button, make, setText } from "./dom";

export type Word = keyof typeof WORDS;

/** How long a definition stays once the pointer has left, so that it can be pointed at itself. */
const LINGER_MS = 150;
/** Between a word and its definition, and between that and the window's edge, in CSS pixels. */
const MARGIN = 8;

const idOf = (word: Word): string => `word-${word.replaceAll(" ", "-")}`;

/** Gives an element that can be focused the definition of a word. */
export function define(element: HTMLElement, word: Word): void {
  element.dataset["word"] = word;
  element.setAttribute("aria-describedby", idOf(word));
}

/** A word of the page that says what it means. */
export function term(text: string, word: Word): HTMLButtonElement {
  // Pressing it shows the definition, as everything with one does.
  const element = button(text, () => undefined, "term");
  define(element, word);
  return element;
}

/** The definition that is shown, of whatever on the page has one. */
export class Definitions {
  readonly #tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  #shown: HTMLElement | null = null;
  #leaving = 0;

  /** `host` gets the texts that screen readers read. */
  constructor(host: HTMLElement) {
    for (const [word, text] of Object.entries(WORDS)) {
      host.append(make("p", { id: idOf(word as Word) }, text));
    }
    document.body.append(this.#tip);
    document.addEventListener("pointerover", ({ target }) => this.#point(target));
    // A finger doesn't point, and not every browser focuses what it presses.
    document.addEventListener("click", ({ target }) => this.#point(target));
    document.addEventListener("focusin", ({ target }) => {
      if (target instanceof Element && target.matches(":focus-visible")) this.#point(target);
    });
    document.addEventListener("focusout", () => this.#hide());
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.#hide();
    });
    // What gets the focus may be scrolled into view.
    addEventListener("scroll", () => this.#place(), { passive: true });
  }

  #point(target: EventTarget | null): void {
    if (!(target instanceof Element)) return;
    clearTimeout(this.#leaving);
    const element = target.closest<HTMLElement>("[data-word]");
    if (element !== null) this.#show(element);
    else if (!this.#tip.contains(target)) this.#leaving = window.setTimeout(() => this.#hide(), LINGER_MS);
  }

  #show(element: HTMLElement): void {
    this.#shown = element;
    setText(this.#tip, WORDS[element.dataset["word"] as Word]);
    this.#tip.hidden = false;
    this.#place();
  }

  #place(): void {
    if (this.#shown === null) return;
    const at = this.#shown.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.#tip;
    const left = Math.min(at.left, document.documentElement.clientWidth - width - MARGIN);
    const isBelow = at.bottom + MARGIN + height <= innerHeight;
    const top = isBelow ? at.bottom + MARGIN : at.top - MARGIN - height;
    this.#tip.style.left = `${Math.max(MARGIN, left)}px`;
    this.#tip.style.top = `${top}px`;
  }

  #hide(): void {
    clearTimeout(this.#leaving);
    this.#shown = null;
    this.#tip.hidden = true;
  }
}
