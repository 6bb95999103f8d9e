// Lessons: set-ups that each show one way to save memory. A lesson has two plans, without it and with it.

import { DEFAULTS, type Setup, readSetup } from "./setup";

export interface Lesson {
  /** Its name in a link. */
  name: string;
  title: string;
  /** What it does, and what follows. */
  text: readonly [does: string, follows: string];
  /** The setup without it. */
  before: Setup;
  /** The setup with it. */
  after: Setup;
}

/** Values of settings, by table and key. */
type Values = Record<string, Record<string, unknown>>;

/** Everything at once, and nothing saved. */
const PLAIN = readSetup({ train: { micro_batch: DEFAULTS.train.batch }, memory: { recompute: "none" } });

/** A wide model and few tokens, so that weights and what belongs to them take most of the memory. */
const WIDE = readSetup({ model: { channels: 256, context: 32 }, train: { batch: 4, micro_batch: 4, lr: 1e-3 } }, PLAIN);

function lesson(name: string, title: string, text: Lesson["text"], before: Setup, change: Values): Lesson {
  return { name, title, text, before, after: readSetup(change, before) };
}

export const LESSONS: readonly Lesson[] = [
  lesson(
    "accumulate",
    "Accumulate",
    [
      "The batch of 16 sequences goes through the model in 8 passes of 2, and their gradients are summed before the update.",
      "Only the activations of one pass are in memory at a time, and the model learns the same.",
    ],
    PLAIN,
    { train: { micro_batch: 2 } },
  ),
  lesson(
    "recompute",
    "Recompute",
    [
      "The forward pass keeps only the input of each block, and the backward pass computes the other activations again.",
      "This saves memory and costs time: almost a second forward pass in each step.",
    ],
    PLAIN,
    { memory: { recompute: "block" } },
  ),
  lesson(
    "bf16",
    "bf16",
    [
      "Activations are stored in 16 bits instead of 32, and so are the weights that the ops read.",
      "Activations take half the memory; weights don’t, because the update keeps the other 16 bits of each.",
    ],
    PLAIN,
    { run: { precision: "bf16" } },
  ),
  lesson(
    "adam8",
    "8-bit Adam",
    [
      "AdamW remembers two numbers for each weight, and here they take 8 bits each instead of 32.",
      "The numbers are rounded, so the losses differ a little from those with 32 bits.",
    ],
    WIDE,
    { memory: { optimizer_bits: 8 } },
  ),
  lesson(
    "offload",
    "Offload",
    [
      "What AdamW remembers of each weight stays in the tab’s own memory, and the processor makes the update there.",
      "The GPU holds less and the model learns the same, but in each step gradients go to the tab and new weights come back.",
    ],
    WIDE,
    { memory: { offload: ["optimizer"] } },
  ),
  lesson(
    "lora",
    "LoRA",
    [
      "The weights are frozen, and training changes only two thin matrices beside each of them.",
      "Frozen weights need no gradients and no optimizer state; here they are random, so the model learns less than it would in full.",
    ],
    WIDE,
    { lora: { rank: 8 } },
  ),
  lesson(
    "budget",
    "Budget",
    [
      "You say how much memory a step may take, and the planner finds the fastest plan within it.",
      "Move the slider: the planner chooses the micro-batch and what to recompute, and says how much slower a step gets.",
    ],
    DEFAULTS,
    { memory: { budget: 10 * 2 ** 20 } },
  ),
];

/** The lesson of a link. */
export function lessonOf(name: string): Lesson | null {
  return LESSONS.find((lesson) => lesson.name === name) ?? null;
}
