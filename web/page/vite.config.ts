import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

// `--mode mock` puts a pretended engine in place of the wasm module, to work on the page alone. Other
// builds don't contain it.
export default defineConfig(({ mode }) => ({
  // Relative, so that the build works from any folder of any static server.
  base: "./",
  resolve: {
    alias:
      mode === "mock"
        ? [{ find: "./engine/load", replacement: here("./src/dev/mock-engine.ts") }]
        : [],
  },
  build: {
    outDir: mode === "mock" ? "dist-mock" : "dist",
    target: "es2022",
    // Everything is a file of its own: the policy allows no `data:` script, font or wasm.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  worker: { format: "es" },
}));
