// The setup of a run: what the engine is given, what the controls edit, and what a link carries.
// `FIELDS` is the one list of settings; it validates all three.

export type Family = "gpt2" | "llama";
export type DataKind = "built-in" | "text" | "sort" | "reverse" | "add";

/** `null` leaves a value to the engine. */
export interface Setup {
  model: {
    family: Family;
    layers: number;
    channels: number;
    heads: number;
    kv_heads: number | null;
    hidden: number | null;
    context: number;
    vocab: number | null;
    tied: boolean;
    dropout: number;
  };
  train: {
    batch: number;
    micro_batch: number | "auto";
    steps: number;
    optimizer: "adamw" | "sgd" | "lion";
    lr: number;
    min_lr: number | null;
    warmup: number | null;
    schedule: "cosine" | "linear" | "constant";
    weight_decay: number;
    beta1: number;
    beta2: number;
    eps: number;
    clip: number;
    seed: number;
  };
  memory: {
    budget: number | null;
    recompute: string;
    loss_chunk: number | "auto" | "none";
    optimizer_bits: 32 | 16 | 8;
  };
  data: { kind: DataKind; holdout: number };
  run: { precision: "f32" | "bf16" };
}

export const TABLES = ["model", "train", "memory", "data", "run"] as const;
export type Table = (typeof TABLES)[number];

export type Rule =
  | { type: "integer"; min: number; max: number; words?: readonly string[]; none?: true }
  | { type: "number"; min: number; max: number; below?: true; none?: true }
  | { type: "choice"; choices: readonly (string | number)[] }
  | { type: "flag" }
  | { type: "recompute" };

export interface Field {
  table: Table;
  key: string;
  /** Its key in links of earlier versions. */
  old?: string;
  rule: Rule;
}

const integer = (min: number, max: number): Rule => ({ type: "integer", min, max });
const number = (min: number, max: number): Rule => ({ type: "number", min, max });
const choice = (...choices: (string | number)[]): Rule => ({ type: "choice", choices });

/** Bytes; far above any device, and exact in a double. */
const MOST_BYTES = 2 ** 44;
const MOST_STEPS = 10_000_000;
const MOST_SEED = 2 ** 32 - 1;

export const FIELDS: readonly Field[] = [
  { table: "model", key: "family", rule: choice("gpt2", "llama") },
  { table: "model", key: "layers", rule: integer(1, 128) },
  { table: "model", key: "channels", rule: integer(8, 16_384) },
  { table: "model", key: "heads", rule: integer(1, 256) },
  { table: "model", key: "kv_heads", rule: { type: "integer", min: 1, max: 256, none: true } },
  { table: "model", key: "hidden", rule: { type: "integer", min: 8, max: 65_536, none: true } },
  { table: "model", key: "context", rule: integer(4, 32_768) },
  { table: "model", key: "vocab", rule: { type: "integer", min: 256, max: 1_000_000, none: true } },
  { table: "model", key: "tied", rule: { type: "flag" } },
  { table: "model", key: "dropout", rule: { type: "number", min: 0, max: 1, below: true } },
  { table: "train", key: "batch", rule: integer(1, 4096) },
  { table: "train", key: "micro_batch", rule: { type: "integer", min: 1, max: 4096, words: ["auto"] } },
  { table: "train", key: "steps", rule: integer(1, MOST_STEPS) },
  { table: "train", key: "optimizer", rule: choice("adamw", "sgd", "lion") },
  { table: "train", key: "lr", rule: number(0, 10) },
  { table: "train", key: "min_lr", rule: { type: "number", min: 0, max: 10, none: true } },
  { table: "train", key: "warmup", rule: { type: "integer", min: 0, max: MOST_STEPS, none: true } },
  { table: "train", key: "schedule", rule: choice("cosine", "linear", "constant") },
  { table: "train", key: "weight_decay", rule: number(0, 10) },
  { table: "train", key: "beta1", rule: { type: "number", min: 0, max: 1, below: true } },
  { table: "train", key: "beta2", rule: { type: "number", min: 0, max: 1, below: true } },
  { table: "train", key: "eps", rule: number(0, 1) },
  { table: "train", key: "clip", rule: number(0, 1e6) },
  { table: "train", key: "seed", rule: integer(0, MOST_SEED) },
  { table: "memory", key: "budget", rule: { type: "integer", min: 0, max: MOST_BYTES, none: true } },
  { table: "memory", key: "recompute", old: "checkpoint", rule: { type: "recompute" } },
  { table: "memory", key: "loss_chunk", rule: { type: "integer", min: 1, max: MOST_BYTES, words: ["auto", "none"] } },
  { table: "memory", key: "optimizer_bits", rule: choice(32, 16, 8) },
  { table: "data", key: "kind", rule: choice("built-in", "text", "sort", "reverse", "add") },
  { table: "data", key: "holdout", rule: { type: "number", min: 0, max: 1, below: true } },
  { table: "run", key: "precision", rule: choice("f32", "bf16") },
];

export const DEFAULTS: Setup = {
  model: {
    family: "gpt2",
    layers: 4,
    channels: 64,
    heads: 4,
    kv_heads: null,
    hidden: null,
    context: 64,
    vocab: null,
    tied: true,
    dropout: 0,
  },
  train: {
    batch: 16,
    micro_batch: "auto",
    steps: 1000,
    optimizer: "adamw",
    lr: 2e-3,
    min_lr: null,
    warmup: null,
    schedule: "cosine",
    weight_decay: 0.1,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    clip: 1,
    seed: 1337,
  },
  memory: { budget: null, recompute: "auto", loss_chunk: "auto", optimizer_bits: 32 },
  data: { kind: "built-in", holdout: 0.1 },
  run: { precision: "f32" },
};

