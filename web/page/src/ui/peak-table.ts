// The map's alternative for those who don't see it: the tensors alive at the peak.

import { aliveAt, peakStep } from "../arena/geometry";
import type { PlanTensor, Planned } from "../engine/types";
import { exact } from "../format";
import { make } from "./dom";

const COLUMNS = ["Tensor", "Class", "Type", "Bytes", "Offset", "Made by", "Last read by"];

/** Fills the table when its disclosure is open. */
export class PeakTable {
  readonly #details: HTMLDetailsElement;
  readonly #host: HTMLElement;
  #planned: Planned | null = null;
  #isFresh = false;

  constructor(details: HTMLDetailsElement) {
    this.#details = details;
    this.#host = details.querySelector(".scroll") as HTMLElement;
    details.addEventListener("toggle", () => this.#fill());
  }

  show(planned: Planned): void {
    this.#planned = planned;
    this.#isFresh = false;
    this.#fill();
  }

  #fill(): void {
    if (this.#planned === null || this.#isFresh || !this.#details.open) return;
    this.#isFresh = true;
    const { name: program, ops, tensors } = this.#planned.program;
    const step = peakStep(ops);
    const alive = aliveAt(tensors, step)
      .map((index) => tensors[index] as PlanTensor)
      .sort((a, b) => b.bytes - a.bytes);
    const name = (index: number | undefined): string =>
      index === undefined ? "–" : `${index} ${ops[index]?.op ?? ""}`;
    const rows = alive.map((tensor) =>
      make(
        "tr",
        {},
        make("td", {}, tensor.name),
        make("td", {}, tensor.class),
        make("td", {}, tensor.type),
        make("td", {}, exact(tensor.bytes)),
        make("td", {}, exact(tensor.offset)),
        make("td", {}, tensor.kept ? "kept" : name(tensor.birth)),
        make("td", {}, tensor.kept ? "kept" : name(tensor.read_by.at(-1))),
      ),
    );
    const where = `step ${step} (${ops[step]?.op ?? ""}) of program “${program}”`;
    const caption = `${alive.length} tensors alive at ${where}`;
    const heads = COLUMNS.map((text) => make("th", { scope: "col" }, text));
    this.#host.replaceChildren(
      make(
        "table",
        {},
        make("caption", {}, caption),
        make("thead", {}, make("tr", {}, ...heads)),
        make("tbody", {}, ...rows),
      ),
    );
  }
}
