// The settings as they're shown: in what groups, and under which words.

import { SETTINGS, type Setting, type Table } from "../settings";

export interface Group {
  title: string;
  fields: readonly Setting[];
  more: readonly Setting[];
}

const group = (title: string, ...tables: Table[]): Group => {
  const shown = tables.flatMap((table) =>
    SETTINGS.filter((setting) => setting.table === table && setting.label !== undefined),
  );
  return {
    title,
    fields: shown.filter(({ more }) => more !== true),
    more: shown.filter(({ more }) => more === true),
  };
};

export const GROUPS: readonly Group[] = [
  group("Model", "model"),
  { ...group("Training", "train", "data"), fields: group("Training", "train").fields },
  group("Saving memory", "run", "memory", "lora"),
];

/** Those that are shown with what is trained on. */
export const DATA_FIELDS: readonly Setting[] = group("Data", "data").fields;

/** Words of settings, where they aren't shown as they are. */
const TEXTS: Partial<Record<string, string>> = {
  gpt2: "GPT-2",
  llama: "Llama",
  mistral: "Mistral",
  qwen2: "Qwen2",
  qwen3: "Qwen3",
  gemma2: "Gemma 2",
  gemma3: "Gemma 3",
  phi3: "Phi-3",
  smollm3: "SmolLM3",
  olmo2: "OLMo 2",
  vit: "ViT",
  byte: "bytes",
  adamw: "AdamW",
  lion: "Lion",
  muon: "Muon",
  adafactor: "Adafactor",
  sgd: "SGD",
  block: "every block",
  sqrt: "√ of the blocks",
  32: "32 bits",
  16: "16 bits",
  8: "8 bits",
};

/** Lists of what the host keeps, from nothing on: each more takes more bytes off the GPU, and more time. */
function lists(choices: readonly string[]): string[] {
  return ["", ...choices.map((_, last) => choices.slice(0, last + 1).join(","))];
}

const RECOMPUTE = ["auto", "none", "block", "sqrt", "every:2", "every:3", "every:4"];

/** What to choose from, each with its words; `null` where a value is typed. */
export function optionsOf({ key, rule }: Setting): readonly (readonly [string, string])[] | null {
  if (rule.type === "list" && rule.choices !== undefined) {
    return lists(rule.choices).map((value) => [value, value === "" ? "nothing" : value.replaceAll(",", ", ")]);
  }
  const values = key === "recompute" ? RECOMPUTE : rule.type === "choice" ? rule.choices : null;
  if (values === null) return null;
  return values.map((value) => {
    const every = /^every:(\d+)$/.exec(String(value));
    return [String(value), every === null ? (TEXTS[value] ?? String(value)) : `every ${every[1]} blocks`];
  });
}

export const DATA_KINDS = [
  ["built-in", "Built-in text"],
  ["text", "Your text"],
  ["digits", "Digits"],
  ["sort", "Sort"],
  ["reverse", "Reverse"],
  ["add", "Add"],
] as const;

export const DATA_HINTS: Record<string, string> = {
  "built-in": "Plays by Shakespeare.",
  text: "Paste or drop any text; it stays in this tab.",
  digits: "1,797 scanned digits of 8 × 8 pixels. Held-out images tell whether it knows them.",
  sort: "Learns to sort digits. Held-out problems tell whether it did.",
  reverse: "Learns to write digits backwards. Held-out problems tell whether it did.",
  add: "Learns to add. Held-out problems tell whether it did.",
};
