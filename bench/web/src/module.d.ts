// What `cargo xtask web` builds, as far as it is used here. The files aren't under version control.

declare module "*/tightrope_web.js" {
  const init: (options: { module_or_path: string }) => Promise<unknown>;
  export default init;

  /** Times products of two square f32 matrices. */
  export interface Products {
    /** Milliseconds of one product, from the first launch to the arrival of the last result, over their number. */
    readonly ms: number;
    readonly product: Float32Array;
    free(): void;
  }

  /** Every text is JSON. */
  export class Engine {
    static open(device: "webgpu", defaultLimits: boolean): Promise<Engine>;
    info(): string;
    start(setup: string, text?: Uint8Array, checkpoint?: Uint8Array): Promise<string>;
    step(count: number): Promise<string>;
    checkpoint(): Promise<Uint8Array>;
    bench_matmul(
      a: Float32Array,
      b: Float32Array,
      extent: number,
      runs: number,
    ): Promise<Products>;
  }
}

declare module "*.wasm" {
  /** Its address. */
  const address: string;
  export default address;
}
