// The engine in a real browser: conformance, the same curve on every device, checkpoints that move between them,
// a model that needs its tables bound in windows, memory that stays flat, lost devices.
//
//   node run.mjs --modules DIR --binary FILE --unsupported FILE [--only WORD]
//
// DIR holds engine/tightrope_web.js and conformance/conformance_browser.js; FILE is the native binary. Prints a
// line a test, and one that counts them.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    modules: { type: "string" },
    binary: { type: "string" },
    unsupported: { type: "string" },
    only: { type: "string", default: "" },
  },
});

// The page's own dependency, so that one lock file says which.
const require = createRequire(new URL("../../web/page/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--disable-quic",
];
const KINDS = { ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html" };

// Relative paths below the folder of modules, and an empty page to load them in.
function serve(folder) {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url, "http://localhost").pathname);
    if (path === "/") {
      response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>tests</title>");
      return;
    }
    try {
      const body = readFileSync(join(folder, path));
      response.writeHead(200, { "content-type": KINDS[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

function assert(condition, message) {
  if (!condition) throw new Error(message);
}

// Runs `work` with an engine in the page. Its argument must be plain data.
function withEngine(page, device, defaultLimits, work, argument = null) {
  const source = `async (device, defaultLimits, argument) => {
    const module = await import("/engine/tightrope_web.js");
    await module.default({ module_or_path: "/engine/tightrope_web_bg.wasm" });
    const engine = await module.Engine.open(device, defaultLimits);
    try { return await (${work})(engine, argument); } finally { engine.close(); }
  }`;
  return page.evaluate(
    ([source, ...rest]) => (0, eval)(`(${source})`)(...rest),
    [source, device, defaultLimits, argument],
  );
}

// A small GPT-2 on the built-in text, the same in both languages.
const SMALL = {
  model: { family: "gpt2", layers: 2, channels: 64, heads: 4, context: 32, dropout: 0 },
  train: { batch: 8, micro_batch: 4, steps: 120, lr: 0.002, seed: 7 },
  memory: { recompute: "none" },
  data: { kind: "built-in" },
  run: { precision: "f32" },
};
const SMALL_FLAGS =
  "--layers 2 --channels 64 --heads 4 --context 32 --set model.dropout=0 --batch 8 --micro-batch 4 " +
  "--steps 120 --lr 0.002 --seed 7 --recompute none --precision f32";
const CURVE = 100;
const APART = 1e-3;

function native(directory, words) {
  const done = spawnSync(options.binary, words.split(" "), { cwd: directory, encoding: "utf8" });
  assert(done.status === 0, `tightrope ${words} ended with ${done.status}: ${done.stderr}`);
  return done.stdout;
}

function losses(directory, run) {
  const lines = readFileSync(join(directory, run, "metrics.jsonl"), "utf8").trim().split("\n");
  return lines.map((line) => JSON.parse(line)).filter((line) => line.loss !== undefined);
}

// Losses of the small model on a native device, trained once.
function curve(directory, device) {
  const run = `curve-${device}`;
  if (!existsSync(join(directory, run))) {
    native(directory, `train --device ${device} ${SMALL_FLAGS} --log-every 1 --eval-every 0 --out ${run}`);
  }
  return losses(directory, run).map((line) => line.loss);
}

function apart(name, one, other) {
  assert(one.length > 0 && one.length === other.length, `${name}: ${one.length} and ${other.length} losses`);
  const worst = one.reduce((worst, loss, step) => Math.max(worst, Math.abs(loss - other[step])), 0);
  console.log(`  ${name}: at most ${worst.toExponential(1)} apart over ${one.length} steps`);
  assert(worst <= APART, `${name} are ${worst} apart: ${one.slice(0, 5)} and ${other.slice(0, 5)} to begin with`);
}

const tests = [];
const test = (name, work) => tests.push({ name, work });

// What draws cases, as the native tests have it: words, or today's date; nothing where all are tried.
const DRAWN_BY = process.env.TIGHTROPE_DRAW ?? new Date().toISOString().slice(0, 10);
const drawnBy = DRAWN_BY === "all" ? undefined : DRAWN_BY;

// `count` of the items in their order, drawn by the words and the name `what`; all of them where everything is tried.
function drawn(what, items, count) {
  if (drawnBy === undefined) return items;
  // FNV-1a.
  const place = (item) =>
    [...`${drawnBy} ${what} ${item}`].reduce((hash, it) => Math.imul(hash ^ it.codePointAt(0), 0x01000193) >>> 0, 0x811c9dc5);
  const taken = [...items].sort((one, other) => place(one) - place(other)).slice(0, count);
  console.log(`${count} of ${items.length} ${what} drawn by ${drawnBy}: ${taken.join(", ")}`);
  return items.filter((item) => taken.includes(item));
}

for (const defaultLimits of [true, false]) {
  const which = defaultLimits ? "default" : "the adapter's";
  test(`conformance with ${which} limits`, async (page) => {
    const unsupported = options.unsupported ? readFileSync(options.unsupported, "utf8") : "";
    const text = await page.evaluate(
      async ([defaultLimits, drawnBy, unsupported]) => {
        const module = await import("/conformance/conformance_browser.js");
        await module.default({ module_or_path: "/conformance/conformance_browser_bg.wasm" });
        return module.check(defaultLimits, drawnBy, unsupported);
      },
      [defaultLimits, drawnBy, unsupported],
    );
    const report = JSON.parse(text);
    if (drawnBy !== undefined) console.log(`a part of the cases, drawn by TIGHTROPE_DRAW=${drawnBy}`);
    console.log(`${report.device}: ${report.passed} cases passed\n${report.table}`);
    assert(report.problems.length === 0, report.problems.join("\n"));
    assert(report.passed > (drawnBy === undefined ? 300 : 50), `only ${report.passed} cases ran`);
  });
}

test("the same curve on the CPU, native wgpu and in the browser", async (page, directory) => {
  const curves = {};
  for (const device of ["cpu", "wgpu"]) {
    curves[device] = curve(directory, device).slice(0, CURVE);
  }
  for (const device of ["cpu", "webgpu"]) {
    curves[`browser ${device}`] = await withEngine(
      page,
      device,
      false,
      `async (engine, [setup, steps]) => {
        await engine.start(JSON.stringify(setup), undefined, undefined);
        const losses = [];
        for (let step = 0; step < steps; step++) losses.push(JSON.parse(await engine.step(1))[0].loss);
        return losses;
      }`,
      [SMALL, CURVE],
    );
  }
  for (const [name, curve] of Object.entries(curves)) apart(`cpu and ${name}`, curves.cpu, curve);
});

const ANYWHERE = "a checkpoint of any device goes on on any other";
const LARGE = "GPT-2 124M under the default limits";
const LONG = "2,000 steps leave memory as it is";
const SLOW = [ANYWHERE, LARGE, LONG];

test(ANYWHERE, async (page, directory) => {
  const whole = curve(directory, "cpu");
  const tar = await withEngine(
    page,
    "webgpu",
    false,
    `async (engine, setup) => {
      await engine.start(JSON.stringify(setup), undefined, undefined);
      await engine.step(60);
      return Array.from(await engine.checkpoint());
    }`,
    SMALL,
  );
  writeFileSync(join(directory, "browser.tar"), Uint8Array.from(tar));
  for (const device of ["cpu", "wgpu"]) {
    native(directory, `train --device ${device} --resume browser.tar --log-every 1 --out from-browser-${device}`);
    const rest = losses(directory, `from-browser-${device}`).map((line) => line.loss);
    apart(`${device} from the browser's checkpoint and without`, rest, whole.slice(-rest.length));
  }
  for (const device of ["cpu", "wgpu"]) {
    const flags = SMALL_FLAGS.replace("--steps 120", "--steps 60") + " --schedule constant";
    native(directory, `train --device ${device} ${flags} --log-every 1 --out to-browser-${device}`);
    const packed = spawnSync("tar", ["-cf", `${device}.tar`, "-C", `to-browser-${device}/checkpoints/step-60`, "."], {
      cwd: directory,
    });
    assert(packed.status === 0, "tar failed");
    const resumed = await withEngine(
      page,
      "webgpu",
      false,
      `async (engine, [setup, bytes]) => {
        const text = await engine.start(JSON.stringify(setup), undefined, Uint8Array.from(bytes));
        const first = JSON.parse(await engine.step(1))[0];
        return { start: JSON.parse(text), first };
      }`,
      [
        { ...SMALL, train: { ...SMALL.train, steps: 61, schedule: "constant" } },
        Array.from(readFileSync(join(directory, `${device}.tar`))),
      ],
    );
    assert(resumed.start.step === 60, `went on at step ${resumed.start.step}`);
    native(directory, `train --resume to-browser-${device} --steps 61 --device ${device} --log-every 1`);
    const expected = losses(directory, `to-browser-${device}`).at(-1).loss;
    apart(`step 61 in the browser and on ${device}`, [resumed.first.loss], [expected]);
  }
});

test(LARGE, async (page) => {
  const setup = {
    model: { family: "gpt2", layers: 12, channels: 768, heads: 12, context: 64, vocab: 50304, dropout: 0 },
    train: { batch: 1, micro_batch: 1, steps: 3 },
    data: { kind: "text" },
    run: { precision: "f32" },
  };
  const seen = await withEngine(
    page,
    "webgpu",
    true,
    `async (engine, setup) => {
      // Every window has the same words, so that three steps have something to learn.
      const text = new TextEncoder().encode("a tensor lives from its first write to its last read. ".repeat(100));
      const start = JSON.parse(await engine.start(JSON.stringify(setup), text, undefined));
      const steps = [], bytes = [];
      for (let step = 0; step < 3; step++) {
        steps.push(JSON.parse(await engine.step(1))[0]);
        bytes.push(JSON.parse(engine.memory()).allocated_bytes);
      }
      return { start, steps, bytes };
    }`,
    setup,
  );
  console.log(`  losses ${seen.steps.map((step) => step.loss.toFixed(3))}; ${seen.start.allocated_bytes} bytes`);
  assert(seen.start.predicted_bytes === seen.start.allocated_bytes, "predicted and allocated differ");
  assert(seen.bytes.every((bytes) => bytes === seen.start.allocated_bytes), `bytes change: ${seen.bytes}`);
  assert(seen.steps.every((step) => Number.isFinite(step.loss) && step.updated), "a step wasn't made");
  assert(seen.steps[2].loss < seen.steps[0].loss, "the loss doesn't fall");
});

test(LONG, async (page) => {
  const setup = {
    ...SMALL,
    model: { ...SMALL.model, layers: 1, channels: 32, heads: 2, context: 16 },
    train: { ...SMALL.train, batch: 2, micro_batch: 2, steps: 2000 },
  };
  const seen = await withEngine(
    page,
    "webgpu",
    false,
    `async (engine, setup) => {
      await engine.start(JSON.stringify(setup), undefined, undefined);
      await engine.step(20);
      const before = JSON.parse(engine.memory());
      for (let done = 20; done < 2000; done += 20) await engine.step(20);
      return { before, after: JSON.parse(engine.memory()) };
    }`,
    setup,
  );
  console.log(`  GPU ${seen.after.allocated_bytes} bytes, wasm heap ${seen.after.wasm_heap_bytes}`);
  assert(seen.before.allocated_bytes === seen.after.allocated_bytes, "GPU memory grows");
  assert(seen.before.wasm_heap_bytes === seen.after.wasm_heap_bytes, "the heap grows");
});

test("a device lost at any moment is replaced and the curve stays", async (page) => {
  const MOMENTS = ["upload", "compile", "forward", "backward", "update", "readback", "idle", "save"];
  const moments = drawn("moments", MOMENTS, 3);
  const work = `async (engine, [setup, moment]) => {
    if (moment === "compile") engine.lose_device(moment);
    await engine.start(JSON.stringify(setup), undefined, undefined);
    const losses = [];
    for (let step = 0; step < 12; step++) {
      if (step === 5 && moment && moment !== "compile") engine.lose_device(moment);
      if (step === 7) await engine.checkpoint();
      losses.push(JSON.parse(await engine.step(1))[0].loss);
    }
    return { losses, recoveries: engine.recoveries() };
  }`;
  const undisturbed = await withEngine(page, "webgpu", false, work, [SMALL, null]);
  assert(undisturbed.recoveries === 0, "lost without being told to");
  for (const moment of moments) {
    const seen = await withEngine(page, "webgpu", false, work, [SMALL, moment]);
    assert(seen.recoveries === 1, `${moment}: ${seen.recoveries} recoveries`);
    assert(
      JSON.stringify(seen.losses) === JSON.stringify(undisturbed.losses),
      `${moment}: the curve changes: ${seen.losses} instead of ${undisturbed.losses}`,
    );
  }
});

const directory = mkdtempSync(join(tmpdir(), "tightrope-browser-"));
const server = await serve(options.modules);
const browser = await chromium.launch({ executablePath: BROWSER, args: FLAGS, headless: true });
let passed = 0;
let failed = 0;
// One that is named runs whether it's drawn or not.
const slow = options.only ? SLOW : drawn("tests that take long", SLOW, 1);
const isAsked = ({ name }) => name.includes(options.only) && (slow.includes(name) || !SLOW.includes(name));
for (const { name, work } of tests.filter(isAsked)) {
  const page = await browser.newPage();
  const start = performance.now();
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await work(page, directory);
    passed += 1;
    console.log(`test ${name} ... ok (${((performance.now() - start) / 1000).toFixed(0)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`test ${name} ... FAILED\n${error.stack}`);
  } finally {
    await page.close();
  }
}
await browser.close();
server.close();
rmSync(directory, { recursive: true });
console.log(`test result: ${failed ? "FAILED" : "ok"}. ${passed} passed; ${failed} failed; 0 ignored;`);
process.exit(failed ? 1 : 0);
