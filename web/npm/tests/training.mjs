// What a program does with the package when all goes well.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { SETTINGS } from "./consumer.mjs";

const { steps: STEPS } = SETTINGS.train;

/** Checks that text came in several pieces, and all of it. */
function spoken(pieces) {
  assert.ok(pieces.length > 1, `${pieces.length} pieces`);
  assert.ok(pieces.every((piece) => piece.length > 0));
}

export const tests = {
  a_loop_over_a_trainer_has_the_losses_of_the_command: async (consumer) => {
    const { page, wrong } = await consumer.lab({ browser: consumer.withGpu });
    const seen = await page.evaluate(async () => {
      const trainer = new tightrope.Trainer(settings);
      const losses = [];
      // A loop that is left is taken up again.
      for await (const { loss } of trainer) if (losses.push(loss) === 10) break;
      for await (const { loss } of trainer) losses.push(loss);
      const { step } = trainer;
      const { kind } = await trainer.device();
      // A reader that leaves ends what would never end.
      const left = [];
      for await (const piece of trainer.generate("To be", { maxTokens: 2 ** 31 })) if (left.push(piece) === 3) break;
      const { predictedBytes, allocatedBytes } = await trainer.memory();
      trainer.dispose();
      return { losses, step, kind, predictedBytes, allocatedBytes, left: left.length };
    });
    assert.deepEqual([seen.kind, seen.step, seen.left], ["webgpu", STEPS, 3]);
    assert.equal(seen.allocatedBytes, seen.predictedBytes);
    consumer.compare(seen.losses);
    assert.deepEqual(wrong, []);
  },

  on_the_cpu_in_a_worker_and_without_one_too: async (consumer) => {
    const { page } = await consumer.lab();
    for (const worker of [true, false]) {
      const seen = await page.evaluate(async (worker) => {
        const trainer = new tightrope.Trainer(settings, { device: "cpu", worker });
        const frames = [];
        const count = (now) => {
          frames.push(now);
          requestAnimationFrame(count);
        };
        requestAnimationFrame(count);
        const losses = [];
        for await (const { loss } of trainer) losses.push(loss);
        trainer.dispose();
        return { losses, frames: frames.length };
      }, worker);
      consumer.compare(seen.losses);
      assert.ok(seen.frames > 3, `the page drew ${seen.frames} times meanwhile`);
    }
  },

  the_engine_may_come_as_bytes_or_as_a_module: async (consumer) => {
    const { page } = await consumer.lab();
    const peaks = await page.evaluate(async () => {
      const bytes = await (await fetch("/node_modules/tightrope-web/dist/tightrope.wasm")).arrayBuffer();
      const peaks = [];
      for (const wasm of [bytes, await WebAssembly.compile(bytes), "/node_modules/tightrope-web/dist/tightrope.wasm"]) {
        peaks.push((await tightrope.plan(settings, { wasm, device: "cpu" })).peakBytes);
      }
      return peaks;
    });
    assert.ok(peaks[0] > 0 && peaks.every((peak) => peak === peaks[0]), `${peaks}`);
  },

  a_plan_says_what_is_then_allocated: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const plan = await tightrope.plan(settings);
      const trainer = new tightrope.Trainer(settings);
      const memory = await trainer.memory();
      const running = await trainer.plan();
      trainer.dispose();
      const { peakBytes, byClass, choices, predictedStepS, lowerBoundBytes, fits, tensors, liveBytes } = plan;
      const figures = { peakBytes, byClass, choices, predictedStepS, lowerBoundBytes, fits, tensors, liveBytes };
      return { ...figures, why: plan.why, memory, running: running.peakBytes };
    });
    assert.equal(seen.memory.predictedBytes, seen.peakBytes);
    assert.equal(seen.memory.allocatedBytes, seen.peakBytes);
    assert.equal(seen.running, seen.peakBytes);
    assert.match(seen.why, /\w+ \w+/);
    const { microBatch, accumulation, recompute } = seen.choices;
    assert.deepEqual([microBatch * accumulation, typeof recompute], [SETTINGS.train.batch, "string"]);
    assert.ok(seen.fits && seen.predictedStepS > 0 && seen.lowerBoundBytes <= seen.peakBytes);
    const total = Object.values(seen.byClass).reduce((sum, bytes) => sum + bytes, 0);
    assert.equal(total, seen.peakBytes);
    // What is alive at an op is what its tensors take, each once.
    const peak = Math.max(...seen.liveBytes);
    const at = seen.liveBytes.indexOf(peak);
    const alive = seen.tensors.filter(({ first, last }) => first <= at && at <= last);
    assert.ok(Math.max(...alive.map(({ offset, bytes }) => offset + bytes)) <= seen.peakBytes);
    assert.ok(seen.tensors.some((tensor) => tensor.class === "weight" && tensor.phase === "kept"));
    assert.ok(seen.tensors.some(({ phase }) => phase === "backward"));
  },

  a_planner_plans_presets_and_budgets: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const planner = await tightrope.Planner.open();
      const { name, settings: full } = planner.presets[0];
      const [named, spelt] = [await planner.plan({ model: { preset: name } }), await planner.plan(full)];
      const budget = Math.round(0.7 * named.peakBytes);
      const smaller = await planner.plan({ model: { preset: name }, memory: { budget } });
      const words = await planner.plan({ model: { preset: name }, memory: { budget: "1GiB" } });
      planner.dispose();
      const after = await planner.plan(settings).catch((error) => error.name);
      return {
        peaks: [named, spelt].map((plan) => plan.peakBytes), budget, smaller: smaller.peakBytes,
        words: words.budgetBytes, after,
      };
    });
    assert.equal(seen.peaks[0], seen.peaks[1]);
    assert.ok(seen.smaller <= seen.budget);
    assert.equal(seen.words, 2 ** 30);
    assert.equal(seen.after, "Disposed");
  },

  text_comes_in_pieces_and_can_be_left: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const trainer = new tightrope.Trainer(settings);
      for await (const _ of trainer.steps(10));
      const pieces = async (options) => {
        const pieces = [];
        for await (const piece of trainer.generate("To be", options)) pieces.push(piece);
        return pieces;
      };
      const whole = await pieces({ maxTokens: 30, seed: 3 });
      const again = await pieces({ maxTokens: 30, seed: 3 });
      const greedy = [await pieces({ maxTokens: 9, temperature: 0 }), await pieces({ maxTokens: 9, topK: 1, seed: 8 })];
      const left = [];
      for await (const piece of trainer.generate("To be", { maxTokens: 500, seed: 3 })) {
        left.push(piece);
        if (left.length === 5) break;
      }
      const { loss, perplexity, accuracy } = await trainer.evaluate();
      trainer.dispose();
      return { whole, again, greedy, left, loss, perplexity, accuracy };
    });
    spoken(seen.whole);
    assert.deepEqual(seen.again, seen.whole);
    assert.deepEqual(seen.greedy[0].join(""), seen.greedy[1].join(""));
    assert.equal(seen.left.join(""), seen.whole.slice(0, 5).join(""));
    assert.ok(seen.loss > 1 && seen.loss < 5 && Math.abs(Math.log(seen.perplexity) - seen.loss) < 1e-9);
    assert.equal(seen.accuracy, null);
  },

  tasks_have_an_accuracy: async (consumer) => {
    const { page } = await consumer.lab();
    const { accuracy } = await page.evaluate(async () => {
      const trainer = new tightrope.Trainer({ ...settings, data: { kind: "sort" } }, { device: "cpu" });
      const evaluation = await trainer.evaluate();
      trainer.dispose();
      return evaluation;
    });
    assert.ok(accuracy >= 0 && accuracy < 0.5, `${accuracy}`);
  },

  a_checkpoint_goes_on_bit_for_bit_here_and_in_the_command: async (consumer) => {
    const { page } = await consumer.lab();
    const seen = await page.evaluate(async () => {
      const text = "She sells sea shells by the sea shore. ".repeat(300);
      const own = { ...settings, data: { text } };
      const take = async (trainer, count) => {
        const losses = [];
        for await (const { loss } of trainer) if (losses.push(loss) === count) break;
        return losses;
      };
      const whole = new tightrope.Trainer(own);
      const losses = await take(whole, 20);
      const first = new tightrope.Trainer(own);
      await take(first, 12);
      const file = await first.checkpoint();
      const rest = tightrope.Trainer.resume(file);
      const after = await take(rest, 8);
      const longer = tightrope.Trainer.resume(file, { train: { steps: 13 } });
      const one = await take(longer, 5);
      for (const trainer of [whole, first, rest, longer]) trainer.dispose();
      return { losses, after, one, type: file.type, bytes: Array.from(new Uint8Array(await file.arrayBuffer())) };
    });
    assert.deepEqual(seen.after, seen.losses.slice(12));
    assert.deepEqual([seen.one.length, seen.type], [1, "application/x-tar"]);
    const file = join(consumer.folder, "checkpoint.tar");
    writeFileSync(file, Uint8Array.from(seen.bytes));
    const out = execFileSync(consumer.binary, ["generate", file, "--max-tokens", "8"], { encoding: "utf8" });
    assert.ok(out.length > 0);
  },

  the_browser_keeps_runs: async (consumer) => {
    const { page, context } = await consumer.lab();
    const saved = await page.evaluate(async () => {
      const heard = [];
      const trainer = new tightrope.Trainer(settings, { run: "../odd name", saveEveryS: 0.01 });
      trainer.addEventListener("saved", ({ detail }) => heard.push(detail.step));
      const losses = [];
      for await (const { loss } of trainer) if (losses.push(loss) === 10) break;
      const { step, bytes } = await trainer.save();
      const runs = await tightrope.savedRuns();
      return { losses, heard, step, bytes, runs: runs.map(({ run, step, bytes }) => ({ run, step, bytes })) };
    });
    assert.deepEqual([saved.step, saved.heard.at(-1)], [10, 10]);
    assert.ok(saved.heard.length > 1, "nothing was saved by itself");
    assert.deepEqual(saved.runs, [{ run: "../odd name", step: 10, bytes: saved.bytes }]);
    await page.close();
    const { page: next } = await consumer.lab({ context });
    const rest = await next.evaluate(async () => {
      const trainer = tightrope.Trainer.load("../odd name");
      const losses = [];
      for await (const { loss } of trainer) losses.push(loss);
      trainer.dispose();
      const [{ step }] = await tightrope.savedRuns();
      await tightrope.discardRun("../odd name");
      return { losses, step, left: (await tightrope.savedRuns()).length };
    });
    consumer.compare([...saved.losses, ...rest.losses]);
    // The end is saved by itself.
    assert.deepEqual([rest.step, rest.left], [STEPS, 0]);
  },

  a_disposed_trainer_lets_nothing_wait: async (consumer) => {
    const { page } = await consumer.lab();
    const names = await page.evaluate(async () => {
      const nameOf = (promise) => promise.then(() => "done", (error) => error.name);
      const names = [];
      for (const worker of [true, false]) {
        const trainer = new tightrope.Trainer(settings, { worker, device: "cpu" });
        await trainer.ready();
        const waiting = [nameOf(trainer.evaluate()), nameOf(trainer.checkpoint())];
        await trainer[Symbol.asyncDispose]();
        names.push(...(await Promise.all(waiting)), await nameOf(trainer.memory()));
        // One that is only being opened.
        const opening = new tightrope.Trainer(settings, { worker, device: "cpu" });
        const ready = nameOf(opening.ready());
        opening.dispose();
        names.push(await ready);
      }
      return names;
    });
    assert.deepEqual(names, Array(8).fill("Disposed"));
  },
};
