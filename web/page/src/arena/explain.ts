// What there is to say about one tensor at one step.

import type { PlanOp, PlanTensor, Program } from "../engine/types";
import { bytes, duration, exact, percent } from "../format";

export interface Explanation {
  title: string;
  rows: [label: string, value: string][];
}

const WHOLE_RUN: Record<PlanTensor["class"], string> = {
  weight: "a weight: every step reads it, and the update writes it",
  frozen: "a frozen weight: steps read it, and none writes it",
  optimizer: "state of the optimizer: each update reads and writes it",
  gradient: "a sum over micro-batches: each adds to it, and the update reads it",
  activation: "kept from one program to the next",
  workspace: "scratch that every step uses again",
  input: "the host writes it before each step",
};

function stepText(ops: readonly PlanOp[], index: number): string {
  const step = ops[index];
  return step === undefined ? `step ${index}` : `step ${index} · ${step.op} (${step.phase})`;
}

/** Why a tensor is where it is, as the plan knows it. */
export function explain(program: Program, index: number, step: number): Explanation {
  const tensor = program.tensors[index] as PlanTensor;
  const rows: Explanation["rows"] = [
    ["Type", tensor.type],
    ["Class", tensor.class],
    ["Size", `${bytes(tensor.bytes)} · ${exact(tensor.bytes)} B`],
  ];
  const next = tensor.read_by.find((reader) => reader >= step) ?? null;
  if (tensor.kept) rows.push(["Kept", `For the whole run: ${WHOLE_RUN[tensor.class]}.`]);
  if (!tensor.kept) rows.push(["Made by", stepText(program.ops, tensor.birth)]);
  if (next !== null) {
    rows.push(["Read next by", stepText(program.ops, next)]);
  } else {
    const last = tensor.read_by.at(-1);
    if (last !== undefined) rows.push(["Last read by", stepText(program.ops, last)]);
  }
  if (!tensor.kept) {
    const first = tensor.birth;
    const length = tensor.death - first + 1;
    rows.push(["Alive", `Steps ${first} to ${tensor.death}, ${length} of ${program.ops.length}`]);
  }
  rows.push(["Recomputing", again(program, tensor)]);
  return { title: tensor.name, rows };
}

function again({ name, ops }: Program, { kept, again_s }: PlanTensor): string {
  if (again_s === null) return kept ? "Not possible: it is state." : "Not possible at its next use.";
  const whole = ops.reduce((sum, { seconds }) => sum + seconds, 0);
  const share = whole > 0 ? `, ${percent(again_s / whole)} of program “${name}”` : "";
  return `Would take ${duration(again_s)}${share}.`;
}
