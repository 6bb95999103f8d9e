// What goes wrong on users' machines, and what a program is told.

import assert from "node:assert/strict";
import { launch } from "../../page/tests/browser.mjs";
import { SETTINGS } from "./consumer.mjs";

const { steps: STEPS } = SETTINGS.train;

/** Trains in the page; after some steps the device goes away, at the moment that stands beside the step. */
const TRAIN = async ({ steps, moments = {} }) => {
  const trainer = new tightrope.Trainer({ ...settings, train: { ...settings.train, steps } });
  const heard = [];
  trainer.addEventListener("devicelost", ({ detail }) => heard.push(detail));
  const losses = [];
  for await (const { step, loss } of trainer) {
    losses.push(loss);
    if (step in moments) await trainer.loseDevice(moments[step]);
  }
  trainer.dispose();
  return { heard, losses };
};

const ASLEEP_MS = 1500;

/** Stops the processes of a browser's tabs; their ids. */
async function stop(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const tabs = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => id);
  for (const tab of tabs) process.kill(tab, "SIGSTOP");
  return tabs;
}

export const tests = {
  a_lost_device_is_an_event_and_changes_no_number: async (consumer) => {
    // On the CPU a loss is pretended; on WebGPU the device is destroyed.
    for (const { browser, steps, moments } of [
      { browser: consumer.withoutGpu, steps: 30, moments: { 5: "backward", 20: "readback" } },
      { browser: consumer.withGpu, steps: 6, moments: { 3: "backward" } },
    ]) {
      const { page } = await consumer.lab({ browser });
      const seen = await page.evaluate(TRAIN, { steps, moments });
      const undisturbed = await page.evaluate(TRAIN, { steps });
      const heard = Object.keys(moments).map((step, index) => ({ step: Number(step), recoveries: index + 1 }));
      assert.deepEqual([seen.heard, undisturbed.heard], [heard, []]);
      assert.deepEqual(seen.losses, undisturbed.losses);
    }
  },

  a_device_lost_while_text_is_written_repeats_no_piece: async (consumer) => {
    const { page } = await consumer.lab();
    const [undisturbed, disturbed] = await page.evaluate(async () => {
      const texts = [];
      for (const loses of [false, true]) {
        const trainer = new tightrope.Trainer(settings);
        await trainer.steps(5).next();
        const pieces = [];
        for await (const piece of trainer.generate("To be", { maxTokens: 40, temperature: 0 })) {
          pieces.push(piece);
          // Heard once the text is written, or in the middle of it; either way the text is the same.
          if (loses && pieces.length === 3) void trainer.loseDevice("readback");
        }
        if (loses) await trainer.loseDevice("readback");
        for await (const piece of trainer.generate("To be", { maxTokens: 40, temperature: 0 })) pieces.push(piece);
        texts.push(pieces.join(""));
        trainer.dispose();
      }
      return texts;
    });
    assert.equal(disturbed, undisturbed);
  },

  a_tab_that_sleeps_goes_on_where_it_was: async (consumer) => {
    const browser = await launch({ hasWebGpu: false });
    try {
      const { page } = await consumer.lab({ browser });
      const { losses: undisturbed } = await page.evaluate(TRAIN, { steps: STEPS });
      await page.evaluate(() => {
        Object.assign(globalThis, { heard: [], losses: [] });
        const trainer = new tightrope.Trainer(settings);
        for (const name of ["sleep", "wake"]) {
          trainer.addEventListener(name, ({ detail }) => heard.push({ name, ...detail }));
        }
        globalThis.trained = (async () => {
          for await (const { loss } of trainer) losses.push(loss);
          trainer.dispose();
        })();
      });
      await page.waitForFunction(() => losses.length >= 5);
      // Pages without a window are never hidden, so that the browser freezes none: the events come by hand, and the system
      // stops the tab's processes.
      await page.evaluate(() => document.dispatchEvent(new Event("freeze")));
      const stopped = await stop(browser);
      await new Promise((resolve) => setTimeout(resolve, ASLEEP_MS));
      for (const tab of stopped) process.kill(tab, "SIGCONT");
      await page.evaluate(() => document.dispatchEvent(new Event("resume")));
      const seen = await page.evaluate(async () => {
        await trained;
        return { heard, losses };
      });
      const [sleep, wake] = seen.heard;
      assert.deepEqual([seen.heard.length, sleep.name, wake.name], [2, "sleep", "wake"]);
      assert.ok(sleep.step >= 5 && wake.step >= sleep.step, JSON.stringify(seen.heard));
      assert.ok(wake.seconds >= ASLEEP_MS / 1000, `${wake.seconds} s`);
      assert.deepEqual(seen.losses, undisturbed);
    } finally {
      await browser.close();
    }
  },

  a_hidden_tab_saves_its_run: async (consumer) => {
    const { page } = await consumer.lab();
    const [saved, step] = await page.evaluate(async () => {
      const trainer = new tightrope.Trainer(settings, { run: "hidden" });
      for await (const { step } of trainer) if (step === 4) break;
      const saved = new Promise((resolve) => trainer.addEventListener("saved", ({ detail }) => resolve(detail.step)));
      Object.defineProperty(document, "hidden", { value: true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
      return [await saved, trainer.step];
    });
    assert.deepEqual([saved, step], [4, 4]);
  },

  a_second_tab_on_the_same_run_is_told_so: async (consumer) => {
    const first = await consumer.lab();
    const second = await consumer.lab({ context: first.context });
    await first.page.evaluate(async () => {
      globalThis.trainer = new tightrope.Trainer(settings, { run: "shared" });
      for await (const { step } of trainer) if (step === 3) break;
      await trainer.save();
    });
    const refused = await second.page.evaluate(async () => {
      const told = [];
      for (const call of [
        () => new tightrope.Trainer(settings, { run: "shared" }).ready(),
        () => tightrope.Trainer.load("shared").ready(),
        () => tightrope.discardRun("shared"),
      ]) {
        const error = await call().catch((error) => error);
        told.push([error.name, error instanceof tightrope.RunInUse, error.run]);
      }
      return told;
    });
    assert.deepEqual(refused, Array(3).fill(["RunInUse", true, "shared"]));
    // Another run is free, and so is this one when its tab is closed.
    await second.page.evaluate(() => new tightrope.Trainer(settings, { run: "other" }).ready());
    await first.page.close();
    const step = await second.page.evaluate(async () => {
      const trainer = tightrope.Trainer.load("shared");
      for (;;) {
        const error = await trainer.ready().catch((error) => error);
        if (error === undefined) return trainer.step;
        if (error.name !== "RunInUse") throw error;
      }
    });
    assert.equal(step, 3);
  },

  without_webgpu_it_says_so_and_trains_on_the_cpu: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const trainer = new tightrope.Trainer(settings);
      const heard = [];
      trainer.addEventListener("fallback", ({ detail }) => heard.push(detail.reason));
      const losses = [];
      for await (const { loss } of trainer) losses.push(loss);
      const device = await trainer.device();
      trainer.dispose();
      const asked = new tightrope.Trainer(settings, { device: "cpu" });
      asked.addEventListener("fallback", () => heard.push("though the CPU was asked for"));
      await asked.ready();
      asked.dispose();
      const demanded = new tightrope.Trainer(settings, { device: "webgpu" });
      const error = await demanded.ready().catch((error) => error);
      const kinds = [error instanceof tightrope.NoWebGpu, error instanceof tightrope.DeviceError];
      return { heard, losses, device, error: [error.name, error.message], kinds };
    });
    assert.equal(seen.heard.length, 1, `${seen.heard}`);
    assert.deepEqual([seen.device.kind, seen.device.reason], ["cpu", seen.heard[0]]);
    consumer.compare(seen.losses);
    assert.deepEqual([seen.error[0], seen.kinds], ["NoWebGpu", [true, true]]);
    assert.ok(seen.error[1].length > 10, seen.error[1]);
  },

  what_does_not_fit_is_refused_with_figures_and_what_would: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const large = { ...settings, train: { ...settings.train, batch: 32, micro_batch: 32 } };
      const tight = { ...large, memory: { budget: 3 << 20, recompute: "none" } };
      const trainer = new tightrope.Trainer(tight);
      const error = await trainer.ready().catch((error) => error);
      const { name, message, needed, budget, suggestion } = error;
      const shown = await tightrope.plan(tight);
      const fitting = new tightrope.Trainer(suggestion);
      const [{ loss }] = [(await fitting.steps().next()).value];
      const { allocatedBytes } = await fitting.memory();
      for (const each of [trainer, fitting]) each.dispose();
      const isOne = error instanceof tightrope.DoesNotFit;
      return { name, message, needed, budget, loss, allocatedBytes, isOne, shown: [shown.fits, shown.peakBytes] };
    });
    assert.deepEqual([seen.name, seen.isOne, seen.budget], ["DoesNotFit", true, 3 << 20]);
    assert.ok(seen.needed > seen.budget && !seen.message.startsWith("{"), seen.message);
    assert.deepEqual(seen.shown, [false, seen.needed]);
    assert.ok(seen.allocatedBytes <= seen.budget && Number.isFinite(seen.loss));
  },

  wrong_settings_are_named_with_the_nearest_right_ones: async (consumer) => {
    const { page } = await consumer.lab();
    const told = await page.evaluate(async () => {
      const told = [];
      for (const wrong of [{ train: { lerning_rate: 1 } }, { model: { layer: 2 } }, { train: { optimizer: "adam" } }]) {
        const error = await tightrope.plan(wrong, { device: "cpu" }).catch((error) => error);
        told.push([error.name, error instanceof tightrope.SettingError, error.message]);
      }
      const missing = await tightrope.Trainer.load("nothing").ready().catch((error) => error);
      const damaged = await tightrope.Trainer.resume(new Blob(["no tar"])).ready().catch((error) => error);
      const nameless = await new tightrope.Trainer(settings).save().catch((error) => error);
      return { told, others: [missing, damaged, nameless].map(({ name, message }) => [name, message]) };
    });
    for (const [name, isOne] of told.told) assert.deepEqual([name, isOne], ["SettingError", true]);
    assert.match(told.told[1][2], /model\.layers/);
    assert.match(told.told[2][2], /adamw/);
    assert.deepEqual(told.others.map(([name]) => name), ["NoSuchRun", "SettingError", "TightropeError"]);
  },
};
