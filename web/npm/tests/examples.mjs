// The examples, built as their users build them, and run.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build, createServer } from "vite";
import webpack from "webpack";
import { serve } from "./serve.mjs";

const CDN = "https://cdn.jsdelivr.net/npm/tightrope-web@0.1.0";
const WAIT_MS = 120_000;

/** The losses that an example shows, once it's done. */
async function finished(page) {
  const done = /^Done/;
  await page.waitForFunction(
    () => /^Done|^[A-Z]\w+: /.test(document.querySelector("#status").textContent),
    null,
    { timeout: WAIT_MS },
  );
  assert.match(await page.locator("#status").innerText(), done);
  const lines = (await page.locator("#losses").innerText()).trim().split("\n");
  return lines.map((line) => Number(line.split(" ")[1]));
}

async function pictured(page, consumer, name) {
  const folder = join(consumer.folder, "screenshots");
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}

/** Whether the map has drawn: many colours, and not one. */
const COLOURS = () => {
  const canvas = document.querySelector("tightrope-map").shadowRoot.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
};

export const tests = {
  the_plain_page_trains_from_a_cdn: async (consumer) => {
    const edit = (text) => text.replaceAll(CDN, consumer.cdn.origin);
    const site = await serve(consumer.folder, { edit });
    try {
      const { page, wrong } = await consumer.open(`${site.origin}/plain/`, { browser: consumer.withGpu });
      consumer.compare(await finished(page));
      assert.ok((await page.locator("#text").innerText()).length > 40);
      assert.ok((await page.evaluate(COLOURS)) > 5, "the map is empty");
      await pictured(page, consumer, "plain");
      assert.deepEqual(wrong.filter((message) => !message.includes("favicon") && !message.includes("404")), []);
    } finally {
      site.close();
    }
  },

  the_example_with_vite_trains: async (consumer) => {
    const root = join(consumer.folder, "vite");
    await build({ root, logLevel: "warn" });
    const site = await serve(join(root, "dist"));
    try {
      const { page } = await consumer.open(site.origin);
      consumer.compare(await finished(page));
      const before = await page.locator("tightrope-map").evaluate((map) => map.plan.peakBytes);
      await page.locator("#budget").fill("30");
      await page.waitForFunction(
        (before) => document.querySelector("tightrope-map").plan.peakBytes < before,
        before,
      );
      await pictured(page, consumer, "vite");
    } finally {
      site.close();
    }
  },

  the_development_server_of_vite_finds_worker_and_engine_too: async (consumer) => {
    const root = join(consumer.folder, "vite");
    // The package lies beside the example here, and below it for its users.
    const server = { port: 0, host: "127.0.0.1", fs: { allow: [consumer.folder] }, watch: null };
    const vite = await createServer({ root, server, logLevel: "warn" });
    try {
      await vite.listen();
      const { page } = await consumer.open(vite.resolvedUrls.local[0]);
      consumer.compare(await finished(page));
    } finally {
      await vite.close();
    }
  },

  the_example_with_webpack_trains_and_a_reload_goes_on: async (consumer) => {
    const root = join(consumer.folder, "webpack");
    const { default: config } = await import(pathToFileURL(join(root, "webpack.config.js")).href);
    const stats = await new Promise((resolve, reject) => {
      webpack(config, (error, stats) => (error ? reject(error) : resolve(stats)));
    });
    assert.ok(!stats.hasErrors() && !stats.hasWarnings(), stats.toString());
    const site = await serve(root);
    try {
      const { page } = await consumer.open(site.origin);
      await page.waitForFunction(() => document.querySelector("#losses").textContent.split("\n").length > 8);
      // A tab that is left is hidden first, and saves its run.
      await page.evaluate(() => {
        Object.defineProperty(document, "hidden", { value: true });
        document.dispatchEvent(new Event("visibilitychange"));
      });
      await page.locator("#status", { hasText: "is kept in this browser" }).waitFor();
      const kept = Number(/\d+/.exec(await page.locator("#status").innerText())[0]);
      const before = (await page.locator("#losses").innerText()).trim().split("\n").slice(0, kept);
      await page.reload();
      const after = await finished(page);
      consumer.compare([...before.map((line) => Number(line.split(" ")[1])), ...after]);
      await pictured(page, consumer, "webpack");
    } finally {
      site.close();
    }
  },

  the_map_can_be_walked_with_the_keyboard: async (consumer) => {
    const { page } = await consumer.lab();
    await page.evaluate(async () => {
      const map = document.createElement("tightrope-map");
      document.body.append(map);
      map.plan = await tightrope.plan(settings);
    });
    await page.locator("tightrope-map .arena").focus();
    for (const key of ["ArrowRight", "ArrowUp", "ArrowDown"]) await page.keyboard.press(key);
    const detail = page.locator("tightrope-map .detail");
    assert.match(await detail.innerText(), /Recomputing/);
    const weights = page.locator("tightrope-map button", { hasText: "weight" });
    await weights.click();
    assert.equal(await weights.getAttribute("aria-pressed"), "true");
    await pictured(page, consumer, "map");
  },
};
