// The settings of a run: those that the engine lists, each of them optional, and what to train on.

import type { Settings as Listed } from "../../page/src/settings";
import type { DataKind as OfPage } from "../../page/src/setup";

/** What to train on. Images, and the merges of GPT-2's tokenizer, are files of the page. */
export type DataKind = Exclude<OfPage, "digits">;

type Tables = { [Table in keyof Listed]?: Partial<Listed[Table]> };

/** What to train, and how. What is left out is the command's default. */
export interface Settings extends Omit<Tables, "model" | "memory" | "data"> {
  model?: Partial<Listed["model"]> & {
    /** A known model, which gives every size left out. `Planner.presets` lists them. */
    preset?: string;
  };
  memory?: Omit<Partial<Listed["memory"]>, "budget"> & {
    /** Memory that the plan may use: bytes, or words such as "2GiB". */
    budget?: number | string | null;
  };
  data?: Omit<Partial<Listed["data"]>, "tokenizer"> & {
    /** What to train on: "built-in" is Shakespeare; "sort", "reverse" and "add" are tasks with known answers. */
    kind?: DataKind;
    /** A text of one's own. */
    text?: string | Uint8Array;
  };
}

/** Settings in the engine's form, and the text apart. */
export interface Asked {
  json: string;
  text: Uint8Array | null;
  /** Whether it trains on text, and not on a task. */
  isText: boolean;
}

export function asked({ data = {}, ...tables }: Settings): Asked {
  const { text, ...rest } = data;
  const kind = text === undefined ? rest.kind : "text";
  return {
    json: JSON.stringify({ ...tables, data: { ...rest, kind } }),
    text: typeof text === "string" ? new TextEncoder().encode(text) : (text ?? null),
    isText: kind === undefined || kind === "built-in" || kind === "text",
  };
}

/** `settings` with `changes` in them. */
export function merged(settings: Settings, changes: Settings): Settings {
  const tables = new Set([...Object.keys(settings), ...Object.keys(changes)]) as Set<keyof Settings>;
  return Object.fromEntries([...tables].map((table) => [table, { ...settings[table], ...changes[table] }]));
}
