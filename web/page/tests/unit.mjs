// Unit tests: every tests/*.test.ts, through Vite, as the page is built.

import { readdirSync } from "node:fs";
import { createServer } from "vite";
import { Runner } from "./harness.mjs";

const folder = new URL(".", import.meta.url);
const vite = await createServer({
  root: new URL("..", import.meta.url).pathname,
  appType: "custom",
  logLevel: "error",
  server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  optimizeDeps: { noDiscovery: true },
});
const runner = new Runner();
for (const file of readdirSync(folder).filter((name) => name.endsWith(".test.ts")).sort()) {
  const { tests } = await vite.ssrLoadModule(new URL(file, folder).pathname);
  for (const [name, body] of Object.entries(tests)) {
    await runner.test(`${file.replace(".test.ts", "")}::${name}`, body);
  }
}
await vite.close();
process.exit(runner.finish());
