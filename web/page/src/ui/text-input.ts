// The text to train on: pasted, chosen or dropped.

import { bytes } from "../format";
import { button, make } from "./dom";

/** Longer texts are held, and not put into the input, which would be slow. */
const MOST_SHOWN = 200_000;
const MOST_BYTES = 512 * 1024 * 1024;

export class TextInput {
  readonly element: HTMLElement;
  readonly #area = make("textarea", {
    id: "own-text",
    "aria-label": "Text to train on",
    placeholder: "Paste a text of a few thousand characters or more",
    spellcheck: "false",
  });
  readonly #note = make("p", { class: "hint" });
  readonly #onText: () => void;
  #file: { name: string; data: Uint8Array } | null = null;

  constructor(onText: () => void) {
    this.#onText = onText;
    const picker = make("input", {
      type: "file",
      class: "unseen",
      tabindex: -1,
      "aria-label": "Text file",
    });
    picker.addEventListener("change", () => {
      const file = picker.files?.[0];
      picker.value = "";
      if (file !== undefined) void this.take(file);
    });
    this.#area.addEventListener("input", () => {
      this.#file = null;
      this.#describe();
      onText();
    });
    const open = button("Choose a file…", () => picker.click());
    this.element = make("div", { class: "own-text", hidden: true }, this.#area, open, picker, this.#note);
    this.#describe();
  }

  /** Takes a file as the text. */
  async take(file: File): Promise<void> {
    if (file.size > MOST_BYTES) {
      this.#note.textContent = `${file.name} has ${bytes(file.size)}; at most ${bytes(MOST_BYTES)} fit.`;
      return;
    }
    const data = new Uint8Array(await file.arrayBuffer());
    this.#file = { name: file.name, data };
    this.#area.value = data.length <= MOST_SHOWN ? new TextDecoder().decode(data) : "";
    this.#describe();
    this.#onText();
  }

  /** The bytes, or `null` where there's no text yet. */
  get value(): Uint8Array | null {
    if (this.#file !== null) return this.#file.data;
    const text = this.#area.value;
    return text === "" ? null : new TextEncoder().encode(text);
  }

  focus(): void {
    this.#area.focus();
  }

  #describe(): void {
    const size = this.value?.length ?? 0;
    const name = this.#file === null ? "" : `${this.#file.name}: `;
    this.#note.textContent = size === 0 ? "No text yet." : `${name}${bytes(size)}.`;
  }
}
