// Pages with a strict policy, and packages that come from another origin.

import assert from "node:assert/strict";
import { SETTINGS } from "./consumer.mjs";
import { serve } from "./serve.mjs";

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:";

/** Trains in the page, the package imported from `url`. */
const TRAIN = async ({ url, settings, options }) => {
  const { Trainer } = await import(url);
  const trainer = new Trainer(settings, options);
  const losses = [];
  for await (const { step, loss } of trainer) {
    losses.push(loss);
    if (step === 10) break;
  }
  trainer.dispose();
  return losses;
};

export const tests = {
  a_strict_policy_lets_it_train_and_draw: async (consumer) => {
    const strict = await serve(consumer.folder, { headers: { "Content-Security-Policy": STRICT } });
    try {
      const { page, wrong } = await consumer.open(`${strict.origin}/lab/`, { browser: consumer.withGpu });
      await page.waitForFunction(() => globalThis.tightrope !== undefined);
      const url = "/node_modules/tightrope-web/dist/index.js";
      consumer.compare(await page.evaluate(TRAIN, { url, settings: SETTINGS, options: {} }), 10);
      const box = await page.evaluate(async (settings) => {
        const map = document.createElement("tightrope-map");
        map.plan = await tightrope.plan(settings);
        document.body.append(map);
        await new Promise((resolve) => setTimeout(resolve, 300));
        const { width, height } = map.shadowRoot.querySelector(".arena").getBoundingClientRect();
        return { width, height };
      }, SETTINGS);
      assert.ok(box.width > 200 && box.height === 360, JSON.stringify(box));
      assert.deepEqual(wrong, []);
      // The policy is one: what it forbids doesn't run.
      const ran = await page.evaluate(() => {
        const script = document.createElement("script");
        script.textContent = "globalThis.ran = true";
        document.body.append(script);
        return globalThis.ran ?? false;
      });
      assert.equal(ran, false);
    } finally {
      strict.close();
    }
  },

  a_policy_without_wasm_is_an_error_with_words: async (consumer) => {
    const policy = STRICT.replace(" 'wasm-unsafe-eval'", "");
    const strict = await serve(consumer.folder, { headers: { "Content-Security-Policy": policy } });
    try {
      const { page } = await consumer.open(`${strict.origin}/lab/`);
      await page.waitForFunction(() => globalThis.tightrope !== undefined);
      const message = await page.evaluate(() => tightrope.plan().catch((error) => error.message));
      assert.match(message, /Content Security Policy/);
    } finally {
      strict.close();
    }
  },

  scripts_worker_and_engine_may_be_of_another_origin: async (consumer) => {
    const { page, wrong } = await consumer.lab();
    const url = `${consumer.cdn.origin}/dist/index.js`;
    consumer.compare(await page.evaluate(TRAIN, { url, settings: SETTINGS, options: {} }), 10);
    // The package from here, the worker and the engine from there.
    const options = { worker: `${consumer.cdn.origin}/dist/worker.js`, wasm: `${consumer.cdn.origin}/dist/tightrope.wasm` };
    const own = "/node_modules/tightrope-web/dist/index.js";
    consumer.compare(await page.evaluate(TRAIN, { url: own, settings: SETTINGS, options }), 10);
    assert.deepEqual(wrong, []);
  },

  a_worker_that_is_missing_is_an_error_that_names_it: async (consumer) => {
    const { page } = await consumer.lab();
    const told = await page.evaluate(async () => {
      const missing = await tightrope.plan(settings, { worker: "/lab/missing.js" }).catch((error) => error);
      const wasm = await tightrope.plan(settings, { wasm: "/lab/missing.wasm" }).catch((error) => error);
      return [missing, wasm].map(({ name, message }) => [name, message]);
    });
    assert.match(told[0][1], /missing\.js/);
    assert.ok(told[1][1].length > 0, told[1][1]);
  },
};
