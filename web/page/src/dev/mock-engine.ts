// A pretended engine, to work on the page without wasm: plausible plans, losses and samples, no training.
// Only `--mode mock` loads it.

import type { Engine, EngineClass, PlanOp, PlanTensor, TensorClass } from "../engine/types";
import { isAlive, peakStep } from "../arena/geometry";
import { DEFAULTS, type Setup, readSetup } from "../setup";

const ALIGN = 256;
const VOCAB = 256;
const STEP_MS = 25;

/** Operations a second. */
const SPEED = 5e10;

interface Draft {
  ops: PlanOp[];
  tensors: PlanTensor[];
}

function add(
  draft: Draft,
  name: string,
  shape: number[],
  kind: TensorClass,
  kept: boolean,
): PlanTensor {
  const elements = shape.reduce((product, extent) => product * extent, 1);
  const step = draft.ops.length;
  const tensor: PlanTensor = {
    name,
    type: `f32[${shape.join(", ")}]`,
    class: kind,
    offset: 0,
    bytes: Math.ceil((elements * 4) / ALIGN) * ALIGN,
    birth: step,
    death: step,
    kept,
    read_by: [],
    again_s: kind === "activation" ? (elements * 64) / SPEED : null,
  };
  draft.tensors.push(tensor);
  return tensor;
}

function read(draft: Draft, tensor: PlanTensor): void {
  const step = draft.ops.length;
  tensor.read_by.push(step);
  tensor.death = step;
}

function run(draft: Draft, op: string, phase: PlanOp["phase"], flops: number): void {
  draft.ops.push({ op, name: `${op}.${draft.ops.length}`, phase, seconds: flops / SPEED, live: 0 });
}

function model(setup: Setup, micro: number, isRecomputed: boolean): Draft {
  const draft: Draft = { ops: [], tensors: [] };
  const { layers, channels: C, context: T } = setup.model;
  const rows = micro * T;
  const extents: [string, number[]][] = [["wte", [VOCAB, C]]];
  for (let layer = 0; layer < layers; layer += 1) {
    extents.push([`h.${layer}.attn.qkv`, [C, 3 * C]], [`h.${layer}.attn.proj`, [C, C]]);
    extents.push([`h.${layer}.mlp.fc`, [C, 4 * C]], [`h.${layer}.mlp.proj`, [4 * C, C]]);
  }
  for (const [name, shape] of extents) {
    add(draft, name, shape, "weight", true);
    add(draft, `${name}.m`, shape, "optimizer", true);
    add(draft, `${name}.v`, shape, "optimizer", true);
  }
  add(draft, "tokens", [micro, T + 1], "input", true);
  const kept: PlanTensor[] = [];
  const block = (layer: number, phase: PlanOp["phase"]): PlanTensor[] =>
    (["norm", "qkv", "attention", "residual", "norm", "fc", "gelu", "residual"] as const).map((op, index) => {
      const width = index === 1 ? 3 * C : index === 5 || index === 6 ? 4 * C : C;
      const tensor = add(draft, `h.${layer}.${op}${index}`, [micro, T, width], "activation", false);
      run(draft, op, phase, 2 * rows * C * width);
      return tensor;
    });
  const made = Array.from({ length: layers }, (_, layer) => {
    const all = block(layer, "forward");
    kept.push(...(isRecomputed ? all.slice(-1) : all));
    for (const tensor of all) if (isRecomputed && tensor !== all.at(-1)) tensor.death += 1;
    return all;
  });
  add(draft, "logits", [rows, VOCAB], "workspace", false).death += 1;
  run(draft, "linear_cross_entropy", "forward", 2 * rows * C * VOCAB);
  for (let layer = layers - 1; layer >= 0; layer -= 1) {
    const inputs = isRecomputed ? block(layer, "recompute") : (made[layer] ?? []);
    for (const input of [...inputs].reverse()) {
      for (const tensor of [input, ...kept.slice(layer, layer + 1)]) read(draft, tensor);
      const gradient = add(draft, `d ${input.name}`, [rows, C], "activation", false);
      gradient.death += 2;
      run(draft, "matmul_backward", "backward", 4 * rows * C * C);
    }
    add(draft, `d h.${layer}.weights`, [12 * C, C], "gradient", false).death = 1e9;
  }
  for (const [name] of extents) run(draft, `adamw ${name}`, "update", C * C);
  return draft;
}

/** First fit, the largest first. */
function place(draft: Draft): void {
  const last = draft.ops.length - 1;
  let top = 0;
  for (const tensor of draft.tensors) {
    tensor.death = Math.min(tensor.death, last);
    if (!tensor.kept) continue;
    tensor.birth = 0;
    tensor.death = last;
    tensor.offset = top;
    top += tensor.bytes;
  }
  const placed: PlanTensor[] = [];
  for (const tensor of draft.tensors.filter((t) => !t.kept).sort((a, b) => b.bytes - a.bytes)) {
    const others = placed
      .filter((other) => other.birth <= tensor.death && tensor.birth <= other.death)
      .sort((a, b) => a.offset - b.offset);
    let offset = top;
    for (const other of others) {
      if (other.offset >= offset + tensor.bytes) break;
      offset = Math.max(offset, other.offset + other.bytes);
    }
    tensor.offset = offset;
    placed.push(tensor);
  }
  draft.ops.forEach((op, step) => {
    const alive = placed.filter(({ birth, death }) => birth <= step && step <= death);
    op.live = alive.reduce((sum, { bytes }) => sum + bytes, top);
  });
}

