// An area to draw in: with the mouse, a finger or a pen, and with the keyboard.

import { byId } from "./dom";

/** Places of the drawing along each side. */
export const SIDE = 128;
/** Width of a stroke. */
const STROKE = 13;
/** How far an arrow key moves the pen. */
const KEY_STEP = 8;
const ARROWS: Partial<Record<string, readonly [x: number, y: number]>> = {
  ArrowLeft: [-KEY_STEP, 0],
  ArrowRight: [KEY_STEP, 0],
  ArrowUp: [0, -KEY_STEP],
  ArrowDown: [0, KEY_STEP],
};

type Point = readonly [x: number, y: number];

export class Drawing {
  readonly #canvas = byId<HTMLCanvasElement>("drawing");
  readonly #context: CanvasRenderingContext2D;
  readonly #pen = byId("pen");
  readonly #changed: () => void;
  #strokes: Point[][] = [];
  #isDown = false;
  /** Where the keyboard's pen is. */
  #at: Point = [SIDE / 2, SIDE / 2];

  /** `changed` is called as it's drawn. */
  constructor(changed: () => void) {
    this.#changed = changed;
    const canvas = this.#canvas;
    canvas.width = canvas.height = SIDE;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    if (context === null) throw new Error("This browser has no canvas to draw in.");
    this.#context = context;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.focus();
      canvas.setPointerCapture(event.pointerId);
      this.#begin(this.#place(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.#isDown || !canvas.hasPointerCapture(event.pointerId)) return;
      for (const part of event.getCoalescedEvents?.() ?? [event]) this.#extend(this.#place(part));
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.#lift());
    canvas.addEventListener("keydown", (event) => this.#press(event));
    canvas.addEventListener("focus", () => this.#showPen());
    canvas.addEventListener("blur", () => {
      this.#lift();
      this.#pen.hidden = true;
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  /** How strong each place is, 0 to 255, row by row. */
  get ink(): Uint8Array {
    const { data } = this.#context.getImageData(0, 0, SIDE, SIDE);
    return Uint8Array.from({ length: SIDE * SIDE }, (_, index) => data[4 * index + 3] ?? 0);
  }

  get isEmpty(): boolean {
    return this.#strokes.length === 0;
  }

  clear(): void {
    this.#lift();
    this.#strokes = [];
    this.#paint();
    this.#changed();
  }

  #place({ offsetX, offsetY }: PointerEvent): Point {
    const { clientWidth, clientHeight } = this.#canvas;
    return [(offsetX / clientWidth) * SIDE, (offsetY / clientHeight) * SIDE];
  }

  #begin(at: Point): void {
    this.#isDown = true;
    this.#strokes.push([at]);
    this.#extend(at);
  }

  #extend(to: Point): void {
    this.#at = to;
    this.#strokes.at(-1)?.push(to);
    this.#paint();
    this.#showPen();
    this.#changed();
  }

  #lift(): void {
    this.#isDown = false;
  }

  #press(event: KeyboardEvent): void {
    const arrow = ARROWS[event.key];
    if (arrow !== undefined) {
      const [x, y] = [0, 1].map((axis) => Math.min(SIDE, Math.max(0, (this.#at[axis] ?? 0) + (arrow[axis] ?? 0))));
      this.#at = [x ?? 0, y ?? 0];
      if (this.#isDown) this.#extend(this.#at);
    } else if (event.key === " ") {
      if (this.#isDown) this.#lift();
      else this.#begin(this.#at);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.clear();
    } else {
      return;
    }
    event.preventDefault();
    this.#showPen();
  }

  /** Where the keyboard would draw. */
  #showPen(): void {
    this.#pen.hidden = !this.#canvas.matches(":focus-visible");
    this.#pen.classList.toggle("down", this.#isDown);
    const [x, y] = this.#at;
    this.#pen.style.left = `${(100 * x) / SIDE}%`;
    this.#pen.style.top = `${(100 * y) / SIDE}%`;
  }

  #paint(): void {
    const context = this.#context;
    context.clearRect(0, 0, SIDE, SIDE);
    context.strokeStyle = getComputedStyle(this.#canvas).color;
    context.lineWidth = STROKE;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.#strokes) {
      context.beginPath();
      stroke.forEach(([x, y], index) => (index === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
      context.stroke();
    }
  }
}
