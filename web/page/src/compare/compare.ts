// What differs between two plans.

import { type PeakRow, type Planned, ROWS } from "../engine/types";
import { bytes, duration, percent } from "../format";

/** The part of a plan that is compared. */
export type Comparable = Pick<Planned, "peak_bytes" | "by_class" | "step_s" | "choices">;

/** One number of both plans. */
export interface Figure {
  first: number;
  second: number;
  /** What the second has more than the first. */
  change: number;
  /** The change as a part of the first; `null` where the first has nothing. */
  share: number | null;
}

/** A choice that the plans differ in. */
export interface ChoicePair {
  name: string;
  first: string;
  second: string;
}

export interface Comparison {
  /** Bytes at the peak. */
  peak: Figure;
  /** Predicted seconds of a step. */
  step: Figure;
  /** Bytes at the peak of each class that one of the plans has, and of gaps. */
  classes: (Figure & { name: PeakRow })[];
  /** Choices that differ. */
  choices: ChoicePair[];
}

type Choices = Record<string, unknown>;

/** Choices as text, by name. `undefined` where a plan doesn't say. */
const CHOICES: readonly [name: string, text: (choices: Choices) => string | undefined][] = [
  ["Batch", ({ batch }) => said(batch)],
  ["Micro-batch", ({ micro_batch: size, accumulation: times }) => `${size} × ${times}`],
  ["Recomputed", ({ checkpoint }) => said(checkpoint)],
  ["Loss", ({ loss_chunk: rows }) => (rows === 0 ? "in one piece" : `in chunks of ${rows}`)],
  ["Precision", ({ precision }) => said(precision)],
  ["Optimizer state", ({ optimizer_bits: bits }) => said(bits, " bits")],
  ["Offloaded", ({ offload }) => listed(offload)],
  ["Gradients", ({ consume_gradients: consumed }) => (consumed === true ? "consumed as they are made" : "kept for the update")],
  ["LoRA rank", ({ lora }) => said((lora as { rank?: number } | null | undefined)?.rank)],
  ["Frozen", ({ freeze }) => listed(freeze)],
];

function said(value: unknown, unit = ""): string | undefined {
  return value === undefined || value === null ? undefined : `${value}${unit}`;
}

function listed(values: unknown): string {
  return Array.isArray(values) && values.length > 0 ? values.join(", ") : "nothing";
}

export function compare(first: Comparable, second: Comparable): Comparison {
  const size = (plan: Comparable, name: PeakRow): number => plan.by_class[name] ?? 0;
  const classes = ROWS.filter((name) => size(first, name) > 0 || size(second, name) > 0);
  const choices = CHOICES.map(([name, text]) => {
    const of = ({ choices }: Comparable): string => text(choices as unknown as Choices) ?? "–";
    return { name, first: of(first), second: of(second) };
  });
  return {
    peak: figure(first.peak_bytes, second.peak_bytes),
    step: figure(first.step_s, second.step_s),
    classes: classes.map((name) => ({ name, ...figure(size(first, name), size(second, name)) })),
    choices: choices.filter((choice) => choice.first !== choice.second),
  };
}

function figure(first: number, second: number): Figure {
  const change = second - first;
  return { first, second, change, share: first === 0 ? null : change / first };
}

/** A change of bytes: `−1.20 GiB (−23 %)`. */
export function bytesChange({ change, share }: Figure): string {
  return withShare(signed(change, bytes), share);
}

/** A change of seconds: `+12 ms (+4.1 %)`. */
export function secondsChange({ change, share }: Figure): string {
  return withShare(signed(change, duration), share);
}

/** A share below this isn't worth a number. */
const LEAST_SHARE = 0.001;

function withShare(text: string, share: number | null): string {
  return share === null || Math.abs(share) < LEAST_SHARE ? text : `${text} (${signed(share, percent)})`;
}

function signed(value: number, text: (value: number) => string): string {
  if (value === 0) return "no change";
  return (value > 0 ? "+" : "−") + text(Math.abs(value));
}

/** What the second plan is, in one sentence. */
export function sentence({ peak, step }: Comparison): string {
  const size = peak.change === 0 ? "as large" : `${bytes(Math.abs(peak.change))} ${peak.change < 0 ? "smaller" : "larger"}`;
  const share = Math.abs(step.share ?? 0);
  const speed = step.change === 0 ? "as fast" : `${percent(share)} ${step.change < 0 ? "faster" : "slower"}`;
  return `The second plan is ${size} and ${speed}.`;
}
