import { fileURLToPath } from "node:url";

export default {
  mode: "production",
  context: fileURLToPath(new URL(".", import.meta.url)),
  entry: "./main.js",
  output: { path: fileURLToPath(new URL("./dist", import.meta.url)), filename: "main.js" },
  // The engine is one file of more than a megabyte.
  performance: { hints: false },
};
