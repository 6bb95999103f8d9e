// What every contestant trains: sizes, weights and tokens, the same bit for bit.

/** GPT-2 as published, with a byte vocabulary. */
export const MODEL = { layers: 4, channels: 128, heads: 4, hidden: 512, vocab: 256, context: 64 };
/** Sequences of a step, each as long as the context. */
export const BATCH = 8;
export const NORM_EPS = 1e-5;
/** torch.optim.AdamW's; decay applies to tensors of two dimensions. */
export const ADAMW = { lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1 };

const SEED = 1337;
const STD = 0.02;
const WORDS = 2 ** 32;

/** A tensor of the model under its Hugging Face name, in their layout: weights are (in, out). */
export interface Parameter {
  name: string;
  shape: number[];
  values: Float32Array<ArrayBuffer>;
}

/** A hash of a counter: 32 bits in, 32 out, each bit of which depends on all of them (Mueller's). */
function mixed(counter: number): number {
  let x = counter >>> 0;
  for (const factor of [0x045d9f3b, 0x045d9f3b]) {
    x = Math.imul(x ^ (x >>> 16), factor);
  }
  return (x ^ (x >>> 16)) >>> 0;
}

/** In (0, 1), the same for the same stream and counter. */
function uniform(stream: number, counter: number): number {
  return (mixed(mixed(mixed(SEED) + stream) + counter) + 0.5) / WORDS;
}

/** Standard normal numbers (Box and Muller's). */
export function normal(stream: number, length: number, std: number): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length }, (_, index) => {
    const radius = Math.sqrt(-2 * Math.log(uniform(stream, 2 * index)));
    return std * radius * Math.cos(2 * Math.PI * uniform(stream, 2 * index + 1));
  });
}

/** Every parameter with its value before the first step. The head is the embedding. */
export function parameters(): Parameter[] {
  const { layers, channels, hidden, vocab, context } = MODEL;
  const list: Parameter[] = [];
  const weight = (name: string, shape: number[], std = STD) => {
    const length = shape.reduce((product, extent) => product * extent);
    list.push({ name, shape, values: normal(list.length, length, std) });
  };
  const filled = (name: string, length: number, value: number) => {
    list.push({ name, shape: [length], values: new Float32Array(length).fill(value) });
  };
  const norm = (name: string) => {
    filled(`${name}.weight`, channels, 1);
    filled(`${name}.bias`, channels, 0);
  };
  const linear = (name: string, inputs: number, outputs: number, std = STD) => {
    weight(`${name}.weight`, [inputs, outputs], std);
    filled(`${name}.bias`, outputs, 0);
  };
  const residual = STD / Math.sqrt(2 * layers);
  weight("transformer.wte.weight", [vocab, channels]);
  weight("transformer.wpe.weight", [context, channels]);
  for (let index = 0; index < layers; index++) {
    const block = `transformer.h.${index}`;
    norm(`${block}.ln_1`);
    linear(`${block}.attn.c_attn`, channels, 3 * channels);
    linear(`${block}.attn.c_proj`, channels, channels, residual);
    norm(`${block}.ln_2`);
    linear(`${block}.mlp.c_fc`, channels, hidden);
    linear(`${block}.mlp.c_proj`, hidden, channels, residual);
  }
  norm("transformer.ln_f");
  return list;
}

/**
 * The text that the tokens are the bytes of. It has room for one window, so that every row of every batch
 * is this window, in whatever order a loader takes them.
 */
export function text(): string {
  const [first, last] = [0x20, 0x7e];
  const stream = WORDS / 2;
  const letter = (index: number) => first + Math.floor(uniform(stream, index) * (last - first + 1));
  return String.fromCharCode(...Array.from({ length: MODEL.context + 1 }, (_, index) => letter(index)));
}

/** Tokens of one step, (batch, context), and for each the one that follows it. */
export function batch(): { inputs: Int32Array<ArrayBuffer>; targets: Int32Array<ArrayBuffer> } {
  const window = Array.from(text(), (letter) => letter.charCodeAt(0));
  const rows = (from: number) => {
    const row = window.slice(from, from + MODEL.context);
    return Int32Array.from({ length: BATCH * row.length }, (_, at) => row[at % row.length] ?? 0);
  };
  return { inputs: rows(0), targets: rows(1) };
}

/** The two factors of the product that is timed, scaled so that chains of products stay in range. */
export function factors(extent: number): [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>] {
  const factor = (stream: number) => normal(stream, extent * extent, 1 / Math.sqrt(extent));
  return [factor(WORDS / 2 + 1), factor(WORDS / 2 + 2)];
}