function planOf(setup: Setup, micro: number, isRecomputed: boolean) {
  const draft = model(setup, micro, isRecomputed);
  place(draft);
  const peak = Math.max(...draft.tensors.map(({ offset, bytes }) => offset + bytes));
  return { ...draft, peak, micro, isRecomputed };
}

class MockEngine implements Engine {
  #setup: Setup = DEFAULTS;
  #step = 0;

  info(): string {
    const presets = ["tiny", "small"].map((name, index) => ({
      name,
      setup: { model: { layers: 2 + 2 * index, channels: 64 * (index + 1) } },
    }));
    return JSON.stringify({
      device: "cpu",
      name: "mock",
      reason: "This is the page alone, with a pretended engine",
      presets,
      largest_fitting_preset: "tiny",
    });
  }

  plan(text: string): string {
    const setup = readSetup(JSON.parse(text));
    const start = performance.now();
    const { batch } = setup.train;
    const budget = setup.memory.budget ?? Number.POSITIVE_INFINITY;
    const micros = [batch, batch / 2, batch / 4, 1].filter((m) => Number.isInteger(m) && m > 0);
    const plans = micros.flatMap((micro) => [planOf(setup, micro, false), planOf(setup, micro, true)]);
    const found = plans.find(({ peak }) => peak <= budget);
    const shown = found ?? plans.at(-1);
    if (shown === undefined) throw new Error("no plan");
    const { ops, tensors, peak, micro, isRecomputed } = shown;
    const top = peakStep(ops);
    const by_class: Record<string, number> = {};
    for (const t of tensors) {
      by_class[t.class] = (by_class[t.class] ?? 0) + (isAlive(t, top) ? t.bytes : 0);
    }
    by_class["gaps"] = Object.values(by_class).reduce((left, size) => left - size, peak);
    return JSON.stringify({
      peak_bytes: peak,
      lower_bound_bytes: ops[top]?.live ?? 0,
      persistent_bytes: 0,
      by_class,
      why: `at \`${ops[top]?.name ?? ""}\`, ${ops[top]?.phase ?? ""}: 80% activations`,
      plan_ms: performance.now() - start,
      step_s: (ops.reduce((sum, { seconds }) => sum + seconds, 0) * batch) / micro,
      offloaded_bytes: 0,
      parameters: setup.model.layers * setup.model.channels ** 2 * 12,
      choices: {
        micro_batch: micro,
        accumulation: batch / micro,
        checkpoint: isRecomputed ? "block" : "none",
        loss_chunk: 0,
      },
      fits: found !== undefined,
      smallest_seen_bytes: plans.at(-1)?.peak ?? 0,
      nearest: found === undefined ? { ...setup, memory: { ...setup.memory, budget: null } } : null,
      programs: [{ name: "step", ops, tensors }],
    });
  }

  setup_of(): string {
    return JSON.stringify(this.#setup);
  }

  async start(text: string, _data?: Uint8Array, checkpoint?: Uint8Array): Promise<string> {
    this.#setup = readSetup(JSON.parse(text));
    this.#step = checkpoint === undefined ? 0 : new DataView(checkpoint.buffer).getUint32(0);
    const { peak_bytes } = JSON.parse(this.plan(text)) as { peak_bytes: number };
    const bytes = { predicted_bytes: peak_bytes, allocated_bytes: peak_bytes };
    return JSON.stringify({ step: this.#step, ...bytes, vocab: VOCAB });
  }

  async step(count: number): Promise<string> {
    await new Promise((resolve) => setTimeout(resolve, STEP_MS * count));
    const tokens = this.#setup.train.batch * this.#setup.model.context;
    return JSON.stringify(
      Array.from({ length: count }, () => {
        this.#step += 1;
        const loss = this.#loss() + 0.12 * (Math.random() - 0.5);
        const step_s = STEP_MS / 1000;
        return {
          step: this.#step,
          loss,
          lr: this.#setup.train.lr,
          grad_norm: 1,
          tokens,
          step_s,
          step_tokens: tokens,
          updated: true,
        };
      }),
    );
  }

  #loss(): number {
    return 1.35 + 4.2 * Math.exp(-this.#step / 60);
  }

  async evaluate(): Promise<number> {
    return this.#loss() + 0.05;
  }

  async accuracy(): Promise<number> {
    return 1 - Math.exp(-this.#step / 300);
  }

  needs(): string {
    return "[]";
  }

  give(): void {}

  async classify(ink: Uint8Array, width: number): Promise<string> {
    const shade = (index: number): number => ink[16 * (index % 8) + 16 * width * Math.floor(index / 8)] ?? 0;
    const pixels = Array.from({ length: 64 }, (_, index) => shade(index));
    const classes = Array.from({ length: 10 }, (_, digit) => [String(digit), digit === 3 ? 0.82 : 0.02]);
    return JSON.stringify({ width: 8, pixels, classes });
  }

  async sample(): Promise<string> {
    return "the plan of a step is what the backend replays\nand every tensor has its place before it is made. ";
  }

  async checkpoint(): Promise<Uint8Array> {
    const data = new Uint8Array(1024);
    new DataView(data.buffer).setUint32(0, this.#step);
    return data;
  }

  memory(): string {
    const planned = JSON.parse(this.plan(JSON.stringify(this.#setup))) as { peak_bytes: number };
    const bytes = { predicted_bytes: planned.peak_bytes, allocated_bytes: planned.peak_bytes };
    return JSON.stringify({ ...bytes, wasm_heap_bytes: 0, host_copy_bytes: 0 });
  }

  lose_device(): void {}

  recoveries(): number {
    return 0;
  }

  close(): void {}
}

export async function loadEngine(): Promise<EngineClass> {
  return { open: async () => new MockEngine() };
}
