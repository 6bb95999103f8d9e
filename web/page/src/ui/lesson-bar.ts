// The lessons to choose from, and the text of the one that is open.

import { type Comparable, compare } from "../compare/compare";
import type { Info } from "../engine/types";
import { bytes, duration, percent } from "../format";
import { LESSONS, type Lesson } from "../lessons";
import { byId, button, make } from "./dom";

/** What a lesson saves and costs, in two sentences. */
export function effect(before: Comparable, after: Comparable): string {
  const { peak, step } = compare(before, after);
  const sizes = `The peak goes from ${bytes(peak.first)} to ${bytes(peak.second)}`;
  const share = peak.share ?? 0;
  const saved = share === 0 ? "" : `: ${percent(Math.abs(share))} ${share < 0 ? "less" : "more"}`;
  const said = `${sizes}${saved}. A step is predicted to take ${duration(step.second)} instead of ${duration(step.first)}.`;
  // A number and its unit stay on one line.
  return said.replace(/(\d) (?=%|[KMGT]?i?B|µ?m?s)/g, "$1\u00a0");
}

export class LessonBar {
  readonly #buttons = new Map<Lesson, HTMLButtonElement>();
  readonly #box = byId("lesson");
  readonly #effect = make("p", { class: "effect" });
  readonly #open: (lesson: Lesson) => void;
  readonly #leave: () => void;
  #shown: Lesson | null = null;

  constructor(open: (lesson: Lesson) => void, leave: () => void) {
    this.#open = open;
    this.#leave = leave;
    const host = byId("lessons");
    for (const lesson of LESSONS) {
      const item = button(lesson.title, () => (this.#shown === lesson ? leave() : open(lesson)));
      item.setAttribute("aria-pressed", "false");
      item.setAttribute("aria-controls", "lesson");
      this.#buttons.set(lesson, item);
      host.append(item);
    }
  }

  /** Offers the lessons that this device can show. */
  offer({ device }: Info): void {
    for (const [{ after }, item] of this.#buttons) {
      item.disabled = device === "cpu" && after.memory.offload.length > 0;
      item.title = item.disabled ? "Needs WebGPU: the CPU’s memory is the tab’s own" : "";
    }
  }

  /** Shows a lesson, or that none is open. */
  show(lesson: Lesson | null): void {
    if (lesson === this.#shown) return;
    this.#shown = lesson;
    for (const [other, item] of this.#buttons) item.setAttribute("aria-pressed", String(other === lesson));
    this.#box.hidden = lesson === null;
    if (lesson === null) return;
    this.#effect.textContent = "";
    const next = LESSONS.slice(LESSONS.indexOf(lesson) + 1).find((it) => this.#buttons.get(it)?.disabled === false);
    const actions = make("div", { class: "lesson-actions" });
    if (next !== undefined) actions.append(button(`Next: ${next.title}`, () => this.#open(next)));
    actions.append(button("Leave the lesson", this.#leave, "button quiet"));
    this.#box.replaceChildren(make("p", {}, lesson.text.join(" ")), this.#effect, actions);
  }

  /** Says what the plans come to. */
  compare(before: Comparable, after: Comparable): void {
    if (this.#shown !== null) this.#effect.textContent = effect(before, after);
  }
}
