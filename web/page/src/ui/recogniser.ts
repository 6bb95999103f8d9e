// What the model takes a drawing for, while it trains and after.

import { type EngineClient, latest } from "../engine/client";
import type { Seen } from "../engine/types";
import { percent } from "../format";
import { byId, make, setText } from "./dom";
import { Drawing, SIDE } from "./drawing";

/** While it trains, a drawing is looked at again this often. */
const AGAIN_MS = 400;
/** A screen reader hears a new answer once it has stayed for this long. */
const SAID_MS = 900;
const HINTS = {
  none: "Start training: then the model says what it takes your drawing for.",
  empty: "Draw a digit, from 0 to 9.",
} as const;

export class Recogniser {
  readonly #drawing = new Drawing(() => this.#look());
  readonly #panel = byId("draw");
  readonly #hint = byId("drawing-hint");
  readonly #answer = byId("answer");
  readonly #pixels = byId<HTMLCanvasElement>("seen");
  readonly #bars = byId("classes");
  readonly #ask: (ink: Uint8Array) => void;
  #hasModel = false;
  #lookedAt = 0;
  #saying = 0;

  constructor(client: EngineClient) {
    this.#ask = latest(
      (ink: Uint8Array) => client.call("classify", ink, SIDE),
      (seen) => this.#show(seen),
      // The run was reset meanwhile; what else goes wrong shows where it trains.
      () => this.#show(null),
    );
    byId("clear-drawing").addEventListener("click", () => this.#drawing.clear());
    this.#show(null);
  }

  /** Whether there is a model of images, and whether the setup is of one. */
  show(isOfImages: boolean, hasModel: boolean): void {
    this.#panel.hidden = !isOfImages;
    if (hasModel === this.#hasModel) return;
    this.#hasModel = hasModel;
    this.#look();
  }

  /** The weights have changed. */
  again(): void {
    if (performance.now() - this.#lookedAt > AGAIN_MS) this.#look();
  }

  #look(): void {
    this.#lookedAt = performance.now();
    if (this.#hasModel && !this.#drawing.isEmpty) this.#ask(this.#drawing.ink);
    else this.#show(null);
  }

  #show(found: Seen | null): void {
    const seen = this.#hasModel && !this.#drawing.isEmpty ? found : null;
    const classes = seen?.classes ?? Array.from({ length: 10 }, (_, digit): [string, number] => [String(digit), 0]);
    const most = Math.max(...classes.map(([, probability]) => probability));
    const best = seen === null ? undefined : classes.find(([, probability]) => probability === most);
    this.#bars.replaceChildren(
      ...classes.map(([name, probability]) => {
        const bar = make("span", { class: "bar" });
        bar.style.width = `${(100 * probability).toFixed(1)}%`;
        const isBest = name === best?.[0];
        const said = seen === null ? "" : percent(probability);
        return make(
          "li",
          { class: isBest ? "best" : undefined },
          make("span", { class: "class-name" }, name),
          make("span", { class: "track" }, bar),
          make("span", { class: "share" }, said),
        );
      }),
    );
    this.#paint(seen);
    setText(this.#hint, seen !== null ? "" : this.#hasModel ? HINTS.empty : HINTS.none);
    this.#say(best === undefined ? "" : `It looks like ${best[0]}: ${percent(best[1])}.`);
  }

  #say(text: string): void {
    clearTimeout(this.#saying);
    this.#saying = window.setTimeout(() => setText(this.#answer, text), SAID_MS);
  }

  /** The pixels that the model reads. */
  #paint(seen: Seen | null): void {
    const canvas = this.#pixels;
    canvas.hidden = seen === null;
    if (seen === null) return;
    canvas.width = seen.width;
    canvas.height = seen.pixels.length / seen.width;
    const context = canvas.getContext("2d");
    const image = context?.createImageData(canvas.width, canvas.height);
    if (context === null || image === undefined) return;
    seen.pixels.forEach((pixel, index) => image.data.set([pixel, pixel, pixel, 255], 4 * index));
    context.putImageData(image, 0, 0);
  }
}
