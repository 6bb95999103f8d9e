// What the driver asks of every contestant. Each is alone on a page and answers through a global.

/** One framework, on the page's WebGPU device. */
export interface Contestant {
  /** Opens the device; answers what describes its adapter. */
  open(): Promise<string>;
  /** Multiplies square matrices `runs` times, waiting once; answers the milliseconds of one product. */
  matmul(extent: number, runs: number): Promise<number>;
  /** The product itself, to be compared with the definition. */
  product(extent: number): Promise<Float32Array>;
  /** Builds the model and its optimizer from the weights of `case.ts`, unless they are there. */
  prepare(): Promise<void>;
  /** Trains, reading the losses back once at the end. */
  train(steps: number): Promise<Trained>;
}

export interface Trained {
  losses: number[];
  /** From the first call to the last loss's arrival. */
  ms: number;
}

declare global {
  interface Window {
    contestant: Contestant;
  }
}

/** Milliseconds that `work` takes. */
export async function timed(work: () => Promise<void>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

/** One line on an adapter. */
export function described(info: GPUAdapterInfo): string {
  const parts = [info.vendor, info.architecture, info.device, info.description];
  return parts.filter((part) => part !== "").join(" ");
}
