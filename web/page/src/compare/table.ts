// What differs between two plans, as a table.

import type { Planned } from "../engine/types";
import { bytes, duration } from "../format";
import { make } from "../ui/dom";
import { bytesChange, compare, secondsChange } from "./compare";

/** Rows of the peak, classes, the predicted step, and choices; the columns are the plans, by these names. */
export function differencesTable(first: Planned, second: Planned, names: readonly [string, string]): HTMLTableElement {
  const { peak, step, classes, choices } = compare(first, second);
  const rows = [
    row(["Peak"], bytes(peak.first), bytes(peak.second), bytesChange(peak)),
    ...classes.map((figure) => {
      const name = [make("i", { class: `swatch-${figure.name}` }), figure.name];
      return row(name, bytes(figure.first), bytes(figure.second), bytesChange(figure));
    }),
    row(["Predicted step"], duration(step.first), duration(step.second), secondsChange(step)),
    ...choices.map((choice) => {
      const texts = row([choice.name], choice.first, choice.second, "");
      texts.className = "choice";
      return texts;
    }),
  ];
  const heads = ["At the peak", ...names, "Change"].map((text) => make("th", { scope: "col" }, text));
  return make(
    "table",
    {},
    make("caption", { class: "unseen" }, "What differs between the two plans"),
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...rows),
  );
}

function row(name: (Node | string)[], ...cells: string[]): HTMLTableRowElement {
  const texts = cells.map((text) => make("td", {}, text));
  return make("tr", {}, make("th", { scope: "row" }, ...name), ...texts);
}
