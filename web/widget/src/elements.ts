// Elements that several views have.

import { make } from "../../page/src/ui/dom";

const KEYS = "Left and right arrow keys change the step, up and down the tensor.";

/** Where a map goes. `detail` is the id of the element that says what it points at. */
export function arena(detail: string, name = "Tensors of one training step"): HTMLElement {
  return make("div", {
    class: "arena",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map of the arena",
    "aria-label": `${name}: time to the right, offsets upwards. ${KEYS}`,
    "aria-describedby": detail,
  });
}

/** A number with its name, and what else there's to say of it. */
export function figure(name: string, value: string, note = ""): HTMLElement {
  const term = make("dd", { "data-figure": name }, value);
  if (note !== "") term.append(make("small", {}, note));
  return make("div", {}, make("dt", {}, name), term);
}
