// The run in figures.

import type { StepRecord } from "../engine/types";
import { clock, count, percent } from "../format";
import { type Setup, accuracyName, reads } from "../setup";
import { byId, setText } from "./dom";

/** Weight of the past in the shown speed. */
const SMOOTHING = 0.8;

export class Readouts {
  readonly #step = byId("read-step");
  readonly #loss = byId("read-loss");
  readonly #heldout = byId("read-heldout");
  readonly #accuracyRow = byId("accuracy");
  readonly #accuracy = byId("read-accuracy");
  readonly #speed = byId("read-speed");
  readonly #remaining = byId("read-remaining");
  readonly #rope = byId("rope");
  readonly #walker = byId("walker");
  #tokensPerS = 0;
  #queued = 0;
  #waiting: (() => void) | null = null;

  reset(step: number, setup: Setup): void {
    this.#waiting = null;
    this.#tokensPerS = 0;
    for (const element of [this.#loss, this.#heldout, this.#accuracy, this.#speed, this.#remaining]) {
      setText(element, "–");
    }
    const accuracy = accuracyName(setup);
    this.#accuracyRow.hidden = accuracy === null;
    setText(byId("accuracy-name"), accuracy ?? "");
    const isText = reads(setup) === "text";
    setText(byId("speed-name"), isText ? "Tokens/s" : "Images/s");
    setText(byId("loss-unit"), isText ? "nats a token" : "nats an image");
    this.#progress(step, setup.train.steps);
  }

  records(records: readonly StepRecord[], steps: number): void {
    const last = records.at(-1);
    if (last === undefined) return;
    const now = last.step_tokens / Math.max(1e-9, last.step_s);
    const before = this.#tokensPerS;
    this.#tokensPerS = before === 0 ? now : SMOOTHING * before + (1 - SMOOTHING) * now;
    cancelAnimationFrame(this.#queued);
    this.#waiting = () => {
      setText(this.#loss, last.loss.toFixed(3));
      setText(this.#speed, count(this.#tokensPerS));
      const left = ((steps - last.step) * last.step_tokens) / Math.max(1e-9, this.#tokensPerS);
      setText(this.#remaining, clock(left));
      this.#progress(last.step, steps);
    };
    this.#queued = requestAnimationFrame(() => this.settle());
  }

  /** Shows the last records without waiting for a frame, so that a stopped run and its figures agree. */
  settle(): void {
    this.#waiting?.();
    this.#waiting = null;
  }

  heldout(loss: number, accuracy: number | null): void {
    setText(this.#heldout, loss.toFixed(3));
    if (accuracy !== null) setText(this.#accuracy, percent(accuracy));
  }

  #progress(step: number, steps: number): void {
    const share = Math.min(1, step / Math.max(1, steps));
    const total = document.createElement("small");
    total.textContent = ` / ${steps}`;
    this.#step.replaceChildren(String(step), total);
    this.#walker.style.left = `calc(${(share * 100).toFixed(2)}% - ${(share * 9).toFixed(1)}px)`;
    this.#rope.setAttribute("aria-valuenow", String(Math.round(share * 100)));
    this.#rope.setAttribute("aria-valuetext", `step ${step} of ${steps}`);
  }
}
