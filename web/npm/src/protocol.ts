// What the engine takes and gives, and what the two sides of a worker say to each other.

import type { DeviceChoice, Engine as PageEngine, Info, Memory, Plan, Started, StepRecord } from "../../page/src/engine/types";
import type { Failure } from "./errors";
import type { Settings } from "./settings";

/** The class that the wasm module exports. Every text is JSON. */
export interface Engine extends PageEngine {
  generate(generation: Generation): Promise<void>;
}

export interface EngineClass {
  open(device: DeviceChoice, defaultLimits: boolean): Promise<Engine>;
}

/** Where the engine comes from, in a form that a worker can be sent. */
export type Wasm = string | BufferSource | WebAssembly.Module;

export interface Opening {
  wasm: Wasm;
  device: DeviceChoice;
  defaultLimits: boolean;
}

export interface Start {
  settings: string;
  text: Uint8Array | null;
  checkpoint: Uint8Array | null;
}

/** A prompt, and how to continue it. */
export interface Prompt {
  /** By which its pieces are told apart. */
  id: number;
  prompt: string;
  tokens: number;
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
}

/** A prompt with what takes the pieces, and says whether to go on. */
export interface Generation extends Prompt {
  piece(text: string): boolean;
}

/** What an engine can be asked. */
export interface Methods {
  open(opening: Opening): Promise<Info>;
  plan(settings: string): Promise<Plan>;
  /** The settings that continue a checkpoint. */
  settingsOf(checkpoint: Uint8Array): Promise<Settings>;
  start(start: Start): Promise<Started>;
  /** The last of `count` steps, or of those that are left; none where none is. */
  step(count: number): Promise<StepRecord | null>;
  evaluate(): Promise<number>;
  accuracy(): Promise<number>;
  generate(prompt: Prompt): Promise<void>;
  /** Ends a generation before its last token. */
  cancel(id: number): Promise<void>;
  checkpoint(): Promise<Uint8Array<ArrayBuffer>>;
  memory(): Promise<Memory>;
  lose(moment: string): Promise<void>;
}

export type Method = keyof Methods;

/** What an engine says unasked. */
export type HostEvent =
  | { event: "piece"; id: number; text: string }
  /** A device took the place of a lost one, for the `recoveries`-th time. */
  | { event: "recovered"; recoveries: number };

export interface Call {
  id: number;
  method: Method;
  args: unknown[];
}

export type Reply = { id: number; value: unknown } | { id: number; failure: Failure };
