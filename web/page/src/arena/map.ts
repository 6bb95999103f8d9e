// The arena as a map that can be pointed at and walked with the keyboard.

import type { Planned, TensorClass } from "../engine/types";
import { type Cursor, showDetail } from "./detail";
import { aliveAt, at, peakStep, tensorAt } from "./geometry";
import { type Scene, type Theme, frameOf, paintCursor, paintScene, themeOf } from "./paint";

const KEYS = "Left and right arrow keys change the step, up and down the tensor.";

/** Free space above the highest line. */
const HEADROOM = 1.07;

export class ArenaMap {
  readonly #host: HTMLElement;
  readonly #scene: HTMLCanvasElement;
  readonly #overlay: HTMLCanvasElement;
  readonly #detail: HTMLElement;
  #theme: Theme;
  #planned: Planned | null = null;
  #budget: number | null = null;
  #top = 0;
  #highlight: TensorClass | null = null;
  #cursor: Cursor | null = null;
  #queued = 0;
  readonly #ended = new AbortController();

  /** Draws into `host`; `detail` gets what the map points at in words. `what` names it to those who can't see it. */
  constructor(host: HTMLElement, detail: HTMLElement, what = "Tensors of one training step") {
    this.#host = host;
    this.#detail = detail;
    host.classList.add("arena");
    host.tabIndex = 0;
    host.role = "application";
    host.ariaRoleDescription = "map of the arena";
    host.ariaLabel = `${what}: time to the right, offsets upwards. ${KEYS}`;
    host.setAttribute("aria-describedby", detail.id);
    showDetail(detail, null, null);
    this.#scene = document.createElement("canvas");
    this.#overlay = document.createElement("canvas");
    for (const canvas of [this.#scene, this.#overlay]) canvas.setAttribute("aria-hidden", "true");
    host.append(this.#scene, this.#overlay);
    this.#theme = themeOf(host);
    const { signal } = this.#ended;
    const resized = new ResizeObserver(() => this.#repaint());
    resized.observe(host);
    // Nothing tells that what a browser had left out gets the size back that it had before.
    const seen = new IntersectionObserver(() => this.#repaint());
    seen.observe(host);
    signal.addEventListener("abort", () => {
      resized.disconnect();
      seen.disconnect();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle(), { signal });
    void document.fonts.ready.then(() => this.#repaint());
    host.addEventListener("pointermove", (event) => this.#point(event), { signal });
    host.addEventListener("pointerdown", (event) => this.#point(event), { signal });
    host.addEventListener("pointerleave", () => {
      if (!host.matches(":focus")) this.#move(null);
    }, { signal });
    host.addEventListener("keydown", (event) => this.#key(event), { signal });
    host.addEventListener("focus", () => {
      if (this.#cursor === null && host.matches(":focus-visible")) this.#toPeak();
    }, { signal });
    host.addEventListener("blur", () => this.#move(null), { signal });
  }

  /** Paints in the colours that the host's style has now. */
  restyle(): void {
    this.#theme = themeOf(this.#host);
    this.#repaint();
  }

  /** Lets go of the host. */
  dispose(): void {
    cancelAnimationFrame(this.#queued);
    this.#ended.abort();
  }

  /** Shows a plan. `top` is the highest that the axis must reach. */
  show(planned: Planned, budget: number | null, top: number): void {
    this.#planned = planned;
    this.#budget = budget;
    this.#top = Math.max(top, planned.peak_bytes);
    this.#cursor = null;
    showDetail(this.#detail, planned, null);
    this.#repaint();
  }

  /** Brings one class out. */
  highlight(name: TensorClass | null): void {
    this.#highlight = name;
    this.#repaint();
  }

  #repaint(): void {
    cancelAnimationFrame(this.#queued);
    this.#queued = requestAnimationFrame(() => {
      // Left out for now.
      if (this.#host.clientWidth === 0) return;
      const ratio = window.devicePixelRatio || 1;
      for (const canvas of [this.#scene, this.#overlay]) {
        const width = Math.round(this.#host.clientWidth * ratio);
        const height = Math.round(this.#host.clientHeight * ratio);
        if (canvas.width !== width) canvas.width = width;
        if (canvas.height !== height) canvas.height = height;
      }
      const scene = this.#view();
      const context = this.#scene.getContext("2d");
      if (scene !== null && context !== null) paintScene(context, scene, this.#theme, ratio);
      this.#repaintCursor();
    });
  }

  #repaintCursor(): void {
    const scene = this.#view();
    const context = this.#overlay.getContext("2d");
    if (scene === null || context === null) return;
    paintCursor(context, scene, this.#theme, window.devicePixelRatio || 1, this.#cursor);
  }

  #view(): Scene | null {
    const planned = this.#planned;
    if (planned === null) return null;
    const { clientWidth, clientHeight } = this.#host;
    const frame = frameOf(clientWidth, clientHeight, planned.program.ops.length, this.#top * HEADROOM);
    return { planned, frame, budget: this.#budget, highlight: this.#highlight };
  }

  #move(cursor: Cursor | null): void {
    if (cursor?.step === this.#cursor?.step && cursor?.tensor === this.#cursor?.tensor) return;
    this.#cursor = cursor;
    this.#repaintCursor();
    showDetail(this.#detail, this.#planned, cursor);
  }

  #point(event: PointerEvent): void {
    const scene = this.#view();
    if (scene === null) return;
    const place = at(scene.frame, event.offsetX, event.offsetY);
    if (place === null) {
      this.#move(null);
      return;
    }
    const { step, offset } = place;
    this.#move({ step, tensor: tensorAt(scene.planned.program.tensors, step, offset) });
  }

  #toPeak(): void {
    const planned = this.#planned;
    if (planned === null) return;
    const step = peakStep(planned.program.ops);
    const alive = aliveAt(planned.program.tensors, step);
    const transient = alive.filter((index) => planned.program.tensors[index]?.kept === false);
    const largest = (list: number[]): number | null =>
      list.reduce<number | null>((best, index) => {
        const size = planned.program.tensors[index]?.bytes ?? 0;
        return best === null || size > (planned.program.tensors[best]?.bytes ?? 0) ? index : best;
      }, null);
    this.#move({ step, tensor: largest(transient) ?? largest(alive) });
  }

  /** Left and right change the step, up and down the tensor. */
  #key(event: KeyboardEvent): void {
    const planned = this.#planned;
    if (planned === null || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = planned.program.ops.length - 1;
    const from = this.#cursor ?? { step: peakStep(planned.program.ops), tensor: null };
    const stride = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
    const sideways = { ArrowLeft: -stride, ArrowRight: stride, Home: -last, End: last }[event.key];
    const upwards = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") {
      this.#move(null);
    } else if (sideways !== undefined) {
      const step = Math.min(last, Math.max(0, from.step + sideways));
      this.#move({ step, tensor: this.#nearest(planned, step, from.tensor) });
    } else if (upwards !== undefined) {
      const alive = aliveAt(planned.program.tensors, from.step);
      const index = from.tensor === null ? 0 : alive.indexOf(from.tensor) + upwards;
      const tensor = alive[Math.min(alive.length - 1, Math.max(0, index))] ?? null;
      this.#move({ step: from.step, tensor });
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The same tensor where it's still alive, else the one in its place. */
  #nearest(planned: Planned, step: number, tensor: number | null): number | null {
    if (tensor === null) return null;
    const offset = planned.program.tensors[tensor]?.offset ?? 0;
    const alive = aliveAt(planned.program.tensors, step);
    if (alive.includes(tensor)) return tensor;
    return tensorAt(planned.program.tensors, step, offset) ?? alive.at(-1) ?? null;
  }
}
