// The settings as they're shown: in what order, under which words, and as which kind of input.

import type { Table } from "../setup";

export interface Shown {
  table: Table;
  key: string;
  label: string;
  /** Values and their words; without them it's a number. */
  options?: readonly (readonly [value: string, text: string])[];
  flag?: true;
  /** What an empty input means. */
  empty?: string;
}

export interface Group {
  title: string;
  fields: readonly Shown[];
  more: readonly Shown[];
}

export const GROUPS: readonly Group[] = [
  {
    title: "Model",
    fields: [
      {
        table: "model",
        key: "family",
        label: "Family",
        options: [
          ["gpt2", "GPT-2"],
          ["llama", "Llama"],
        ],
      },
      { table: "model", key: "layers", label: "Layers" },
      { table: "model", key: "channels", label: "Channels" },
      { table: "model", key: "heads", label: "Heads" },
      { table: "model", key: "context", label: "Context" },
    ],
    more: [
      { table: "model", key: "kv_heads", label: "Key–value heads", empty: "as heads" },
      { table: "model", key: "hidden", label: "Hidden width", empty: "by family" },
      { table: "model", key: "vocab", label: "Vocabulary", empty: "256 bytes" },
      { table: "model", key: "dropout", label: "Dropout" },
      { table: "model", key: "tied", label: "Output tied to embedding", flag: true },
    ],
  },
  {
    title: "Training",
    fields: [
      { table: "train", key: "steps", label: "Steps" },
      { table: "train", key: "batch", label: "Batch, sequences" },
      { table: "train", key: "micro_batch", label: "Micro-batch", empty: "auto" },
      {
        table: "train",
        key: "optimizer",
        label: "Optimizer",
        options: [
          ["adamw", "AdamW"],
          ["lion", "Lion"],
          ["sgd", "SGD"],
        ],
      },
      { table: "train", key: "lr", label: "Learning rate" },
    ],
    more: [
      {
        table: "train",
        key: "schedule",
        label: "Schedule",
        options: [
          ["cosine", "cosine"],
          ["linear", "linear"],
          ["constant", "constant"],
        ],
      },
      { table: "train", key: "warmup", label: "Warmup, steps", empty: "5 %" },
      { table: "train", key: "min_lr", label: "Final rate", empty: "a tenth" },
      { table: "train", key: "weight_decay", label: "Weight decay" },
      { table: "train", key: "beta1", label: "Beta 1" },
      { table: "train", key: "beta2", label: "Beta 2" },
      { table: "train", key: "eps", label: "Epsilon" },
      { table: "train", key: "clip", label: "Clip norm at" },
      { table: "train", key: "seed", label: "Seed" },
      { table: "data", key: "holdout", label: "Held-out share" },
    ],
  },
  {
    title: "Saving memory",
    fields: [
      {
        table: "run",
        key: "precision",
        label: "Precision",
        options: [
          ["f32", "f32"],
          ["bf16", "bf16"],
        ],
      },
      {
        table: "memory",
        key: "recompute",
        label: "Recompute",
        options: [
          ["auto", "auto"],
          ["none", "none"],
          ["block", "every block"],
          ["sqrt", "√ of the blocks"],
          ["every:2", "every 2 blocks"],
          ["every:3", "every 3 blocks"],
          ["every:4", "every 4 blocks"],
        ],
      },
    ],
    more: [
      { table: "memory", key: "loss_chunk", label: "Loss chunk, rows", empty: "auto" },
      {
        table: "memory",
        key: "optimizer_bits",
        label: "Optimizer state",
        options: [
          ["32", "32 bits"],
          ["16", "16 bits"],
          ["8", "8 bits"],
        ],
      },
    ],
  },
];

export const DATA_KINDS = [
  ["built-in", "Built-in text"],
  ["text", "Your text"],
  ["sort", "Sort"],
  ["reverse", "Reverse"],
  ["add", "Add"],
] as const;

export const DATA_HINTS: Record<string, string> = {
  "built-in": "Plays by Shakespeare, byte by byte.",
  text: "Paste or drop any text; it stays in this tab.",
  sort: "Learns to sort digits. Held-out problems tell whether it did.",
  reverse: "Learns to write digits backwards. Held-out problems tell whether it did.",
  add: "Learns to add. Held-out problems tell whether it did.",
};
