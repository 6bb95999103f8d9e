// What the wasm module takes and gives, and what the page and its worker say to each other.

import type { Setup } from "../setup";

export type DeviceChoice = "auto" | "webgpu" | "cpu";

export const CLASSES = [
  "weight",
  "frozen",
  "optimizer",
  "gradient",
  "activation",
  "workspace",
  "input",
] as const;
export type TensorClass = (typeof CLASSES)[number];

/** Rows of the bytes at the peak: the classes, and last what no tensor has, alignment and holes. */
export const ROWS = [...CLASSES, "gaps"] as const;

export type PeakRow = (typeof ROWS)[number];

/** Bytes at the peak of each class, and of gaps. They add up to the peak. */
export type ByClass = Record<PeakRow, number>;

/** The class that the wasm module exports. Every text is JSON. */
export interface Engine {
  info(): string;
  plan(setup: string): string;
  /** The setup that continues a checkpoint. */
  setup_of(checkpoint: Uint8Array): string;
  /** Names of the files that a run of this setup needs and that weren't given yet. */
  needs(setup: string): string;
  give(name: string, file: Uint8Array): void;
  start(setup: string, text?: Uint8Array, checkpoint?: Uint8Array): Promise<string>;
  /**
   * Trains `count` steps: records of all on the processor, and of the last alone on WebGPU, where reading a loss
   * waits for the GPU.
   */
  step(count: number): Promise<string>;
  evaluate(): Promise<number>;
  accuracy(): Promise<number>;
  /** What the model takes a drawing of rows of `width` places for: a `Seen`, or null where nothing is drawn. */
  classify(ink: Uint8Array, width: number): Promise<string>;
  sample(prompt: string, tokens: number, temperature: number, seed: number): Promise<string>;
  checkpoint(): Promise<Uint8Array>;
  memory(): string;
  lose_device(at: string): void;
  recoveries(): number;
  close(): void;
}

export interface EngineClass {
  open(device: DeviceChoice, defaultLimits: boolean): Promise<Engine>;
}

export interface Info {
  device: "webgpu" | "cpu";
  name: string;
  /** Why it isn't WebGPU. */
  reason: string | null;
  presets: { name: string; setup: unknown }[];
  largest_fitting_preset: string | null;
}

export type Phase = "forward" | "backward" | "recompute" | "update";

/** One op of a program. */
export interface PlanOp {
  op: string;
  name: string;
  phase: Phase;
  /** Predicted. */
  seconds: number;
  /** Bytes in use meanwhile. */
  live: number;
}

export interface PlanTensor {
  name: string;
  type: string;
  class: TensorClass;
  offset: number;
  bytes: number;
  birth: number;
  /** The last op that it's needed for. */
  death: number;
  /** Whether it's kept between steps; else the op of its birth makes it. */
  kept: boolean;
  read_by: number[];
  /** Predicted seconds of making it once more; `null` where the step can't. */
  again_s: number | null;
}

/** What is run once or several times in a training step. */
export interface Program {
  name: string;
  ops: PlanOp[];
  tensors: PlanTensor[];
}

/** What the engine tells of a plan. */
export interface Plan {
  peak_bytes: number;
  lower_bound_bytes: number;
  persistent_bytes: number;
  by_class: ByClass;
  /** Where the peak is and what takes its bytes, after "the peak is". */
  why: string;
  plan_ms: number;
  /** Predicted seconds of a step. */
  step_s: number;
  parameters: number;
  /** Of the tab's own memory, for what the GPU needn't hold. */
  offloaded_bytes: number;
  choices: {
    micro_batch: number;
    accumulation: number;
    checkpoint: string;
    /** Rows of logits at once; 0 is all. */
    loss_chunk: number;
  };
  fits: boolean;
  /** Of the plans that were tried; where none fits, of all. */
  smallest_seen_bytes: number;
  nearest: unknown;
  programs: Program[];
}

/** A plan with the program that is shown: the one of the peak. */
export type Planned = Omit<Plan, "programs"> & { program: Program };

export interface Started {
  step: number;
  predicted_bytes: number;
  allocated_bytes: number;
  vocab: number;
}

export interface StepRecord {
  step: number;
  loss: number;
  lr: number;
  grad_norm: number;
  tokens: number;
  /** Seconds of a step, over those since the last record. */
  step_s: number;
  /** Tokens of a step. */
  step_tokens: number;
  updated: boolean;
}

/** A drawing as the model sees it, and the probability of each class. */
export interface Seen {
  /** Pixels of a row. */
  width: number;
  /** Rows of pixels, 0 to 255. */
  pixels: number[];
  classes: [name: string, probability: number][];
}

export interface Memory {
  predicted_bytes: number;
  allocated_bytes: number;
  wasm_heap_bytes: number;
  host_copy_bytes: number;
}

/** Why a run was refused. */
export interface Refusal {
  what: string;
  smallest_bytes: number;
  nearest: unknown;
}

/** Points of the curves and the newest samples, kept beside a saved checkpoint. */
export interface History {
  losses: [step: number, loss: number][];
  heldout: [step: number, loss: number][];
  samples: [step: number, text: string][];
}

/** What lies in the browser's private file system. */
export interface SavedRun {
  step: number;
  setup: Setup;
  bytes: number;
  /** Milliseconds since 1970. */
  at: number;
  history: History;
}

export interface StartRequest {
  setup: Setup;
  text: Uint8Array | null;
  /** "saved" is the run in the browser's private file system, "current" the one in progress. */
  checkpoint: Uint8Array | "saved" | "current" | null;
}

/** What the page may ask of the worker. */
export interface Methods {
  open(device: DeviceChoice, defaultLimits: boolean): Promise<Info>;
  plan(setup: Setup): Promise<Planned>;
  setupOf(checkpoint: Uint8Array): Promise<unknown>;
  start(request: StartRequest): Promise<Started & { history: History }>;
  run(): Promise<void>;
  pause(): Promise<void>;
  stop(): Promise<void>;
  single(): Promise<void>;
  classify(ink: Uint8Array, width: number): Promise<Seen | null>;
  save(): Promise<void>;
  download(): Promise<Uint8Array>;
  saved(): Promise<SavedRun | null>;
  discard(): Promise<void>;
  autosave(seconds: number): Promise<void>;
  lose(at: string): Promise<void>;
}

export type Method = keyof Methods;

/** What the worker says unasked. */
export type Event =
  | { event: "steps"; records: StepRecord[]; memory: Memory; recoveries: number }
  | { event: "heldout"; step: number; loss: number; accuracy: number | null }
  | { event: "sample"; step: number; text: string }
  | { event: "saved"; step: number; bytes: number; at: number }
  | { event: "unsaved"; message: string }
  | { event: "stopped"; reason: "paused" | "done" }
  | { event: "failed"; message: string };

export interface Call {
  id: number;
  method: Method;
  args: unknown[];
}

export type Reply =
  | { id: number; ok: true; value: unknown }
  | { id: number; ok: false; message: string };
