// What the notebook gives to a widget, and what the kernel keeps for it.

import type { Planned } from "../../page/src/engine/types";

/** Values that the kernel and all views of a widget share. */
export interface Model<Traits> {
  get<K extends keyof Traits>(name: K): Traits[K];
  set<K extends keyof Traits>(name: K, value: Traits[K]): void;
  /** Sends what was set. While the kernel hasn't answered, a later value replaces an earlier one that waits. */
  save_changes(): void;
  on(event: `change:${string & keyof Traits}`, callback: () => void): void;
  off(event: `change:${string & keyof Traits}`, callback: () => void): void;
}

/** What one block of the model, or several that take the same, come to. */
export interface Layer {
  /** First and last block; `null` for what is outside of blocks. */
  blocks: [first: number, last: number] | null;
  weight: number;
  gradient: number;
  optimizer: number;
  /** Bytes of activations that the forward pass leaves for the backward pass. */
  kept: number;
  forward_s: number;
  backward_s: number;
  recompute_s: number;
  update_s: number;
}

/** A plan, and what a notebook says of it besides the map. */
export type NotebookPlan = Planned & {
  budget_bytes: number | null;
  layers: Layer[];
};

/** Words, each once, and the place of each row's. */
export interface Words {
  words: string[];
  at: DataView;
}

/** A plan as columns. Those that aren't words are numbers, as bytes. */
export interface Columns {
  figures: Omit<NotebookPlan, "program">;
  ops: { op: Words; name: string[]; phase: Words; seconds: DataView; live: DataView };
  tensors: {
    name: string[];
    type: Words;
    class: Words;
    offset: DataView;
    bytes: DataView;
    birth: DataView;
    death: DataView;
    kept: DataView;
    /** NaN where the tensor can't be made once more. */
    again_s: DataView;
    /** How many ops read each, and then which, tensor by tensor. */
    readers: DataView;
    read_by: DataView;
  };
}

export interface PlanTraits {
  kind: "plan";
  plan: Columns;
  /** Bytes of the smallest plan, and of the fastest. */
  range: [smallest: number, fastest: number];
  /** What the slider asks for. */
  budget: number | null;
  /** Why there's no plan within it. */
  error: string;
}

export interface CompareTraits {
  kind: "compare";
  first: Columns;
  second: Columns;
  names: [first: string, second: string];
}

export interface RunTraits {
  kind: "run";
  figures: RunFigures;
  /** Step and loss, by turns. */
  losses: DataView;
  heldout: DataView;
}

export interface RunFigures {
  step: number;
  loss: number | null;
  heldout: number | null;
  /** Seconds of the last step. */
  step_s: number | null;
  planned_bytes: number;
  measured_bytes: number;
  by_class: Planned["by_class"];
}

export type Traits = PlanTraits | CompareTraits | RunTraits;

/** A view of a widget in a cell's output. */
export interface View {
  /** Paints in the colours that the style has now. */
  restyle(): void;
  dispose(): void;
}
