// Rows from the columns that the kernel sends.

import type { Phase, PlanOp, PlanTensor, TensorClass } from "../../page/src/engine/types";
import type { Columns, NotebookPlan, Words } from "./model";

type Numbers = Float64Array | Uint32Array;

/** Where a message lies in memory isn't aligned, so its numbers are copied. */
function copied({ buffer, byteOffset, byteLength }: DataView): ArrayBuffer {
  return (buffer as ArrayBuffer).slice(byteOffset, byteOffset + byteLength);
}

/** Numbers of 64 bits: bytes, offsets, seconds. */
export const floats = (column: DataView): Float64Array => new Float64Array(copied(column));
const integers = (column: DataView): Uint32Array => new Uint32Array(copied(column));

const number = (column: Numbers, row: number): number => column[row] ?? 0;

function texts({ words, at }: Words): string[] {
  return [...integers(at)].map((place) => words[place] ?? "");
}

export function planOf({ figures, ops, tensors }: Columns): NotebookPlan {
  return { ...figures, program: { name: "step", ops: opsOf(ops), tensors: tensorsOf(tensors) } };
}

function opsOf(columns: Columns["ops"]): PlanOp[] {
  const [op, phase] = [texts(columns.op), texts(columns.phase)];
  const [seconds, live] = [floats(columns.seconds), floats(columns.live)];
  return columns.name.map((name, row) => ({
    op: op[row] ?? "",
    name,
    phase: phase[row] as Phase,
    seconds: number(seconds, row),
    live: number(live, row),
  }));
}

function tensorsOf(columns: Columns["tensors"]): PlanTensor[] {
  const [type, kind] = [texts(columns.type), texts(columns.class)];
  const [offset, bytes, again] = [floats(columns.offset), floats(columns.bytes), floats(columns.again_s)];
  const [birth, death, kept] = [integers(columns.birth), integers(columns.death), integers(columns.kept)];
  const [readers, readBy] = [integers(columns.readers), integers(columns.read_by)];
  let begin = 0;
  return columns.name.map((name, row) => {
    const end = begin + number(readers, row);
    const tensor: PlanTensor = {
      name,
      type: type[row] ?? "",
      class: kind[row] as TensorClass,
      offset: number(offset, row),
      bytes: number(bytes, row),
      birth: number(birth, row),
      death: number(death, row),
      kept: number(kept, row) === 1,
      read_by: [...readBy.subarray(begin, end)],
      again_s: Number.isNaN(again[row]) ? null : number(again, row),
    };
    begin = end;
    return tensor;
  });
}
