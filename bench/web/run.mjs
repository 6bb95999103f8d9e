// Side by side in one Chromium on one adapter: matmul and one GPT training step by each contestant, in turn.
//
//   node run.mjs [--rounds N] [--only name,name] [--adapter swiftshader|default] [--chromium PATH]
//
// Prints a table. Writes bench/results/web-DATE.json, unless --only leaves contestants out. Tightrope's module
// is built by `cargo xtask web`.

import { createServer } from "node:http";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { build } from "esbuild";
import { chromium } from "playwright-core";

import { processorMs } from "./processes.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
/** What wasm-bindgen wrote. */
const ENGINE = here("../../web/page/src/wasm");
const RESULTS = here("../results");

/** One entry point each; `package` names where its version stands. */
const CONTESTANTS = [
  { name: "tightrope", package: null },
  { name: "jax", package: "@jax-js/jax" },
  { name: "tfjs", package: "@tensorflow/tfjs-backend-webgpu" },
];

const EXTENT = 512;
/** Products between two waits. */
const PRODUCTS = 10;
/** Training steps of one measurement, read back at its end, or one by one: whichever is faster counts. */
const STEPS = 2;
/** The first losses from the same weights, and by how much they may differ. */
const LOSSES = 5;
const LOSS_TOLERANCE = 1e-3;
/** Absolute difference of a product of unit variance from the definition's. */
const PRODUCT_TOLERANCE = 1e-4;
/** Kernels are compiled on first use, and SwiftShader takes its time. */
const TIMEOUT_MS = 300_000;

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    only: { type: "string" },
    adapter: { type: "string", default: "swiftshader" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});

function chosen() {
  const names = options.only?.split(",") ?? CONTESTANTS.map(({ name }) => name);
  const unknown = names.find((name) => !CONTESTANTS.some((contestant) => contestant.name === name));
  if (unknown !== undefined) throw new Error(`no contestant \`${unknown}\``);
  if (names.includes("tightrope") && !existsSync(ENGINE)) {
    throw new Error(`${ENGINE} isn't there: run \`cargo xtask web\`, or leave tightrope out with --only`);
  }
  return CONTESTANTS.filter(({ name }) => names.includes(name));
}

/** The files of a folder and a page for each contestant, on a port of the system's choice. */
async function serve(folder) {
  const types = { ".js": "text/javascript", ".wasm": "application/wasm" };
  const page = (name) =>
    `<!doctype html><meta charset="utf-8"><title>${name}</title>` +
    `<link rel="icon" href="data:,"><script type="module" src="/${name}.js"></script>`;
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, "http://localhost").pathname;
    const name = path.slice(1).replace(/\.html$/, "");
    if (CONTESTANTS.some((contestant) => contestant.name === name)) {
      response.setHeader("content-type", "text/html").end(page(name));
      return;
    }
    try {
      const body = await readFile(join(folder, path.replaceAll("..", "")));
      response.setHeader("content-type", types[extname(path)] ?? "application/octet-stream");
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

async function version(name) {
  const manifest = here(name === null ? "../../Cargo.toml" : `node_modules/${name}/package.json`);
  const text = await readFile(manifest, "utf8");
  return name === null ? /^version = "(.*)"$/m.exec(text)?.[1] : JSON.parse(text).version;
}

async function open(browser, origin, { name }) {
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) console.error(`${name}: ${message.text()}`);
  });
  page.on("pageerror", (error) => console.error(`${name}: ${error.message}`));
  await page.goto(`${origin}/${name}.html`);
  await page.waitForFunction(() => window.contestant !== undefined);
  const adapter = await page.evaluate(() => window.contestant.open());
  return { page, adapter };
}

const call = (page, method, ...input) =>
  page.evaluate(([method, input]) => window.contestant[method](...input), [method, input]);

