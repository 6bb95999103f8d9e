// Draws the map. All text and colours come from the page's style.

import { CLASSES, type PlanTensor, type Planned, type TensorClass } from "../engine/types";
import { bytes, roundBytes } from "../format";
import { type Box, type Frame, boxOf, sections, snapped, spans, ticks, xOf, yOf } from "./geometry";

export interface Theme {
  ink: string;
  muted: string;
  rule: string;
  surface: string;
  accent: string;
  font: string;
  classes: Record<TensorClass, string>;
}

export interface Scene {
  planned: Planned;
  frame: Frame;
  budget: number | null;
  highlight: TensorClass | null;
}

const GUTTER = { left: 64, right: 12, top: 20, bottom: 34 };
const INTERVALS = 5;
const PHASE_BAR = 4;
/** Rectangles smaller than this, in device pixels, get no seam. */
const SEAM_FROM = 4;
const DIMMED = 0.13;
/** Lines closer than this, in CSS pixels, share a label. */
const LABEL_HEIGHT = 15;

export function themeOf(element: Element): Theme {
  const style = getComputedStyle(element);
  const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: color("ink"),
    muted: color("muted"),
    rule: color("rule"),
    surface: color("surface"),
    accent: color("accent"),
    font: `11px ${color("mono")}`,
    classes: Object.fromEntries(
      CLASSES.map((name) => [name, color(`class-${name}`)]),
    ) as Theme["classes"],
  };
}

export function frameOf(width: number, height: number, steps: number, top: number): Frame {
  return {
    left: GUTTER.left,
    top: GUTTER.top,
    width: Math.max(1, width - GUTTER.left - GUTTER.right),
    height: Math.max(1, height - GUTTER.top - GUTTER.bottom),
    steps,
    bytes: top,
  };
}

/** Everything that changes with the plan only. */
export function paintScene(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  ratio: number,
): void {
  const { width, height } = context.canvas;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  paintGrid(context, scene.frame, theme, ratio);
  paintTensors(context, scene, theme, ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paintPhases(context, scene, theme);
  paintLines(context, scene, theme, ratio);
}

function paintGrid(context: CanvasRenderingContext2D, frame: Frame, theme: Theme, ratio: number): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = theme.font;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of ticks(frame.bytes, INTERVALS)) {
    const y = crisp(yOf(frame, tick), ratio);
    context.strokeStyle = theme.rule;
    context.lineWidth = 1 / ratio;
    line(context, frame.left, y, frame.left + frame.width, y);
    context.fillStyle = theme.muted;
    context.fillText(roundBytes(tick), frame.left - 8, y);
  }
}

function paintTensors(context: CanvasRenderingContext2D, scene: Scene, theme: Theme, ratio: number): void {
  context.setTransform(1, 0, 0, 1, 0, 0);
  for (const tensor of scene.planned.program.tensors) {
    const box = snapped(boxOf(scene.frame, tensor), ratio);
    const isDimmed = scene.highlight !== null && tensor.class !== scene.highlight;
    context.globalAlpha = isDimmed ? DIMMED : 1;
    context.fillStyle = theme.classes[tensor.class];
    context.fillRect(box.x, box.y, seamed(box.width), seamed(box.height));
  }
  context.globalAlpha = 1;
}

function seamed(length: number): number {
  return length >= SEAM_FROM ? length - 1 : length;
}

function paintPhases(context: CanvasRenderingContext2D, { planned, frame }: Scene, theme: Theme): void {
  const y = frame.top + frame.height + 6;
  const shades = { forward: 0.25, backward: 0.5, recompute: 0.8, update: 1 };
  context.textAlign = "left";
  context.textBaseline = "top";
  for (const { phase, from, to } of spans(planned.program.ops)) {
    const x = xOf(frame, from);
    context.globalAlpha = shades[phase];
    context.fillStyle = theme.muted;
    context.fillRect(x, y, Math.max(xOf(frame, to) - x - 1, 0.5), PHASE_BAR);
  }
  context.globalAlpha = 1;
  for (const { label, from, to } of sections(planned.program.ops)) {
    const x = xOf(frame, from);
    const isRoomy = xOf(frame, to) - x >= context.measureText(label).width + 8;
    if (isRoomy) context.fillText(label, x, y + PHASE_BAR + 6);
  }
}

