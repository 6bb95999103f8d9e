// TensorFlow.js on its WebGPU backend: plain ops, fused.matMul for the linear layers, tf.variableGrads.

import "@tensorflow/tfjs-backend-webgpu";
import type { WebGPUBackend } from "@tensorflow/tfjs-backend-webgpu";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops";
import "@tensorflow/tfjs-core/dist/register_all_gradients";

import { ADAMW, BATCH, MODEL, NORM_EPS, batch, factors, parameters } from "./case";
import { type Contestant, type Trained, described, timed } from "./contestant";

type Params = Map<string, tf.Variable>;

const { layers, channels, heads, vocab, context } = MODEL;
const ROWS = BATCH * context;

function get(params: Params, name: string): tf.Variable {
  const found = params.get(name);
  if (found === undefined) throw new Error(`no parameter ${name}`);
  return found;
}

/** x (rows, in) to (rows, out). */
function linear(params: Params, name: string, x: tf.Tensor2D): tf.Tensor2D {
  const b = get(params, `${name}.weight`) as tf.Tensor as tf.Tensor2D;
  return tf.fused.matMul({ a: x, b, bias: get(params, `${name}.bias`) }) as tf.Tensor2D;
}

function norm(params: Params, name: string, x: tf.Tensor2D): tf.Tensor2D {
  const centred = x.sub(x.mean(-1, true));
  const scale = centred.square().mean(-1, true).add(NORM_EPS).rsqrt();
  const weight = get(params, `${name}.weight`);
  return centred.mul(scale).mul(weight).add(get(params, `${name}.bias`));
}

function gelu(x: tf.Tensor2D): tf.Tensor2D {
  const inner = x.mul(x.square().mul(0.044715).add(1)).mul(Math.sqrt(2 / Math.PI));
  return x.mul(0.5).mul(inner.tanh().add(1));
}

function attention(params: Params, block: string, x: tf.Tensor2D, mask: tf.Tensor): tf.Tensor2D {
  const depth = channels / heads;
  const parts = tf.split(linear(params, `${block}.attn.c_attn`, x), 3, 1).map((part) =>
    part.reshape([BATCH, context, heads, depth]).transpose([0, 2, 1, 3]),
  );
  const [q, k, v] = parts as [tf.Tensor, tf.Tensor, tf.Tensor];
  const scores = tf.matMul(q, k, false, true).mul(1 / Math.sqrt(depth)).add(mask);
  const mixed = tf.matMul(tf.softmax(scores), v).transpose([0, 2, 1, 3]);
  return linear(params, `${block}.attn.c_proj`, mixed.reshape([ROWS, channels]));
}

/** Mean loss. Tokens come in by a product with their one-hot rows, whose gradient is a product too. */
function loss(params: Params, inputs: tf.Tensor1D, targets: tf.Tensor1D, mask: tf.Tensor): tf.Scalar {
  const wte = get(params, "transformer.wte.weight") as tf.Tensor as tf.Tensor2D;
  const tokens = tf.matMul(tf.oneHot(inputs, vocab).toFloat() as tf.Tensor2D, wte);
  const positions = get(params, "transformer.wpe.weight");
  let x: tf.Tensor2D = tokens
    .reshape([BATCH, context, channels])
    .add(positions)
    .reshape([ROWS, channels]);
  for (let index = 0; index < layers; index++) {
    const block = `transformer.h.${index}`;
    x = x.add(attention(params, block, norm(params, `${block}.ln_1`, x), mask));
    const up = linear(params, `${block}.mlp.c_fc`, norm(params, `${block}.ln_2`, x));
    x = x.add(linear(params, `${block}.mlp.c_proj`, gelu(up)));
  }
  const logits = tf.matMul(norm(params, "transformer.ln_f", x), wte, false, true);
  return tf.losses.softmaxCrossEntropy(tf.oneHot(targets, vocab), logits) as tf.Scalar;
}

/** tf.train.adam with decoupled weight decay, which the library doesn't have. */
class AdamW {
  private readonly adam = tf.train.adam(ADAMW.lr, ADAMW.beta1, ADAMW.beta2, ADAMW.eps);

  apply(params: Params, gradients: tf.NamedTensorMap): void {
    for (const weight of params.values()) {
      if (weight.rank > 1) weight.assign(weight.mul(1 - ADAMW.lr * ADAMW.weightDecay));
    }
    this.adam.applyGradients(Object.entries(gradients).map(([name, tensor]) => ({ name, tensor })));
  }
}

interface Model {
  params: Params;
  mask: tf.Tensor;
  optimizer: AdamW;
}

class Tfjs implements Contestant {
  private model: Model | undefined;
  private matrices: [tf.Tensor2D, tf.Tensor2D] | undefined;

  async open(): Promise<string> {
    if (!(await tf.setBackend("webgpu"))) throw new Error("TensorFlow.js finds no WebGPU");
    await tf.ready();
    return described((tf.backend() as WebGPUBackend).device.adapterInfo);
  }

  private factors(extent: number): [tf.Tensor2D, tf.Tensor2D] {
    if (this.matrices?.[0].shape[0] !== extent) {
      const [a, b] = factors(extent).map((values) => tf.tensor2d(values, [extent, extent])) as [
        tf.Tensor2D,
        tf.Tensor2D,
      ];
      this.matrices = [a, b];
    }
    return this.matrices;
  }

  async matmul(extent: number, runs: number): Promise<number> {
    const [a, b] = this.factors(extent);
    const ms = await timed(async () => {
      // Each product is a factor of the next, as with the others. Reading an element waits for all.
      const corner = tf.tidy(() => {
        let c = a;
        for (let run = 0; run < runs; run++) c = tf.matMul(c, b);
        return c.slice([0, 0], [1, 1]);
      });
      await corner.data();
      corner.dispose();
    });
    return ms / runs;
  }

  async product(extent: number): Promise<Float32Array> {
    const c = tf.matMul(...this.factors(extent));
    const values = await c.data<"float32">();
    c.dispose();
    return values;
  }

  async prepare(): Promise<void> {
    if (this.model !== undefined) return;
    const params: Params = new Map();
    for (const { name, shape, values } of parameters()) {
      params.set(name, tf.variable(tf.tensor(values, shape), true, name));
    }
    const hidden = (at: number) => (at % context > Math.floor(at / context) ? -1e9 : 0);
    const mask = Float32Array.from({ length: context * context }, (_, at) => hidden(at));
    this.model = {
      params,
      mask: tf.tensor(mask, [context, context]),
      optimizer: new AdamW(),
    };
  }

  async train(steps: number): Promise<Trained> {
    if (this.model === undefined) throw new Error("call prepare first");
    const { params, mask, optimizer } = this.model;
    const losses: number[] = [];
    const ms = await timed(async () => {
      const values: tf.Scalar[] = [];
      for (let at = 0; at < steps; at++) {
        const { inputs, targets } = batch();
        const value = tf.tidy(() => {
          const tokens = [inputs, targets].map((of) => tf.tensor1d(of, "int32"));
          const [from, to] = tokens as [tf.Tensor1D, tf.Tensor1D];
          const { value, grads } = tf.variableGrads(() => loss(params, from, to, mask));
          optimizer.apply(params, grads);
          return value;
        });
        values.push(value);
      }
      for (const value of values) losses.push((await value.data())[0] ?? Number.NaN);
      tf.dispose(values);
    });
    return { losses, ms };
  }
}

window.contestant = new Tfjs();
