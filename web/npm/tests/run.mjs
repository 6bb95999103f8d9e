// The package as its users have it: packed, unpacked, bundled, and run in Chromium.
//
//   node tests/run.mjs --work FOLDER --binary FILE [--only WORD]
//
// FOLDER is made anew; FILE is the command `tightrope`, whose losses are compared with. Screenshots stay in FOLDER.

import { parseArgs } from "node:util";
import { launch } from "../../page/tests/browser.mjs";
import { Runner } from "../../page/tests/harness.mjs";
import { Consumer } from "./consumer.mjs";
import * as examples from "./examples.mjs";
import * as mishaps from "./mishaps.mjs";
import * as policies from "./policies.mjs";
import * as published from "./published.mjs";
import * as training from "./training.mjs";

const { values: options } = parseArgs({
  options: {
    work: { type: "string" },
    binary: { type: "string" },
    only: { type: "string", default: "" },
  },
});

const runner = new Runner();
const consumer = await Consumer.make(options.work, options.binary);
consumer.withGpu = await launch();
// A GPU that is emulated takes seconds to open: what isn't about it is tried without one.
consumer.withoutGpu = await launch({ hasWebGpu: false });
for (const { tests } of [published, training, mishaps, policies, examples]) {
  for (const [name, body] of Object.entries(tests).filter(([name]) => name.includes(options.only))) {
    const start = performance.now();
    await runner.test(name, () => consumer.watch(body));
    console.log(`  ${((performance.now() - start) / 1000).toFixed(1)} s`);
  }
}
await consumer.withGpu.close();
await consumer.withoutGpu.close();
consumer.close();
process.exit(runner.finish());
