// Builds the package into dist: the modules, the worker, the engine and the types.

import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const wasm = join(root, "../page/src/wasm/tightrope_web_bg.wasm");

/** `urls.js` stays a file of its own, word for word. */
const urls = {
  name: "urls",
  enforce: "pre",
  resolveId: (source) => (source.endsWith("/urls.js") ? { id: "./urls.js", external: true } : null),
};

const bundle = (lib, rest = {}) =>
  build({
    root,
    configFile: false,
    publicDir: false,
    logLevel: "warn",
    plugins: [urls],
    build: { lib, target: "es2022", outDir: dist, emptyOutDir: false, ...rest },
  });

/** Ends relative imports in declarations with `.js`, without which Node's rules don't find them. */
function completeImports(folder) {
  for (const entry of readdirSync(folder, { recursive: true })) {
    if (!entry.endsWith(".d.ts")) continue;
    const path = join(folder, entry);
    const text = readFileSync(path, "utf8");
    writeFileSync(path, text.replace(/(from |import\()"(\.[^"]*?)(\.js)?"/g, '$1"$2.js"'));
  }
}

rmSync(dist, { recursive: true, force: true });
await bundle(
  { entry: { index: "src/index.ts", map: "src/map.ts" }, formats: ["es"] },
  { rolldownOptions: { output: { chunkFileNames: "[name].js" } } },
);
// A classic script of its own: bundlers copy it, and pages of other origins can load it.
await bundle({ entry: "src/worker.ts", formats: ["iife"], name: "worker", fileName: () => "worker.js" });
copyFileSync(join(root, "src/urls.js"), join(dist, "urls.js"));
copyFileSync(wasm, join(dist, "tightrope.wasm"));
for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(join(root, "../..", licence), join(dist, licence));
execFileSync(join(root, "node_modules/.bin/tsc"), [], { cwd: root, stdio: "inherit" });
completeImports(join(dist, "types"));
