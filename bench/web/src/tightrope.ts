// Tightrope: the wasm module that `cargo xtask web` builds, as the page has it.

import init, { Engine } from "../../../web/page/src/wasm/tightrope_web.js";
import module from "../../../web/page/src/wasm/tightrope_web_bg.wasm";

import { ADAMW, BATCH, MODEL, factors, parameters, text } from "./case";
import { withWeights } from "./checkpoint";
import { type Contestant, type Trained, described, timed } from "./contestant";

/** The case as a setup of the page. Knobs of memory are left to the planner. */
function setup(): string {
  const { layers, channels, heads, hidden, vocab, context } = MODEL;
  const { lr, beta1, beta2, eps, weightDecay } = ADAMW;
  return JSON.stringify({
    model: { family: "gpt2", layers, channels, heads, hidden, vocab, context, tied: true, dropout: 0 },
    train: {
      batch: BATCH,
      // More than any benchmark takes.
      steps: 1_000_000,
      optimizer: "adamw",
      lr,
      schedule: "constant",
      warmup: 0,
      weight_decay: weightDecay,
      beta1,
      beta2,
      eps,
      clip: 0,
    },
    data: { kind: "text", holdout: 0 },
    run: { precision: "f32" },
  });
}

class Tightrope implements Contestant {
  private engine: Engine | undefined;
  private prepared = false;

  private get opened(): Engine {
    if (this.engine === undefined) throw new Error("call open first");
    return this.engine;
  }

  async open(): Promise<string> {
    await init({ module_or_path: module });
    this.engine = await Engine.open("webgpu", false);
    const adapter = await navigator.gpu.requestAdapter();
    return adapter === null ? "" : described(adapter.info);
  }

  async matmul(extent: number, runs: number): Promise<number> {
    const result = await this.opened.bench_matmul(...factors(extent), extent, runs);
    const { ms } = result;
    result.free();
    return ms;
  }

  async product(extent: number): Promise<Float32Array> {
    const result = await this.opened.bench_matmul(...factors(extent), extent, 1);
    const { product } = result;
    result.free();
    return product;
  }

  async prepare(): Promise<void> {
    if (this.prepared) return;
    const data = new TextEncoder().encode(text());
    await this.opened.start(setup(), data, undefined);
    const checkpoint = await withWeights(await this.opened.checkpoint(), parameters());
    await this.opened.start(setup(), data, checkpoint);
    this.prepared = true;
  }

  async train(steps: number): Promise<Trained> {
    let losses: number[] = [];
    const ms = await timed(async () => {
      const records = JSON.parse(await this.opened.step(steps)) as { loss: number }[];
      losses = records.map(({ loss }) => loss);
    });
    return { losses, ms };
  }
}

window.contestant = new Tightrope();