export class SetupError extends Error {}

type Tree = Record<Table, Record<string, unknown>>;

/** A value of a setting; `undefined` where there is no such setting. */
export function get(setup: Setup, table: Table, key: string): unknown {
  return (setup as unknown as Tree)[table][key];
}

/** A copy of `setup` with one value changed. */
export function withValue(setup: Setup, table: Table, key: string, value: unknown): Setup {
  return { ...setup, [table]: { ...setup[table], [key]: value } };
}

/** Says what is wrong with a value, or `null` where it's right. */
export function problem(rule: Rule, value: unknown): string | null {
  switch (rule.type) {
    case "flag":
      return typeof value === "boolean" ? null : "must be true or false";
    case "choice":
      return rule.choices.some((choice) => choice === value)
        ? null
        : `must be one of ${rule.choices.join(", ")}`;
    case "recompute":
      return typeof value === "string" && /^(auto|none|block|sqrt|every:[1-9]\d{0,3})$/.test(value)
        ? null
        : "must be auto, none, block, sqrt or every:N";
    case "integer":
    case "number": {
      if (value === null && rule.none) return null;
      const words: readonly unknown[] = rule.type === "integer" ? (rule.words ?? []) : [];
      if (words.includes(value)) return null;
      const whole = rule.type === "integer";
      const isKind = whole ? Number.isInteger(value) : Number.isFinite(value);
      if (typeof value !== "number" || !isKind) {
        return whole ? "must be a whole number" : "must be a number";
      }
      const open = rule.type === "number" && rule.below === true;
      if (value < rule.min || value > rule.max || (open && value === rule.max)) {
        return `must be from ${rule.min} to ${open ? "below " : ""}${rule.max}`;
      }
      return null;
    }
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads a setup that came from outside, field by field, over `base`. Missing values are the base's. Unknown
 * keys are errors, or are passed over with `tolerant`, for a checkpoint of the native program, which has
 * settings that the page lacks.
 */
export function readSetup(value: unknown, base: Setup = DEFAULTS, tolerant = false): Setup {
  if (!isRecord(value)) throw new SetupError("A setup must be an object.");
  const setup = structuredClone(base);
  const tree = setup as unknown as Tree;
  for (const [table, entries] of Object.entries(value)) {
    const known = TABLES.find((name) => name === table);
    if (known === undefined) {
      if (tolerant) continue;
      throw new SetupError(`Unknown table “${table}”.`);
    }
    if (!isRecord(entries)) throw new SetupError(`Table “${table}” must be an object.`);
    for (const [key, entry] of Object.entries(entries)) {
      const field = FIELDS.find((field) => field.table === known && [field.key, field.old].includes(key));
      if (field === undefined) {
        if (tolerant) continue;
        throw new SetupError(`Unknown setting “${table}.${key}”.`);
      }
      if (tolerant && entry === null) continue;
      const wrong = problem(field.rule, entry);
      if (wrong !== null) throw new SetupError(`${table}.${key} ${wrong}.`);
      tree[known][field.key] = entry;
    }
  }
  return setup;
}

/** What holds between settings; `null` where everything fits together. */
export function conflict(setup: Setup): string | null {
  const { channels, heads, kv_heads } = setup.model;
  if (channels % heads !== 0) {
    return `${heads} heads don’t divide ${channels} channels.`;
  }
  if (setup.model.family === "llama" && (channels / heads) % 2 !== 0) {
    return `Llama’s rotary embedding needs an even head width; ${channels} ÷ ${heads} is odd.`;
  }
  if (kv_heads !== null && heads % kv_heads !== 0) {
    return `${kv_heads} key–value heads don’t divide ${heads} heads.`;
  }
  const { batch, micro_batch } = setup.train;
  if (micro_batch !== "auto" && batch % micro_batch !== 0) {
    return `A micro-batch of ${micro_batch} doesn’t divide a batch of ${batch}.`;
  }
  return null;
}

const BYTE_VOCAB = 256;

/** A setup with all values filled in, with those left out that are what the engine would fill in. */
export function simplified(setup: Setup): Setup {
  const { model, train } = setup;
  const unless = (value: number | null, usual: number): number | null =>
    value !== null && Math.abs(value - usual) <= 1e-9 * Math.abs(usual) ? null : value;
  return {
    ...setup,
    model: {
      ...model,
      kv_heads: unless(model.kv_heads, model.heads),
      hidden: model.family === "gpt2" ? unless(model.hidden, 4 * model.channels) : model.hidden,
      vocab: unless(model.vocab, BYTE_VOCAB),
    },
    train: {
      ...train,
      min_lr: unless(train.min_lr, train.lr / 10),
      warmup: unless(train.warmup, Math.floor(train.steps / 20)),
    },
  };
}

/** The engine's form: values left to it are absent. */
export function toEngine(setup: Setup): string {
  return JSON.stringify(setup, (key, value: unknown) =>
    value === null && key !== "budget" ? undefined : value,
  );
}

/** Whether two setups are the same. */
export function same(a: Setup, b: Setup): boolean {
  return FIELDS.every(({ table, key }) => get(a, table, key) === get(b, table, key));
}
