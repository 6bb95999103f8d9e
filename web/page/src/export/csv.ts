// A plan's tensors as a table that spreadsheets and data frames read.

import type { PlanTensor, Planned } from "../engine/types";

type Cell = string | number | boolean;

const COLUMNS: readonly [name: string, cell: (tensor: PlanTensor, planned: Planned) => Cell][] = [
  ["name", ({ name }) => name],
  ["class", (tensor) => tensor.class],
  ["type", ({ type }) => type],
  ["bytes", ({ bytes }) => bytes],
  ["offset", ({ offset }) => offset],
  ["first_op", ({ birth }) => birth],
  ["last_op", ({ death }) => death],
  ["kept_between_steps", ({ kept }) => kept],
  ["made_by", ({ birth, kept }, planned) => (kept ? "" : (planned.program.ops[birth]?.op ?? ""))],
  ["made_in", ({ birth, kept }, planned) => (kept ? "" : (planned.program.ops[birth]?.phase ?? ""))],
  ["recompute_s", ({ again_s }) => again_s ?? ""],
];

/** The tensors of the shown program, a row each. */
export function csvOf(planned: Planned): string {
  const head = COLUMNS.map(([name]) => name);
  const rows = planned.program.tensors.map((tensor) => COLUMNS.map(([, cell]) => quoted(cell(tensor, planned))));
  return [head, ...rows].map((cells) => `${cells.join(",")}\r\n`).join("");
}

/** A cell, in quotes where it holds what separates cells. */
function quoted(cell: Cell): string {
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
