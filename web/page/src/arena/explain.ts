// What there is to say about one tensor at one step.

import type { PlanStep, PlanTensor, Planned } from "../engine/types";
import { bytes, exact, flops, percent } from "../format";

export interface Explanation {
  title: string;
  rows: [label: string, value: string][];
}

const WHOLE_RUN: Record<PlanTensor["class"], string> = {
  weight: "a weight: every step reads it, and the update writes it",
  optimizer: "state of the optimizer: each update reads and writes it",
  gradient: "a sum over micro-batches: each adds to it, and the update reads it",
  activation: "kept from one program to the next",
  workspace: "scratch that every step uses again",
  input: "the host writes it before each step",
};

function stepText(steps: readonly PlanStep[], index: number): string {
  const step = steps[index];
  return step === undefined ? `step ${index}` : `step ${index} · ${step.op} (${step.phase})`;
}

/** Why a tensor is where it is, as the plan knows it. */
export function explain(planned: Planned, index: number, step: number): Explanation {
  const tensor = planned.tensors[index] as PlanTensor;
  const rows: Explanation["rows"] = [
    ["Type", tensor.type],
    ["Class", tensor.class],
    ["Size", `${bytes(tensor.bytes)} · ${exact(tensor.bytes)} B`],
  ];
  const next = tensor.read_by.find((reader) => reader >= step) ?? null;
  if (tensor.persistent) rows.push(["Kept", `For the whole run: ${WHOLE_RUN[tensor.class]}.`]);
  if (tensor.made_by !== null) rows.push(["Made by", stepText(planned.steps, tensor.made_by)]);
  if (next !== null) {
    rows.push(["Read next by", stepText(planned.steps, next)]);
  } else {
    const last = tensor.read_by.at(-1);
    if (last !== undefined) rows.push(["Last read by", stepText(planned.steps, last)]);
  }
  if (!tensor.persistent) {
    const first = tensor.birth;
    const length = tensor.death - first + 1;
    rows.push(["Alive", `Steps ${first} to ${tensor.death}, ${length} of ${planned.steps.length}`]);
  }
  rows.push(["Recomputing", recompute(planned, tensor)]);
  return { title: tensor.name, rows };
}

function recompute(planned: Planned, tensor: PlanTensor): string {
  if (tensor.recompute_flops === null) {
    return tensor.persistent ? "Not possible: it is state." : "Not possible at its next use.";
  }
  const whole = planned.steps.reduce((sum, { flops }) => sum + flops, 0);
  const share = whole > 0 ? `, ${percent(tensor.recompute_flops / whole)} of the step` : "";
  return `Would cost ${flops(tensor.recompute_flops)}${share}.`;
}
