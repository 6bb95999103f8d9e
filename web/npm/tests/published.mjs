// What is published: its size, its files, its types.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./consumer.mjs";

/** Bytes that the package may take, packed. */
const LARGEST = 1_560_000;

export const tests = {
  the_package_is_small: ({ packed }) => {
    console.log(`  ${packed.filename}: ${packed.size} bytes packed, ${packed.unpackedSize} unpacked`);
    assert.ok(packed.size <= LARGEST, `${packed.size} bytes are more than ${LARGEST}`);
  },

  every_export_is_a_file_of_the_package: ({ installed }) => {
    const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    const entries = Object.values(manifest.exports).flatMap((entry) => {
      if (typeof entry === "string") return [entry];
      assert.equal(Object.keys(entry)[0], "types", "types come first");
      return Object.values(entry);
    });
    const files = [...entries, manifest.types, manifest.jsdelivr, manifest.unpkg, "README.md"];
    for (const file of files) assert.ok(existsSync(join(installed, file)), `${file} is missing`);
    assert.equal(manifest.sideEffects, false);
    const magic = readFileSync(join(installed, "dist/tightrope.wasm")).subarray(0, 4);
    assert.equal(magic.toString("latin1"), "\0asm");
  },

  types_serve_a_program_by_the_rules_of_node_and_of_bundlers: ({ folder }) => {
    cpSync(join(ROOT, "tests/typed"), join(folder, "typed"), { recursive: true });
    const compiler = join(ROOT, "node_modules/.bin/tsc");
    for (const [module, resolution] of [["nodenext", "nodenext"], ["esnext", "bundler"]]) {
      const words = ["--module", module, "--moduleResolution", resolution, "--project", join(folder, "typed")];
      try {
        execFileSync(compiler, words, { encoding: "utf8" });
      } catch (error) {
        assert.fail(`by ${resolution}: ${error.stdout}`);
      }
    }
  },

  importing_it_on_a_server_does_nothing: ({ folder }) => {
    const script = 'await import("tightrope-web"); await import("tightrope-web/map"); console.log("well");';
    const out = execFileSync("node", ["--input-type=module", "--eval", script], { cwd: folder, encoding: "utf8" });
    assert.equal(out, "well\n");
  },

  the_example_of_the_readme_is_the_plain_page: ({ installed, folder }) => {
    const readme = readFileSync(join(installed, "README.md"), "utf8");
    const page = readFileSync(join(folder, "plain/index.html"), "utf8");
    assert.ok(readme.includes(page.trim()), "README.md and examples/plain/index.html differ");
    assert.ok(page.trim().split("\n").length <= 40, "the plain page has more than 40 lines");
  },
};
