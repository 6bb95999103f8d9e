// One ES module with its style in it, which the package for Python ships as `tightrope/static/widget.js`. The tools are those of
// the page, and so is most of the code.

import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

export default {
  // The style is taken as text by `src/style.ts`: a module that also loaded it as a file would ask the notebook for that file.
  resolve: { alias: [{ find: /^uplot\/dist\/uPlot\.min\.css$/, replacement: here("./src/empty.css") }] },
  build: {
    outDir: process.env.WIDGET_OUT ?? here("../../python/tightrope/static"),
    emptyOutDir: false,
    target: "es2022",
    lib: { entry: here("./src/index.ts"), formats: ["es"], fileName: () => "widget.js" },
  },
};
