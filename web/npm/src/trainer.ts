// A run: steps, evaluation, text, checkpoints.

import { Queue } from "../../page/src/engine/queue";
import type { StepRecord } from "../../page/src/engine/types";
import { Disposed, TightropeError } from "./errors";
import { Generations, type GenerateOptions } from "./generation";
import { type Device, type EngineOptions, type Link, type Memory, type Opened, memoryOf, open } from "./link";
import { Plan } from "./plan";
import type { HostEvent } from "./protocol";
import { type SavedRun, loadRun, lockRun, saveRun } from "./runs";
import { type Asked, type Settings, asked, merged } from "./settings";

export type { GenerateOptions };

export interface TrainerOptions extends EngineOptions {
  /**
   * Name under which the browser keeps the run. It's saved by `save()`, at its end and when the tab is hidden; only one
   * trainer at a time can have it.
   */
  run?: string;
  /** Saves the run also whenever this many seconds have passed, between two steps. */
  saveEveryS?: number;
}

/** What a step came to. */
export interface Step {
  /** Steps done, from 1. */
  step: number;
  /** Mean loss, in nats a token. */
  loss: number;
  lr: number;
  /** Gradient norm before clipping. */
  gradNorm: number;
  /** Tokens since the start of the run. */
  tokens: number;
  /** Seconds of a step, over those since the last record. */
  stepS: number;
  tokensPerS: number;
  /** Whether the weights changed: loss and gradient norm are finite. */
  updated: boolean;
}

export interface Evaluation {
  /** On held-out data, in nats a token. */
  loss: number;
  perplexity: number;
  /** Part of held-out problems that are answered exactly; `null` where the data is text. */
  accuracy: number | null;
}

/** What a trainer says unasked. */
export interface TrainerEvents {
  /** There is no WebGPU, so that it trains on the CPU. */
  fallback: CustomEvent<{ reason: string }>;
  /** The device was lost, and another took its place. The run goes on from its copy: no step is lost, no number differs. */
  devicelost: CustomEvent<{ step: number; recoveries: number }>;
  /** The browser stops the tab. */
  sleep: CustomEvent<{ step: number }>;
  /** The tab goes on, and the run with it. */
  wake: CustomEvent<{ step: number; seconds: number }>;
  /** The run was saved in the browser. */
  saved: CustomEvent<SavedRun>;
  /** The run wasn't saved by itself, for lack of space for one; training goes on. */
  unsaved: CustomEvent<{ error: Error }>;
}

/** A device with the run on it. */
interface Running extends Opened {
  plan: Plan;
  isText: boolean;
}

/**
 * Trains a model. Nothing is opened before the first call that needs it, so that listeners hear everything.
 *
 * ```js
 * const trainer = new Trainer({ train: { steps: 100 } });
 * for await (const { step, loss } of trainer) console.log(step, loss);
 * ```
 */
export class Trainer extends EventTarget {
  readonly #settings: Settings;
  readonly #options: TrainerOptions;
  readonly #ended = new AbortController();
  /** One save at a time. */
  readonly #saves = new Queue();
  readonly #generations = new Generations(async () => (await this.#running()).link);
  /** Gives the bytes that the run goes on from, once its name is taken. */
  #source: (() => Promise<Blob>) | null = null;
  #opened: Promise<Running> | null = null;
  #link: Link | null = null;
  #release: () => void = () => undefined;
  #step = 0;
  #savedStep = 0;
  #saveAt = Number.POSITIVE_INFINITY;

  constructor(settings: Settings = {}, options: TrainerOptions = {}) {
    super();
    this.#settings = settings;
    this.#options = options;
  }

  /** Goes on from a checkpoint, of this package or of the command, with some settings changed. */
  static resume(checkpoint: Blob, changes: Settings = {}, options: TrainerOptions = {}): Trainer {
    const trainer = new Trainer(changes, options);
    trainer.#source = async () => checkpoint;
    return trainer;
  }

  /** Goes on with a run that the browser keeps. */
  static load(run: string, changes: Settings = {}, options: TrainerOptions = {}): Trainer {
    const trainer = new Trainer(changes, { ...options, run });
    trainer.#source = () => loadRun(run);
    return trainer;
  }

  /** Opens the device, plans and allocates. Other calls do it where it isn't done. */
  async ready(): Promise<void> {
    await this.#running();
  }

  /** Steps that are done. */
  get step(): number {
    return this.#step;
  }

