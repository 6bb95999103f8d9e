// What to train, to begin with: set-ups that are chosen by one click.

import { STARTS, type Setup, readSetup } from "./setup";

export interface Example {
  title: string;
  /** What it trains, and what there is to see. */
  text: readonly [trains: string, shows: string];
  setup: Setup;
  /** Whether a setup is still of its kind, whatever else was changed. */
  isOf: (setup: Setup) => boolean;
}

export const EXAMPLES: readonly Example[] = [
  {
    title: "A text",
    text: [
      "A small GPT reads plays by Shakespeare and learns which byte comes next.",
      "What it writes turns from noise into words, and then into lines of a play.",
    ],
    setup: STARTS.text,
    isOf: ({ data }) => data.kind === "built-in" && data.tokenizer === "byte",
  },
  {
    title: "GPT-2’s tokens",
    text: [
      "The same text, cut into GPT-2’s 50,257 tokens: words and parts of words, and not bytes.",
      "A sequence is about three times as much text, and the embedding takes most of the memory.",
    ],
    setup: readSetup({ data: { tokenizer: "gpt2" }, model: { layers: 2 }, train: { batch: 8 } }, STARTS.text),
    isOf: ({ data }) => data.tokenizer === "gpt2" && data.kind !== "digits",
  },
  {
    title: "Digits",
    text: [
      "A vision transformer cuts images of 8 × 8 pixels into 16 patches and learns which of ten digits each image shows.",
      "Draw a digit: the model says what it takes it for, while it trains and after.",
    ],
    setup: STARTS.images,
    isOf: ({ data }) => data.kind === "digits",
  },
];
