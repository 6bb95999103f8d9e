// Elements that several views have.

import { make } from "../../page/src/ui/dom";

/** A number with its name, and what else there's to say of it. */
export function figure(name: string, value: string, note = ""): HTMLElement {
  const term = make("dd", { "data-figure": name }, value);
  if (note !== "") term.append(make("small", {}, note));
  return make("div", {}, make("dt", {}, name), term);
}