/** Largest difference of a contestant's product from the definition's, over some of its elements. */
async function productError(page, factors) {
  const product = Object.values(await call(page, "product", EXTENT));
  const [a, b] = factors(EXTENT);
  const step = 997;
  let worst = 0;
  for (let at = 0; at < product.length; at += step) {
    const [row, column] = [Math.floor(at / EXTENT), at % EXTENT];
    let sum = 0;
    for (let k = 0; k < EXTENT; k++) sum += a[row * EXTENT + k] * b[k * EXTENT + column];
    worst = Math.max(worst, Math.abs(sum - product[at]));
  }
  return worst;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Wall and processor time of `count` calls' worth of work, in milliseconds of one. */
async function measured(count, work) {
  const before = await processorMs(browserProcess);
  const wall = await work();
  const after = await processorMs(browserProcess);
  const processor = before === undefined ? undefined : (after - before) / count;
  return { wall: wall / count, processor };
}

/** One measurement of everything. */
async function round({ page, matmul, alone, together, losses }) {
  await page.bringToFront();
  const product = async () => PRODUCTS * (await call(page, "matmul", EXTENT, PRODUCTS));
  const train = async (steps) => {
    const trained = await call(page, "train", steps);
    losses.push(...trained.losses);
    return trained.ms;
  };
  const oneByOne = async () => {
    let ms = 0;
    for (let step = 0; step < STEPS; step++) ms += await train(1);
    return ms;
  };
  matmul.push(await measured(PRODUCTS, product));
  alone.push(await measured(STEPS, oneByOne));
  together.push(await measured(STEPS, () => train(STEPS)));
}

/** Medians of samples, each by itself. */
function medians(samples) {
  const of = (key) => median(samples.map((sample) => sample[key]));
  return { wall: of("wall"), processor: samples[0].processor === undefined ? null : of("processor") };
}

function summary({ name, version, adapter, error, matmul, alone, together, losses }) {
  const product = medians(matmul);
  const [one, several] = [medians(alone), medians(together)];
  const step = one.wall < several.wall ? one : several;
  return {
    name,
    version,
    adapter,
    matmul_ms: product.wall,
    matmul_processor_ms: product.processor,
    matmul_gflops: (2 * EXTENT ** 3) / product.wall / 1e6,
    matmul_max_abs_err: error,
    step_ms: step.wall,
    step_processor_ms: step.processor,
    steps_between_reads: step === one ? 1 : STEPS,
    losses,
    measured: { matmul, step_read_each: alone, [`step_read_every_${STEPS}`]: together },
  };
}

/** What makes the comparison void. */
function problems(rows) {
  const list = [];
  for (const { name, losses, matmul_max_abs_err: error } of rows) {
    if (!(losses.at(-1) < losses[0])) {
      list.push(`${name}: the loss went from ${losses[0]} to ${losses.at(-1)}`);
    }
    if (!(error < PRODUCT_TOLERANCE)) list.push(`${name}: the product is off by ${error}`);
    const apart = (loss, step) => Math.abs(loss - rows[0].losses[step]);
    const most = Math.max(...losses.slice(0, LOSSES).map(apart));
    if (!(most < LOSS_TOLERANCE)) list.push(`${name}: a loss is ${most} from ${rows[0].name}'s`);
  }
  return list;
}

const contestants = chosen();
const dist = here("dist");
await build({
  entryPoints: contestants.map(({ name }) => here(`src/${name}.ts`)),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  loader: { ".wasm": "file" },
  outdir: dist,
  logLevel: "warning",
});
await build({ entryPoints: [here("src/case.ts")], format: "esm", outdir: dist, logLevel: "warning" });
const { factors } = await import(new URL("dist/case.js", import.meta.url));

const { server, origin } = await serve(dist);
const flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--disable-background-networking"];
flags.push("--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic");
if (options.adapter !== "default") flags.push(`--use-webgpu-adapter=${options.adapter}`);
const launched = await chromium.launchServer({
  executablePath: options.chromium,
  headless: true,
  args: flags,
});
const browserProcess = launched.process().pid;
const entries = [];
let browserVersion;
try {
  const browser = await chromium.connect(launched.wsEndpoint());
  browserVersion = browser.version();
  for (const contestant of contestants) {
    const { page, adapter } = await open(browser, origin, contestant);
    const error = await productError(page, factors);
    await call(page, "prepare");
    // The first of everything compiles kernels; only its losses count. Later, a contestant may give but the last
    // of several.
    const started = performance.now();
    await call(page, "matmul", EXTENT, 1);
    const losses = [];
    while (losses.length < LOSSES) losses.push(...(await call(page, "train", 1)).losses);
    const seconds = ((performance.now() - started) / 1e3).toFixed(1);
    console.error(`${contestant.name}: warm after ${seconds} s on ${adapter}`);
    const { name } = contestant;
    const versioned = { name, version: await version(contestant.package), adapter };
    entries.push({ ...versioned, page, error, matmul: [], alone: [], together: [], losses });
  }
  for (let index = 0; index < Number(options.rounds); index++) {
    for (const entry of entries) await round(entry);
    console.error(`round ${index + 1} of ${options.rounds}, load average ${loadavg()[0].toFixed(1)}`);
  }
} finally {
  await launched.close();
  server.close();
}

const rows = entries.map(summary);
const shown = (value, digits) => value?.toFixed(digits);
console.table(
  Object.fromEntries(
    rows.map((row) => [
      `${row.name} ${row.version}`,
      {
        "matmul ms": shown(row.matmul_ms, 1),
        "GFLOP/s": shown(row.matmul_gflops, 2),
        "processor ms": shown(row.matmul_processor_ms ?? undefined, 1),
        "step ms": shown(row.step_ms, 0),
        "step processor ms": shown(row.step_processor_ms ?? undefined, 0),
        "first loss": shown(row.losses[0], 5),
        "last loss": shown(row.losses.at(-1), 5),
      },
    ]),
  ),
);
const wrong = problems(rows);
for (const line of wrong) console.error(line);
if (wrong.length > 0) {
  process.exitCode = 1;
} else if (options.only === undefined) {
  const date = new Date().toISOString().slice(0, 10);
  const result = {
    date,
    command: ["node run.mjs", ...process.argv.slice(2)].join(" "),
    browser: browserVersion,
    flags,
    matmul: `${EXTENT}³ f32, ${PRODUCTS} products between waits`,
    model:
      "GPT-2, 4 layers x 128 channels x 4 heads, vocabulary 256, 8 x 64 tokens a step, f32, AdamW",
    rounds: Number(options.rounds),
    load_average: loadavg()[0],
    rows,
  };
  await mkdir(RESULTS, { recursive: true });
  await writeFile(join(RESULTS, `web-${date}.json`), `${JSON.stringify(result, null, 2)}\n`);
  console.log(`written: bench/results/web-${date}.json`);
}
