// What the cursor points at, in words.

import type { Planned } from "../engine/types";
import { bytes } from "../format";
import { make } from "../ui/dom";
import { explain } from "./explain";

/** Where a map points. */
export interface Cursor {
  step: number;
  tensor: number | null;
}

const HINT =
  "Point at the map, or focus it and use the arrow keys, to see what a tensor is and why it’s alive.";

/** Fills `host` with the step and the tensor under the cursor; with a hint where there's none. */
export function showDetail(host: HTMLElement, planned: Planned | null, cursor: Cursor | null): void {
  if (planned === null || cursor === null) {
    host.replaceChildren(make("p", { class: "hint" }, HINT));
    return;
  }
  const step = planned.program.ops[cursor.step];
  const live = bytes(step?.live ?? 0);
  const where = `Step ${cursor.step} · ${step?.op ?? ""} · ${live} live`;
  const parts: Node[] = [make("p", { class: "hint" }, where)];
  if (cursor.tensor === null) {
    parts.push(make("p", { class: "hint" }, "Nothing is here at this step."));
  } else {
    const { title, rows } = explain(planned.program, cursor.tensor, cursor.step);
    const list = make("dl", {});
    for (const [name, value] of rows) list.append(make("dt", {}, name), make("dd", {}, value));
    parts.push(make("h3", {}, title), list);
  }
  host.replaceChildren(...parts);
}
