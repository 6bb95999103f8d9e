// The plan in tables: bytes by class, and what each layer takes.

import { ROWS } from "../../page/src/engine/types";
import { bytes, duration, exact, percent } from "../../page/src/format";
import { make } from "../../page/src/ui/dom";
import type { Layer, NotebookPlan } from "./model";

type Cell = string | Node;

/** A disclosure, and where its table goes. */
export function disclosure(title: string): HTMLDetailsElement {
  const region = { class: "scroll", tabindex: 0, role: "region", "aria-label": title };
  return make("details", { class: "peak-table" }, make("summary", {}, title), make("div", region));
}

function table(heads: readonly string[], rows: readonly (readonly Cell[])[]): HTMLTableElement {
  const head = heads.map((text) => make("th", { scope: "col" }, text));
  const body = rows.map(([first = "", ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...cells.map((cell) => make("td", {}, cell))),
  );
  return make("table", { class: "numbers" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

/** Bytes at the peak by class, and of gaps. */
export function classTable({ by_class, peak_bytes }: NotebookPlan): HTMLTableElement {
  const row = (name: Node, size: number): Cell[] => [name, exact(size), bytes(size), percent(size / peak_bytes)];
  const rows = ROWS.filter((name) => (by_class[name] ?? 0) > 0).map((name) =>
    row(make("span", {}, make("i", { class: `swatch-${name}` }), name), by_class[name]),
  );
  rows.push(row(make("span", {}, "peak"), peak_bytes));
  return table(["Class", "Bytes", "", "Of the peak"], rows);
}

/** What each block takes. Blocks that take the same share a row, which is of each of them. */
export function layerTable({ layers }: NotebookPlan): HTMLTableElement {
  const rows = layers.map((layer) => {
    const sizes = [layer.weight, layer.gradient, layer.optimizer, layer.kept].map(bytes);
    const times = [layer.forward_s, layer.backward_s, layer.recompute_s, layer.update_s];
    return [nameOf(layer), ...sizes, ...times.map((seconds) => (seconds > 0 ? duration(seconds) : "–"))];
  });
  const heads = ["Block", "Weights", "Gradients", "Optimizer", "Kept", "Forward", "Backward", "Recompute", "Update"];
  return table(heads, rows);
}

function nameOf({ blocks }: Layer): string {
  if (blocks === null) return "outside of blocks";
  const [first, last] = blocks;
  return first === last ? `${first}` : `${first} to ${last}, each`;
}
