// jax-js: the whole step is one jitted function, with valueAndGrad and AdamW inside, as its optax has it.

import {
  blockUntilReady,
  defaultDevice,
  getWebGPUDevice,
  init,
  jit,
  nn,
  numpy as np,
  tree,
  valueAndGrad,
} from "@jax-js/jax";

import { ADAMW, BATCH, MODEL, NORM_EPS, batch, factors, parameters } from "./case";
import { type Contestant, type Trained, described, timed } from "./contestant";

type Params = Record<string, np.Array>;

const { layers, channels, heads, vocab, context } = MODEL;

function get(params: Params, name: string): np.Array {
  const found = params[name];
  if (found === undefined) throw new Error(`no parameter ${name}`);
  return found.ref;
}

function linear(params: Params, name: string, x: np.Array): np.Array {
  return np.dot(x, get(params, `${name}.weight`)).add(get(params, `${name}.bias`));
}

function norm(params: Params, name: string, x: np.Array): np.Array {
  const standard = nn.standardize(x, -1, { epsilon: NORM_EPS });
  return standard.mul(get(params, `${name}.weight`)).add(get(params, `${name}.bias`));
}

function attention(params: Params, block: string, x: np.Array): np.Array {
  const qkv = linear(params, `${block}.attn.c_attn`, x);
  const part = (index: number) =>
    qkv.ref
      .slice([], [], [index * channels, (index + 1) * channels])
      .reshape([BATCH, context, heads, channels / heads]);
  const mixed = nn.dotProductAttention(part(0), part(1), part(2), { isCausal: true });
  qkv.dispose();
  return linear(params, `${block}.attn.c_proj`, mixed.reshape([BATCH, context, channels]));
}

/** Mean loss. */
function loss(params: Params, inputs: np.Array, targets: np.Array): np.Array {
  const wte = get(params, "transformer.wte.weight");
  let x = wte.ref.slice(inputs).add(get(params, "transformer.wpe.weight"));
  for (let index = 0; index < layers; index++) {
    const block = `transformer.h.${index}`;
    x = x.ref.add(attention(params, block, norm(params, `${block}.ln_1`, x)));
    const up = linear(params, `${block}.mlp.c_fc`, norm(params, `${block}.ln_2`, x.ref));
    x = x.add(linear(params, `${block}.mlp.c_proj`, nn.gelu(up)));
  }
  const logits = np.dot(norm(params, "transformer.ln_f", x), wte.transpose());
  const chosen = nn.logSoftmax(logits, -1).mul(nn.oneHot(targets, vocab));
  tree.dispose(params);
  return chosen.sum().mul(-1 / (BATCH * context));
}

interface State {
  params: Params;
  first: Params;
  second: Params;
  count: np.Array;
}

const step = jit(
  (
    params: Params,
    first: Params,
    second: Params,
    count: np.Array,
    inputs: np.Array,
    targets: np.Array,
  ): [np.Array, Params, Params, Params, np.Array] => {
    const { lr, beta1, beta2, eps, weightDecay } = ADAMW;
    const [value, grads] = valueAndGrad(loss)(tree.ref(params), inputs, targets);
    count = count.add(1);
    const correction = (beta: number) =>
      np.reciprocal(np.subtract(1, np.power(beta, count.ref)));
    const [correction1, correction2] = [correction(beta1), correction(beta2)];
    const next: [Params, Params, Params] = [{}, {}, {}];
    for (const [name, gradient] of Object.entries(grads)) {
      const m = get(first, name).mul(beta1).add(gradient.ref.mul(1 - beta1));
      const v = get(second, name).mul(beta2).add(np.square(gradient).mul(1 - beta2));
      const root = np.sqrt(v.ref.mul(correction2.ref)).add(eps);
      const change = m.ref.mul(correction1.ref).div(root).mul(lr);
      const weight = get(params, name);
      const kept = weight.ndim > 1 ? weight.mul(1 - lr * weightDecay) : weight;
      next[0][name] = kept.sub(change);
      next[1][name] = m;
      next[2][name] = v;
    }
    tree.dispose([params, first, second, correction1, correction2]);
    return [value, ...next, count];
  },
);

const product = jit((a: np.Array, b: np.Array) => np.matmul(a, b));

class Jax implements Contestant {
  private state: State | undefined;
  private matrices: [np.Array, np.Array] | undefined;

  async open(): Promise<string> {
    const devices = await init("webgpu");
    if (!devices.includes("webgpu")) throw new Error("jax-js finds no WebGPU");
    defaultDevice("webgpu");
    return described(getWebGPUDevice().adapterInfo);
  }

  private async factors(extent: number): Promise<[np.Array, np.Array]> {
    if (this.matrices?.[0].shape[0] !== extent) {
      const [a, b] = factors(extent).map((values) =>
        np.array(values, { shape: [extent, extent] }),
      ) as [np.Array, np.Array];
      this.matrices = [a, b];
      await blockUntilReady([a, b]);
    }
    return this.matrices;
  }

  async matmul(extent: number, runs: number): Promise<number> {
    const [a, b] = await this.factors(extent);
    const ms = await timed(async () => {
      // Each product is a factor of the next, so that none can be left out.
      let c = a.ref;
      for (let run = 0; run < runs; run++) c = product(c, b.ref);
      await blockUntilReady(c);
      c.dispose();
    });
    return ms / runs;
  }

  async product(extent: number): Promise<Float32Array> {
    const [a, b] = await this.factors(extent);
    return (await product(a.ref, b.ref).data()) as Float32Array;
  }

  async prepare(): Promise<void> {
    if (this.state !== undefined) return;
    const filled = (values: (length: number, own: Float32Array<ArrayBuffer>) => Float32Array<ArrayBuffer>) =>
      Object.fromEntries(
        parameters().map(({ name, shape, values: own }) => [
          name,
          np.array(values(own.length, own), { shape }),
        ]),
      );
    const zeros = () => filled((length) => new Float32Array(length));
    this.state = {
      params: filled((_, own) => own),
      first: zeros(),
      second: zeros(),
      count: np.array(new Float32Array(1)).reshape([]),
    };
    await blockUntilReady(this.state.params);
  }

  async train(steps: number): Promise<Trained> {
    if (this.state === undefined) throw new Error("call prepare first");
    let state = this.state;
    const shape = [BATCH, context];
    const losses: number[] = [];
    const ms = await timed(async () => {
      const values: np.Array[] = [];
      for (let at = 0; at < steps; at++) {
        const { inputs, targets } = batch();
        const [value, params, first, second, count] = step(
          state.params,
          state.first,
          state.second,
          state.count,
          np.array(inputs, { shape }),
          np.array(targets, { shape }),
        );
        state = { params, first, second, count };
        values.push(value);
      }
      for (const value of values) losses.push((await value.data())[0] as number);
    });
    this.state = state;
    return { losses, ms };
  }
}

window.contestant = new Jax();
