// A folder in which the packed package is installed, servers for it, and pages that have loaded it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { serve } from "./serve.mjs";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));
const WAIT_MS = 60_000;

/** What all tests and examples train: it takes moments, and the command takes the same. */
export const SETTINGS = {
  model: { layers: 2, channels: 64, heads: 4, context: 32, dropout: 0 },
  train: { batch: 8, steps: 40, lr: 0.002, seed: 7 },
};
const FLAGS =
  "--layers 2 --channels 64 --heads 4 --context 32 --set model.dropout=0 --batch 8 --steps 40 --lr 0.002 --seed 7";
/** By which losses of two devices may differ: what tests of the engine allow. */
const APART = 1e-3;

export class Consumer {
  /** Browsers, set by whoever launches them. */
  withGpu;
  withoutGpu;
  #contexts = [];
  #curve = null;

  static async make(work, binary) {
    const folder = resolve(work);
    rmSync(folder, { recursive: true, force: true });
    const modules = join(folder, "node_modules");
    const installed = join(modules, "tightrope-web");
    mkdirSync(installed, { recursive: true });
    const consumer = new Consumer();
    Object.assign(consumer, { folder, modules, installed, binary });
    const [packed] = JSON.parse(npm("pack", "--json", "--pack-destination", folder));
    consumer.packed = packed;
    execFileSync("tar", ["-xzf", join(folder, packed.filename), "-C", installed, "--strip-components=1"]);
    cpSync(join(ROOT, "examples"), folder, { recursive: true });
    cpSync(join(ROOT, "tests/lab"), join(folder, "lab"), { recursive: true });
    consumer.site = await serve(folder);
    consumer.cdn = await serve(installed, { headers: { "Access-Control-Allow-Origin": "*" } });
    return consumer;
  }

  /** Runs a test; its pages are closed after it. */
  async watch(body) {
    try {
      await body(this);
    } finally {
      await Promise.all(this.#contexts.splice(0).map((context) => context.close()));
    }
  }

  /** A page that keeps a list of what goes wrong in it. Pages of one context share their storage. */
  async open(url, { context, browser = this.withoutGpu } = {}) {
    const home = context ?? (await browser.newContext());
    if (context === undefined) this.#contexts.push(home);
    home.setDefaultTimeout(WAIT_MS);
    const page = await home.newPage();
    const wrong = [];
    page.on("pageerror", (error) => wrong.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") wrong.push(message.text());
    });
    await page.goto(new URL(url, this.site.origin).href);
    return { page, context: home, wrong };
  }

  /** A page that has the package as `tightrope`, and `SETTINGS` as `settings`. */
  async lab(options) {
    const lab = await this.open("/lab/", options);
    await lab.page.waitForFunction(() => globalThis.tightrope !== undefined);
    await lab.page.evaluate((settings) => Object.assign(globalThis, { settings }), SETTINGS);
    return lab;
  }

  /** Losses of the command on the same settings. */
  curve() {
    if (this.#curve !== null) return this.#curve;
    const words = `train --device cpu ${FLAGS} --precision f32 --log-every 1 --eval-every 0 --out curve`;
    execFileSync(this.binary, words.split(" "), { cwd: this.folder, stdio: "pipe" });
    const lines = readFileSync(join(this.folder, "curve/metrics.jsonl"), "utf8").trim().split("\n");
    this.#curve = lines.map((line) => JSON.parse(line).loss).filter((loss) => loss !== undefined);
    assert.equal(this.#curve.length, SETTINGS.train.steps);
    return this.#curve;
  }

  /** Holds losses, from the first step on, against the command's. */
  compare(losses, count = SETTINGS.train.steps) {
    const expected = this.curve().slice(0, count);
    assert.equal(losses.length, count);
    const worst = losses.reduce((worst, loss, step) => Math.max(worst, Math.abs(loss - expected[step])), 0);
    console.log(`  at most ${worst.toExponential(1)} from the command's losses over ${count} steps`);
    assert.ok(worst <= APART, `${losses.slice(0, 5)} instead of ${expected.slice(0, 5)}`);
  }

  close() {
    this.site.close();
    this.cdn.close();
  }
}

function npm(...words) {
  return execFileSync("npm", words, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}
