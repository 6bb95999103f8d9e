// The setup of a run: what the engine is given, what the controls edit, and what a link carries. Settings come from the
// engine's list; what to train on, and what a fresh page starts with, is the page's.

import { READS, type Reads, SETTINGS, type Setting, type Settings, TABLES, type Table } from "./settings";

const KINDS = ["built-in", "text", "digits", "sort", "reverse", "add"] as const;
export type DataKind = (typeof KINDS)[number];

/** `null` leaves a value to the engine. */
export type Setup = Omit<Settings, "data"> & { data: Settings["data"] & { kind: DataKind } };

const KIND: Setting = {
  table: "data",
  key: "kind",
  old: [],
  help: "What to train on",
  rule: { type: "choice", choices: KINDS, expected: `one of ${KINDS.join(", ")}` },
  default: "built-in",
};

/** Everything that a setup holds. */
export const FIELDS: readonly Setting[] = [...SETTINGS, KIND];

type Values = Partial<Record<string, unknown>>;

/** A model and a run that a tab learns in a minute or two. */
const TEXT_START: Values = {
  "model.family": "gpt2",
  "model.layers": 4,
  "model.channels": 64,
  "model.heads": 4,
  "model.context": 64,
  "model.tied": true,
  "model.dropout": 0,
  "data.tokenizer": "byte",
  "train.batch": 16,
  "train.steps": 1000,
  "train.lr": 2e-3,
};

/** The same of images. */
const IMAGES_START: Values = {
  ...TEXT_START,
  "model.family": "vit",
  "model.layers": 2,
  "train.batch": 32,
  "data.kind": "digits",
};

type Tree = Record<Table, Record<string, unknown>>;

function startOf(values: Values): Setup {
  const tree = Object.fromEntries(TABLES.map((table) => [table, {}])) as Tree;
  for (const field of FIELDS) {
    tree[field.table][field.key] = values[`${field.table}.${field.key}`] ?? field.default ?? null;
  }
  return tree as unknown as Setup;
}

/** What a setup begins with, by what its model reads. */
export const STARTS: Readonly<Record<Reads, Setup>> = { text: startOf(TEXT_START), images: startOf(IMAGES_START) };

export const DEFAULTS: Setup = STARTS.text;

/** What the model of a setup reads. */
export function reads({ model }: Setup): Reads {
  return READS[model.family];
}

/** A copy of `setup` on other data, and with another model where its own doesn't read that. */
export function withKind(setup: Setup, kind: DataKind): Setup {
  const wanted = kind === "digits" ? "images" : "text";
  const { lora, memory, run } = setup;
  const fitting = wanted === reads(setup) ? setup : { ...STARTS[wanted], lora, memory, run };
  return withValue(fitting, "data", "kind", kind);
}

/** A copy of `setup` with a model of another family, and on other data where that doesn't read its own. */
export function withFamily(setup: Setup, family: Setup["model"]["family"]): Setup {
  const isFitting = READS[family] === reads(setup);
  const fitting = isFitting ? setup : withKind(setup, STARTS[READS[family]].data.kind);
  return withValue(fitting, "model", "family", family);
}

export class SetupError extends Error {}

/** A value of a setting; `undefined` where there is no such setting. */
export function get(setup: Setup, table: Table, key: string): unknown {
  return (setup as unknown as Tree)[table][key];
}

/** A copy of `setup` with one value changed. */
export function withValue(setup: Setup, table: Table, key: string, value: unknown): Setup {
  return { ...setup, [table]: { ...setup[table], [key]: value } };
}

function accepts({ rule, none }: Setting, value: unknown): boolean {
  if (value === null) return none === true;
  switch (rule.type) {
    case "switch":
      return typeof value === "boolean";
    case "choice":
      return rule.choices.some((choice) => choice === value);
    case "integer":
      return Number.isInteger(value) && (value as number) >= rule.min && (value as number) <= rule.max;
    case "number": {
      if (typeof value !== "number" || !Number.isFinite(value)) return false;
      const reaches = rule.above === true ? value > rule.min : value >= rule.min;
      return reaches && (rule.below === undefined || value < rule.below);
    }
    case "form":
      if (typeof value === "number") return rule.whole === true && Number.isInteger(value) && value > 0;
      return (
        typeof value === "string" &&
        (rule.words.includes(value) || (rule.pattern !== undefined && new RegExp(rule.pattern).test(value)))
      );
    case "text":
      return typeof value === "string" && value !== "";
    case "list":
      return Array.isArray(value) && value.every((item) => rule.choices?.includes(item as string) ?? true);
  }
}

/** Says what is wrong with a value, or `null` where it's right. */
export function problem(field: Setting, value: unknown): string | null {
  return accepts(field, value) ? null : `must be ${field.rule.expected}`;
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
      const field = FIELDS.find((field) => field.table === known && (field.key === key || field.old.includes(key)));
      if (field === undefined) {
        if (tolerant) continue;
        throw new SetupError(`Unknown setting “${table}.${key}”.`);
      }
      if (tolerant && entry === null) continue;
      const wrong = problem(field, entry);
      if (wrong !== null) throw new SetupError(`${table}.${key} ${wrong}.`);
      tree[known][field.key] = entry;
    }
  }
  return setup;
}

/** Whether a family's positions are rotary. */
function isRotary(family: Setup["model"]["family"]): boolean {
  return family !== "gpt2" && family !== "vit";
}

/** What holds between settings; `null` where everything fits together. */
export function conflict(setup: Setup): string | null {
  const { channels, heads, kv_heads } = setup.model;
  if (channels % heads !== 0) {
    return `${heads} heads don’t divide ${channels} channels.`;
  }
  if (isRotary(setup.model.family) && (channels / heads) % 2 !== 0) {
    return `A rotary embedding needs an even head width; ${channels} ÷ ${heads} is odd.`;
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

/** Tokens of each tokenizer. */
const VOCABS: Readonly<Record<Setup["data"]["tokenizer"], number>> = { byte: 256, gpt2: 50_257 };

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
      hidden: isRotary(model.family) ? model.hidden : unless(model.hidden, 4 * model.channels),
      vocab: unless(model.vocab, VOCABS[setup.data.tokenizer]),
    },
    train: {
      ...train,
      min_lr: unless(train.min_lr, train.lr / 10),
      warmup: unless(train.warmup, Math.floor(train.steps / 20)),
    },
  };
}

/** Whether a setting is one of the setup's model. */
export function concerns(setup: Setup, field: Setting): boolean {
  return field.reads === undefined || field.reads === reads(setup);
}

/** The engine's form: values left to it are absent, and so are those of other models. */
export function toEngine(setup: Setup): string {
  const tree: Partial<Tree> = {};
  for (const field of FIELDS.filter((field) => concerns(setup, field))) {
    const value = get(setup, field.table, field.key);
    if (value !== null || field.key === "budget") (tree[field.table] ??= {})[field.key] = value;
  }
  return JSON.stringify(tree);
}

/** What the share of right answers on held-out data is called; `null` where there are no answers. */
export function accuracyName({ data }: Setup): string | null {
  if (data.kind === "built-in" || data.kind === "text") return null;
  return data.kind === "digits" ? "Accuracy" : "Exact answers";
}

/** Whether two setups have the same value of a setting. */
export function agree(a: Setup, b: Setup, { table, key }: Setting): boolean {
  const [one, other] = [get(a, table, key), get(b, table, key)];
  return one === other || (Array.isArray(one) && String(one) === String(other));
}

/** Whether two setups are the same. */
export function same(a: Setup, b: Setup): boolean {
  return FIELDS.every((field) => agree(a, b, field));
}
