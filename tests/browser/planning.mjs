// How long every plan of a training step takes to find, as WebAssembly: `cargo xtask planning --wasm`.
//
//   node planning.mjs DIR PRESET BATCH PRECISION RUNS
//
// DIR holds conformance_browser.js. Prints the seconds of each run, as a list.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, preset, batch, precision, runs] = process.argv.slice(2);
const { initSync, sweep } = await import(pathToFileURL(join(folder, "conformance_browser.js")));
initSync({ module: readFileSync(join(folder, "conformance_browser_bg.wasm")) });

const seconds = Array.from({ length: Number(runs) }, () => {
  const start = performance.now();
  sweep(preset, Number(batch), precision);
  return (performance.now() - start) / 1000;
});
console.log(JSON.stringify(seconds));