  async device(): Promise<Device> {
    return (await this.#running()).device;
  }

  /** The plan of the run, which is what was allocated. */
  async plan(): Promise<Plan> {
    return (await this.#running()).plan;
  }

  async memory(): Promise<Memory> {
    return memoryOf(await (await this.#running()).link.call("memory"));
  }

  /** Trains to the last step. A loop that is left can be taken up again. */
  [Symbol.asyncIterator](): AsyncGenerator<Step, void, undefined> {
    return this.steps();
  }

  /**
   * As the trainer itself, with one record for each `every` steps. Reading a loss waits for the GPU, so that larger
   * numbers are faster there.
   */
  async *steps(every = 1): AsyncGenerator<Step, void, undefined> {
    for (;;) {
      const record = await (await this.#running()).link.call("step", every);
      if (record === null) break;
      this.#step = record.step;
      yield stepOf(record);
      if (performance.now() >= this.#saveAt) await this.#saveQuietly();
    }
    await this.#saveQuietly();
  }

  /** Loss on held-out data. */
  async evaluate(): Promise<Evaluation> {
    const { link, isText } = await this.#running();
    const loss = await link.call("evaluate");
    const accuracy = isText ? null : await link.call("accuracy");
    return { loss, perplexity: Math.exp(loss), accuracy };
  }

  /** What the model continues `prompt` with, piece by piece. A reader that leaves ends it. */
  generate(prompt: string, options: GenerateOptions = {}): ReadableStream<string> {
    return this.#generations.start(prompt, options);
  }

  /** The run as a file, from which `Trainer.resume` and `tightrope train --resume` go on. */
  async checkpoint(): Promise<Blob> {
    const bytes = await (await this.#running()).link.call("checkpoint");
    return new Blob([bytes], { type: "application/x-tar" });
  }

  /** Saves the run in the browser, under the name in the options. */
  save(): Promise<SavedRun> {
    const { run } = this.#options;
    if (run === undefined) {
      return Promise.reject(new TightropeError("the run has no name to be saved under: give `run` in the options"));
    }
    return this.#saves.run(async () => {
      const checkpoint = await this.checkpoint();
      // Read now, since the step under way at the call is in the checkpoint.
      const step = this.#step;
      const saved = await saveRun(run, step, checkpoint);
      this.#savedStep = step;
      this.#dispatch("saved", saved);
      return saved;
    });
  }

  /** Makes the device go away once, to try how a page takes it: at "forward", "backward", "update", "readback" and others. */
  async loseDevice(moment = "backward"): Promise<void> {
    await (await this.#running()).link.call("lose", moment);
  }

  /** Frees the device, the memory and the run's name. What waits is rejected with `Disposed`. */
  dispose(): void {
    this.#ended.abort();
    this.#close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
  }

  #close(): void {
    this.#link?.close();
    this.#link = null;
    this.#release();
    this.#release = () => undefined;
  }

  #running(): Promise<Running> {
    if (this.#ended.signal.aborted) return Promise.reject(new Disposed());
    this.#opened ??= this.#start().catch((error: unknown) => {
      // What failed may go well another time: a run that is free again, a device that is back.
      this.#close();
      this.#opened = null;
      throw error;
    });
    return this.#opened;
  }

  async #start(): Promise<Running> {
    const { run, device } = this.#options;
    if (run !== undefined) this.#release = await lockRun(run);
    const source = await this.#source?.();
    const opened = await open(this.#options, (event) => this.#hear(event));
    const { link } = opened;
    this.#link = link;
    if (this.#ended.signal.aborted) throw new Disposed();
    const reason = opened.device.kind === "cpu" && device !== "cpu" ? opened.device.reason : null;
    if (reason !== null) this.#dispatch("fallback", { reason });
    const checkpoint = source === undefined ? null : new Uint8Array(await source.arrayBuffer());
    const { json, text, isText } = await this.#asked(link, checkpoint);
    const started = await link.call("start", { settings: json, text, checkpoint });
    this.#step = started.step;
    this.#savedStep = started.step;
    this.#watch();
    return { ...opened, isText, plan: new Plan(await link.call("plan", json)) };
  }

  async #asked(link: Link, checkpoint: Uint8Array | null): Promise<Asked> {
    if (checkpoint === null) return asked(this.#settings);
    return asked(merged(await link.call("settingsOf", checkpoint), this.#settings));
  }

  #hear(event: HostEvent): void {
    if (event.event === "piece") this.#generations.hear(event.id, event.text);
    else this.#dispatch("devicelost", { step: this.#step, recoveries: event.recoveries });
  }

  /** Listens to what happens to the tab. */
  #watch(): void {
    this.#postponeSave();
    const { signal } = this.#ended;
    const page = globalThis.document as Document | undefined;
    let since = Date.now();
    page?.addEventListener("visibilitychange", () => { if (page.hidden) void this.#saveQuietly(); }, { signal });
    page?.addEventListener("freeze", () => {
      since = Date.now();
      this.#dispatch("sleep", { step: this.#step });
    }, { signal });
    page?.addEventListener("resume", () => {
      this.#dispatch("wake", { step: this.#step, seconds: (Date.now() - since) / 1000 });
    }, { signal });
  }

  #postponeSave(): void {
    const { saveEveryS = Number.POSITIVE_INFINITY } = this.#options;
    this.#saveAt = performance.now() + saveEveryS * 1000;
  }

  /** Saves a run that has a name and went on since it was saved. */
  async #saveQuietly(): Promise<void> {
    this.#postponeSave();
    if (this.#options.run === undefined || this.#step === this.#savedStep) return;
    try {
      await this.save();
    } catch (error) {
      if (!this.#ended.signal.aborted) this.#dispatch("unsaved", { error: error as Error });
    }
  }

  #dispatch<Name extends keyof TrainerEvents>(name: Name, detail: TrainerEvents[Name]["detail"]): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Listeners know what they hear. */
export interface Trainer {
  addEventListener<Name extends keyof TrainerEvents>(
    name: Name,
    listener: (event: TrainerEvents[Name]) => void,
    options?: AddEventListenerOptions | boolean,
  ): void;
  addEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: AddEventListenerOptions | boolean,
  ): void;
  removeEventListener<Name extends keyof TrainerEvents>(
    name: Name,
    listener: (event: TrainerEvents[Name]) => void,
    options?: EventListenerOptions | boolean,
  ): void;
  removeEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: EventListenerOptions | boolean,
  ): void;
}

function stepOf(record: StepRecord): Step {
  return {
    step: record.step,
    loss: record.loss,
    lr: record.lr,
    gradNorm: record.grad_norm,
    tokens: record.tokens,
    stepS: record.step_s,
    tokensPerS: record.step_tokens / record.step_s,
    updated: record.updated,
  };
}