/** Peak, lower bound and budget. All lines come before all labels, which stay readable where lines are close. */
function paintLines(context: CanvasRenderingContext2D, scene: Scene, theme: Theme, ratio: number): void {
  const { frame, planned } = scene;
  const budget = scene.budget !== null && scene.budget <= frame.bytes ? scene.budget : null;
  const right = frame.left + frame.width;
  const at = (bytes: number): number => crisp(yOf(frame, bytes), ratio);
  const [peak, bound] = [at(planned.peak_bytes), at(planned.lower_bound_bytes)];
  const gap = planned.peak_bytes - planned.lower_bound_bytes;
  context.lineWidth = 1;
  context.strokeStyle = theme.ink;
  line(context, frame.left, peak, right, peak);
  if (gap > 0) {
    context.setLineDash([2, 3]);
    line(context, frame.left, bound, right, bound);
    context.setLineDash([]);
  }
  if (budget !== null) {
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    line(context, frame.left, at(budget), right, at(budget));
  }
  const areTogether = Math.abs(peak - bound) < LABEL_HEIGHT;
  const peakText = `peak ${bytes(planned.peak_bytes)}`;
  if (gap === 0) label(context, `${peakText} = lower bound`, right, peak, theme.ink, theme);
  else if (areTogether) {
    label(context, `${peakText}, lower bound ${bytes(gap)} less`, right, peak, theme.ink, theme);
  } else {
    label(context, peakText, right, peak, theme.ink, theme);
    label(context, `lower bound ${bytes(planned.lower_bound_bytes)}`, right, bound, theme.ink, theme);
  }
  if (budget === null) return;
  const isClear = Math.abs(at(budget) - peak) >= LABEL_HEIGHT || frame.width > 420;
  if (isClear) label(context, `budget ${bytes(budget)}`, frame.left, at(budget), theme.accent, theme);
}

/** Text above a line, ending or starting at `x`, on a ground that keeps it readable. */
function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  color: string,
  theme: Theme,
): void {
  const isStart = color === theme.accent;
  const width = context.measureText(text).width + 8;
  const left = isStart ? x : x - width;
  context.fillStyle = theme.surface;
  context.globalAlpha = 0.86;
  context.fillRect(left, y - LABEL_HEIGHT - 1, width, LABEL_HEIGHT);
  context.globalAlpha = 1;
  context.fillStyle = color;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + 4, y - LABEL_HEIGHT / 2 - 0.5);
}

/** What follows the pointer: the step's line, the tensor's outline, and ticks where it's read. */
export function paintCursor(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  ratio: number,
  cursor: { step: number; tensor: number | null } | null,
): void {
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  if (cursor === null) return;
  const { frame, planned } = scene;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = crisp(xOf(frame, cursor.step + 0.5), ratio);
  context.strokeStyle = theme.ink;
  context.lineWidth = 1 / ratio;
  line(context, x, frame.top, x, frame.top + frame.height + 6 + PHASE_BAR);
  const tensor = cursor.tensor === null ? undefined : planned.program.tensors[cursor.tensor];
  if (tensor !== undefined) paintSelected(context, tensor, frame, theme, cursor.step);
}

function paintSelected(
  context: CanvasRenderingContext2D,
  tensor: PlanTensor,
  frame: Frame,
  theme: Theme,
  step: number,
): void {
  const box = boxOf(frame, tensor);
  outline(context, box, theme);
  const next = tensor.read_by.find((reader) => reader >= step);
  context.fillStyle = theme.ink;
  for (const reader of tensor.read_by) {
    const x = xOf(frame, reader + 0.5);
    const size = reader === next ? 5 : 2.5;
    context.beginPath();
    context.moveTo(x - size, box.y + box.height + size * 1.6);
    context.lineTo(x + size, box.y + box.height + size * 1.6);
    context.lineTo(x, box.y + box.height);
    context.fill();
  }
}

function outline(context: CanvasRenderingContext2D, box: Box, theme: Theme): void {
  context.strokeStyle = theme.surface;
  context.lineWidth = 4;
  context.strokeRect(box.x, box.y, box.width, box.height);
  context.strokeStyle = theme.ink;
  context.lineWidth = 2;
  context.strokeRect(box.x, box.y, box.width, box.height);
}

/** A coordinate at which a thin line covers whole device pixels. */
function crisp(value: number, ratio: number): number {
  return (Math.round(value * ratio) + 0.5) / ratio;
}

function line(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
