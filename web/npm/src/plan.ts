// What a training step takes, as the engine predicts it.

import { peakProgram } from "../../page/src/arena/geometry";
import type { ByClass, Phase, Planned, Plan as Told, TensorClass } from "../../page/src/engine/types";
import type { Settings } from "./settings";

export type { ByClass, TensorClass };

/** One tensor of the step, and where it lies. */
export interface Tensor {
  name: string;
  /** Dtype and shape. */
  type: string;
  class: TensorClass;
  /** That of the op that makes it, or "kept" of what stays between steps. */
  phase: Phase | "kept";
  /** Where it begins in the arena. */
  offset: number;
  bytes: number;
  /** The ops that it lives from and to, counted as in `liveBytes`. */
  first: number;
  last: number;
}

/** What was chosen, by the settings or by the planner. */
export interface Choices {
  microBatch: number;
  /** Micro-batches in a step. */
  accumulation: number;
  /** What the backward pass recomputes, in words. */
  recompute: string;
  /** Rows of logits at once; 0 is all. */
  lossChunk: number;
}

export class Plan {
  /** Everything that the engine says of the plan, in its own words. `new Plan(report)` is the same plan again. */
  readonly report: Planned & Pick<Told, "programs"> & { budget_bytes?: number | null };

  constructor(report: Told) {
    this.report = { ...report, program: peakProgram(report.programs) };
  }

  /** Bytes that the step takes on the device, all in all. */
  get peakBytes(): number {
    return this.report.peak_bytes;
  }

  /** The most bytes that are alive at once: no plan of this order of ops takes fewer. */
  get lowerBoundBytes(): number {
    return this.report.lower_bound_bytes;
  }

  /** Bytes that the plan may take; `null` where nothing limits it. */
  get budgetBytes(): number | null {
    return this.report.budget_bytes ?? null;
  }

  /** Whether the budget is met. Where it isn't, this is the smallest plan that was found. */
  get fits(): boolean {
    return this.report.fits;
  }

  /** Of a plan that doesn't fit: the nearest settings that do, where some were found. */
  get suggestion(): Settings | null {
    return this.report.nearest as Settings | null;
  }

  /** Where the peak is and what takes its bytes: the end of a sentence that begins with "the peak is". */
  get why(): string {
    return this.report.why;
  }

  /** Bytes at the peak by class of tensor, and of gaps. They add up to the peak. */
  get byClass(): ByClass {
    return this.report.by_class;
  }

  get choices(): Choices {
    const { micro_batch, accumulation, checkpoint, loss_chunk } = this.report.choices;
    return { microBatch: micro_batch, accumulation, recompute: checkpoint, lossChunk: loss_chunk };
  }

  get predictedStepS(): number {
    return this.report.step_s;
  }

  /** Seconds that planning took. */
  get planS(): number {
    return this.report.plan_ms / 1000;
  }

  /** Parameters of the model. */
  get parameters(): number {
    return this.report.parameters;
  }

  /** Every tensor of the program with the peak. */
  get tensors(): Tensor[] {
    const { ops, tensors } = this.report.program;
    return tensors.map((tensor) => ({
      name: tensor.name,
      type: tensor.type,
      class: tensor.class,
      phase: tensor.kept ? "kept" : (ops[tensor.birth]?.phase ?? "kept"),
      offset: tensor.offset,
      bytes: tensor.bytes,
      first: tensor.birth,
      last: tensor.death,
    }));
  }

  /** Bytes that are alive at each op of the program with the peak. */
  get liveBytes(): number[] {
    return this.report.program.ops.map(({ live }) => live);
  }

  toJSON(): Plan["report"] {
    return this.report;
  }
}
