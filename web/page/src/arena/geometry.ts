// Where tensors lie on the map: steps of the program to the right, offsets in the arena upwards.

import type { Phase, PlanOp, PlanTensor, Program } from "../engine/types";

/** The plot's area in CSS pixels, and what it spans. */
export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  steps: number;
  bytes: number;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Span {
  phase: Phase;
  from: number;
  /** The step after the last. */
  to: number;
}

export function xOf(frame: Frame, step: number): number {
  return frame.left + (step / Math.max(1, frame.steps)) * frame.width;
}

export function yOf(frame: Frame, offset: number): number {
  return frame.top + frame.height * (1 - offset / Math.max(1, frame.bytes));
}

/** The first step at which a tensor holds its bytes, and the one after its last. */
export function lifetime(tensor: PlanTensor, steps: number): [from: number, to: number] {
  return [tensor.birth, Math.min(steps, tensor.death + 1)];
}

export function boxOf(frame: Frame, tensor: PlanTensor): Box {
  const [from, to] = lifetime(tensor, frame.steps);
  const x = xOf(frame, from);
  const y = yOf(frame, tensor.offset + tensor.bytes);
  return { x, y, width: xOf(frame, to) - x, height: yOf(frame, tensor.offset) - y };
}

/** `box` on whole device pixels, at least one wide and high. */
export function snapped(box: Box, ratio: number): Box {
  const x = Math.round(box.x * ratio);
  const y = Math.round(box.y * ratio);
  const right = Math.round((box.x + box.width) * ratio);
  const bottom = Math.round((box.y + box.height) * ratio);
  return { x, y, width: Math.max(1, right - x), height: Math.max(1, bottom - y) };
}

/** The step under `x`, and the offset under `y`; `null` outside the plot. */
export function at(frame: Frame, x: number, y: number): { step: number; offset: number } | null {
  const right = (x - frame.left) / frame.width;
  const up = 1 - (y - frame.top) / frame.height;
  if (right < 0 || right >= 1 || up < 0 || up >= 1) return null;
  return { step: Math.floor(right * frame.steps), offset: Math.floor(up * frame.bytes) };
}

/** Whether a tensor holds its bytes at `step`. */
export function isAlive(tensor: PlanTensor, step: number): boolean {
  return tensor.birth <= step && step <= tensor.death;
}

/** The tensor at a step and an offset: of several that share storage, the one that was made last. */
export function tensorAt(tensors: readonly PlanTensor[], step: number, offset: number): number | null {
  let found: number | null = null;
  let born = Number.NEGATIVE_INFINITY;
  tensors.forEach((tensor, index) => {
    const birth = tensor.kept ? -1 : tensor.birth;
    const inside = tensor.offset <= offset && offset < tensor.offset + tensor.bytes;
    if (inside && isAlive(tensor, step) && birth > born) {
      found = index;
      born = birth;
    }
  });
  return found;
}

/** Tensors that are alive at a step, the lowest first. */
export function aliveAt(tensors: readonly PlanTensor[], step: number): number[] {
  return tensors
    .map((_, index) => index)
    .filter((index) => isAlive(tensors[index] as PlanTensor, step))
    .sort((a, b) => (tensors[a] as PlanTensor).offset - (tensors[b] as PlanTensor).offset);
}

/** The first step with the most live bytes. */
export function peakStep(ops: readonly PlanOp[]): number {
  let peak = 0;
  ops.forEach(({ live }, step) => {
    if (live > (ops[peak]?.live ?? 0)) peak = step;
  });
  return peak;
}

/** The program with the most live bytes; of equals, the first. */
export function peakProgram(programs: readonly Program[]): Program {
  const peak = ({ ops }: Program): number => ops[peakStep(ops)]?.live ?? 0;
  const none: Program = { name: "none", ops: [], tensors: [] };
  return programs.reduce((best, program) => (peak(program) > peak(best) ? program : best), none);
}

/** Runs of steps of one phase. */
export function spans(ops: readonly PlanOp[]): Span[] {
  const found: Span[] = [];
  ops.forEach(({ phase }, step) => {
    const last = found.at(-1);
    if (last?.phase === phase) last.to = step + 1;
    else found.push({ phase, from: step, to: step + 1 });
  });
  return found;
}

/** The spans to label: recomputation goes with the backward pass that it alternates with. */
export function sections(ops: readonly PlanOp[]): { label: string; from: number; to: number }[] {
  const found: { phases: Set<Phase>; isBack: boolean; from: number; to: number }[] = [];
  for (const { phase, from, to } of spans(ops)) {
    const last = found.at(-1);
    const isBack = phase === "backward" || phase === "recompute";
    if (last !== undefined && isBack && last.isBack) {
      last.phases.add(phase);
      last.to = to;
    } else {
      found.push({ phases: new Set([phase]), isBack, from, to });
    }
  }
  return found.map(({ phases, from, to }) => ({ label: [...phases].sort().join(", "), from, to }));
}

const KIB = 1024;
const NICE = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const FINE = [0.1, 0.2, 0.25, 0.5];

/** Round numbers of bytes from 0 to `most`, at most `count` intervals. */
export function ticks(most: number, count: number): number[] {
  if (most <= 0) return [0];
  const unit = KIB ** Math.floor(Math.log(most) / Math.log(KIB));
  const steps = unit === 1 ? NICE : [...FINE, ...NICE];
  const step = (steps.find((step) => most / (step * unit) <= count) ?? KIB) * unit;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}
