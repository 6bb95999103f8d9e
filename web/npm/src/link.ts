// The way to an engine: a worker of its own, or the caller's thread.

import type { DeviceChoice, Info, Memory as EngineMemory } from "../../page/src/engine/types";
import { Disposed, TightropeError, thrown } from "./errors";
import type { Call, HostEvent, Method, Methods, Reply, Wasm } from "./protocol";
import { wasmUrl, workerUrl } from "./urls.js";

export type { DeviceChoice };

/** Where the engine's module comes from: its address, its bytes, or the module itself. */
export type WasmSource = string | URL | BufferSource | WebAssembly.Module;

export interface EngineOptions {
  /** "auto" (the default) is WebGPU where there is an adapter, else the CPU. "webgpu" is refused where there is none. */
  device?: DeviceChoice;
  /** The engine's module; by default `tightrope.wasm` beside the package's script. */
  wasm?: WasmSource;
  /**
   * The script of the worker, by default `worker.js` beside the package's script. `false` runs the engine in the calling
   * thread, which is meant for workers of one's own: each step holds the thread up.
   */
  worker?: boolean | string | URL;
  /** Asks WebGPU only for what every adapter grants. */
  defaultLimits?: boolean;
}

/** The device of a trainer or planner. */
export interface Device {
  kind: "webgpu" | "cpu";
  /** For people. */
  name: string;
  /** Why it isn't WebGPU. */
  reason: string | null;
}

/** Bytes that a trainer holds. */
export interface Memory {
  /** The plan's peak. */
  predictedBytes: number;
  /** What the device allocated for the plan. */
  allocatedBytes: number;
  wasmHeapBytes: number;
  /** Copies of weights and optimizer state, from which a lost device is restored. */
  hostCopyBytes: number;
}

export interface Link {
  call<M extends Method>(method: M, ...args: Parameters<Methods[M]>): ReturnType<Methods[M]>;
  /** Ends the engine. Calls that wait are rejected. */
  close(): void;
}

/** A link to an engine that is open. */
export interface Opened {
  link: Link;
  info: Info;
  device: Device;
}

export async function open(options: EngineOptions, onEvent: (event: HostEvent) => void): Promise<Opened> {
  const { device = "auto", defaultLimits = false, wasm = wasmUrl() } = options;
  const link = await linkOf(options.worker ?? true, onEvent);
  try {
    const info = await link.call("open", { wasm: sendable(wasm), device, defaultLimits });
    return { link, info, device: { kind: info.device, name: info.name, reason: info.reason } };
  } catch (error) {
    link.close();
    throw error;
  }
}

export function memoryOf(memory: EngineMemory): Memory {
  return {
    predictedBytes: memory.predicted_bytes,
    allocatedBytes: memory.allocated_bytes,
    wasmHeapBytes: memory.wasm_heap_bytes,
    hostCopyBytes: memory.host_copy_bytes,
  };
}

async function linkOf(worker: boolean | string | URL, onEvent: (event: HostEvent) => void): Promise<Link> {
  if (worker === false) {
    // Loaded only where it's used: the worker has an engine of its own.
    const { LocalLink } = await import("./local");
    return new LocalLink(onEvent);
  }
  return new WorkerLink(worker === true ? workerUrl() : absolute(worker), onEvent);
}

function absolute(url: string | URL): URL {
  return new URL(url, globalThis.document?.baseURI ?? location.href);
}

/** Addresses are relative to the page, and a worker has another one. */
function sendable(wasm: WasmSource): Wasm {
  return typeof wasm === "string" || wasm instanceof URL ? absolute(wasm).href : wasm;
}

/**
 * The script to start a worker with. Browsers start workers of their own origin only, but those may load scripts from
 * elsewhere.
 */
function startable(script: URL): string {
  if (script.origin === location.origin) return script.href;
  const bootstrap = `importScripts(${JSON.stringify(script.href)});`;
  return URL.createObjectURL(new Blob([bootstrap], { type: "text/javascript" }));
}

interface Waiting {
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
}

class WorkerLink implements Link {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #next = 0;
  #ended: Error | null = null;

  constructor(script: URL, onEvent: (event: HostEvent) => void) {
    const url = startable(script);
    this.#worker = new Worker(url, { name: "tightrope" });
    this.#worker.onmessage = ({ data }: MessageEvent<Reply | HostEvent>) => {
      if ("event" in data) onEvent(data);
      else this.#settle(data);
    };
    this.#worker.onerror = ({ message }) => {
      const what = message || "the worker didn't start";
      this.#end(new TightropeError(`${what}: is ${script.href} there, and does the page's policy let it run?`));
    };
  }

  call<M extends Method>(method: M, ...args: Parameters<Methods[M]>): ReturnType<Methods[M]> {
    const result = new Promise((resolve, reject) => {
      if (this.#ended !== null) {
        reject(this.#ended);
        return;
      }
      const call: Call = { id: this.#next++, method, args };
      this.#waiting.set(call.id, { resolve, reject });
      this.#worker.postMessage(call);
    });
    return result as ReturnType<Methods[M]>;
  }

  close(): void {
    this.#end(new Disposed());
  }

  #end(error: Error): void {
    this.#ended ??= error;
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }

  #settle(reply: Reply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if ("failure" in reply) waiting?.reject(thrown(reply.failure));
    else waiting?.resolve(reply.value);
  }
}
