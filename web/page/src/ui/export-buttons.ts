// The map as files.

import { themeOf } from "../arena/paint";
import type { Planned } from "../engine/types";
import { csvOf } from "../export/csv";
import { pngOf } from "../export/png";
import { svgOf } from "../export/svg";
import { offerDownload } from "../files";
import { button } from "./dom";

const NAME = "tightrope-map";

const FORMATS: readonly [name: string, made: (planned: Planned, host: HTMLElement) => Blob | Promise<Blob>][] = [
  ["SVG", (planned, host) => new Blob([svgOf(planned, themeOf(host))], { type: "image/svg+xml" })],
  ["PNG", (planned, host) => pngOf(planned, themeOf(host))],
  ["CSV", (planned) => new Blob([csvOf(planned)], { type: "text/csv" })],
];

/** Adds a button for each format of the map that is shown. */
export function saveMapAs(host: HTMLElement, shown: () => Planned | null): void {
  for (const [name, made] of FORMATS) {
    const item = button(name, async () => {
      const planned = shown();
      if (planned !== null) offerDownload(`${NAME}.${name.toLowerCase()}`, await made(planned, host));
    });
    item.setAttribute("aria-label", `Save the map as ${name}`);
    host.append(item);
  }
}
