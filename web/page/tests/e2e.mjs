// The page from end to end, in a real browser. What it promises of time is in times.mjs.
//
//   node tests/e2e.mjs [--screenshot FILE] [--dist FOLDER] [--device webgpu|cpu]
//
// TIGHTROPE_BINARY, where it's set, loads the checkpoint that the page gives.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "./browser.mjs";
import { Runner } from "./harness.mjs";
import { serve } from "./serve.mjs";

const { values: options } = parseArgs({
  options: {
    screenshot: { type: "string" },
    dist: { type: "string" },
    device: { type: "string" },
  },
});
const dist = resolve(options.dist ?? fileURLToPath(new URL("../dist", import.meta.url)));

/** A model of bytes knows nothing at ln 256 = 5.55; this one must have learnt which bytes are frequent. */
const LOSS_BOUND = 3.3;
const TRAIN_MS = 600_000;
const WAIT_MS = 120_000;
/** A model that takes moments, for what isn't about learning. */
const QUICK = {
  model: { layers: 2, channels: 32, heads: 2, context: 32 },
  train: { batch: 8, steps: 4000 },
};

const fragment = (setup) => `#setup=${Buffer.from(JSON.stringify(setup)).toString("base64url")}`;
const figures = [];
const runner = new Runner();
const folder = mkdtempSync(join(tmpdir(), "tightrope-page-"));
const server = await serve(dist);
const isolated = await serve(dist, { isIsolated: true });
const browser = await launch();

/** A page with storage of its own, that keeps a list of whatever goes wrong in it. */
async function open(path, { viewport = { width: 1440, height: 1000 }, origin = server.origin } = {}) {
  const context = await browser.newContext({ viewport });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") wrong.push(message.text());
  });
  page.on("request", (request) => {
    const { protocol, origin: to } = new URL(request.url());
    if (to !== origin && protocol !== "blob:") wrong.push(`asked for ${request.url()}`);
  });
  const url = new URL(path, origin);
  if (options.device) url.searchParams.set("device", options.device);
  await page.goto(url.href);
  return { context, page, wrong };
}

const text = (page, id) => page.locator(`#${id}`).innerText();
const step = async (page) => Number.parseInt(await text(page, "read-step"), 10);
const primary = (page, name) => page.getByRole("button", { name, exact: true });

async function untilStep(page, least) {
  await page.waitForFunction(
    (least) => Number.parseInt(document.querySelector("#read-step").textContent, 10) >= least,
    least,
    { timeout: TRAIN_MS },
  );
}

async function pause(page) {
  await primary(page, "Pause").click();
  await primary(page, "Continue").waitFor();
}

/** Bytes of a figure of the memory panel, whose small print is exact. */
async function exactBytes(page, name) {
  const small = await page.locator(`[data-figure="${name}"] small`).innerText();
  return Number(small.replaceAll(/\D/g, ""));
}

const main = await open("/");

await runner.test("a_first_loss_is_on_screen", async () => {
  await primary(main.page, "Start training").click({ timeout: WAIT_MS });
  await main.page.waitForFunction(() => document.querySelector("#read-loss").textContent !== "–");
});

await runner.test("it_trains_to_a_loss_bound", async () => {
  await main.page.waitForFunction(
    (bound) => Number(document.querySelector("#read-heldout").textContent) < bound,
    LOSS_BOUND,
    { timeout: TRAIN_MS },
  );
  await main.page.locator(".sample").first().waitFor();
  figures.push(
    `held-out loss ${await text(main.page, "read-heldout")} at step ${await step(main.page)}, ` +
      `${await text(main.page, "read-speed")} tokens/s`,
  );
});

if (options.screenshot) {
  await runner.test("a_screenshot_is_taken", async () => {
    const { page } = main;
    const before = page.viewportSize();
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ ...before, height });
    const box = await page.locator("#arena").boundingBox();
    await page.mouse.move(box.x + box.width * 0.36, box.y + box.height * 0.42);
    await page.locator("#detail h3").waitFor();
    await page.screenshot({ path: options.screenshot });
    await page.setViewportSize(before);
  });
}

await runner.test("what_was_predicted_is_what_was_allocated", async () => {
  const measured = main.page.locator('[data-figure="Measured peak"] small');
  assert.equal(await measured.innerText(), "0 B off the prediction");
});

await runner.test("pause_holds_and_a_single_step_is_one", async () => {
  await pause(main.page);
  const before = await step(main.page);
  await main.page.waitForTimeout(700);
  assert.equal(await step(main.page), before);
  await main.page.getByRole("button", { name: "Step", exact: true }).click();
  await primary(main.page, "Continue").waitFor();
  assert.equal(await step(main.page), before + 1);
});

await runner.test("the_slider_plans_again_and_the_peak_follows", async () => {
  const { page } = main;
  const before = await exactBytes(page, "Predicted peak");
  const start = performance.now();
  await page.locator("#budget").fill("60");
  await page.waitForFunction((before) => {
    const small = document.querySelector('[data-figure="Predicted peak"] small');
    return Number(small.textContent.replaceAll(/\D/g, "")) < before;
  }, before);
  figures.push(`a move of the slider was on screen after ${(performance.now() - start).toFixed(0)} ms`);
  assert.match(await text(page, "plan-note"), /planned in/);
  await page.getByRole("button", { name: "Go on with it" }).waitFor();
});

await runner.test("a_run_goes_on_in_a_smaller_plan", async () => {
  const { page } = main;
  const before = await step(page);
  await page.getByRole("button", { name: "Go on with it" }).click();
  await untilStep(page, before + 2);
  await pause(page);
  const loss = Number(await text(page, "read-loss"));
  assert.ok(loss < LOSS_BOUND + 0.7, `loss ${loss} after step ${before}`);
  const measured = page.locator('[data-figure="Measured peak"] small');
  assert.equal(await measured.innerText(), "0 B off the prediction");
});

await runner.test("the_map_can_be_walked_with_the_keyboard", async () => {
  const { page } = main;
  await page.locator("#figures .term").last().focus();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "arena");
  const name = page.locator("#detail h3");
  const first = await name.innerText();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight"]) await page.keyboard.press(key);
  assert.notEqual(await name.innerText(), first);
  assert.match(await page.locator("#detail").innerText(), /Recomputing/);
  await page.locator("#peak-table summary").click();
  await page.locator("#peak-table tbody tr").nth(3).waitFor();
  await page.locator("#peak-table summary").click();
});

await runner.test("a_reload_resumes_where_it_was_saved", async () => {
  const { page } = main;
  await page.getByRole("button", { name: "Save now" }).click();
  const at = await step(page);
  await page.locator("#saved", { hasText: `Step ${at},` }).waitFor();
  const loss = Number(await text(page, "read-loss"));
  await page.reload();
  await primary(page, `Resume at step ${at}`).click();
  await untilStep(page, at + 1);
  const after = Number(await text(page, "read-loss"));
  assert.ok(Math.abs(after - loss) < 0.8, `${loss} before, ${after} after`);
  await pause(page);
});

const checkpoint = join(folder, "checkpoint.tar");
let downloadedAt = 0;

await runner.test("a_checkpoint_is_downloaded", async () => {
  const { page } = main;
  downloadedAt = await step(page);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download .tar" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), `tightrope-step-${downloadedAt}.tar`);
  await download.saveAs(checkpoint);
});

const binary = process.env.TIGHTROPE_BINARY;
if (binary) {
  await runner.test("the_native_program_reads_the_download", () => {
    const words = ["generate", checkpoint, "--max-tokens", "8"];
    const out = execFileSync(binary, words, { encoding: "utf8" });
    assert.ok(out.length > 0);
  });
}

await runner.test("nothing_went_wrong_and_nothing_was_sent", () => {
  assert.deepEqual(main.wrong, []);
});

await main.context.close();

await runner.test("a_dropped_checkpoint_goes_on", async () => {
  const { context, page, wrong } = await open("/");
  await primary(page, "Start training").waitFor();
  await page.locator("#open-file").setInputFiles(checkpoint);
  await primary(page, "Continue").waitFor();
  assert.equal(await step(page), downloadedAt);
  await primary(page, "Continue").click();
  await untilStep(page, downloadedAt + 1);
  assert.ok(Number(await text(page, "read-loss")) < LOSS_BOUND + 0.7);
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("a_link_carries_the_setup", async () => {
  const { context, page, wrong } = await open(`/${fragment(QUICK)}`);
  await page.locator("#set-train-lr").fill("0.0005");
  await page.getByRole("button", { name: "Copy link to this setup" }).click();
  const other = await open(`/${new URL(page.url()).hash}`);
  assert.equal(await other.page.locator("#set-train-lr").inputValue(), "0.0005");
  assert.equal(await other.page.locator("#set-model-channels").inputValue(), "32");
  assert.deepEqual([...wrong, ...other.wrong], []);
  await context.close();
  await other.context.close();
});

await runner.test("a_damaged_link_is_named_and_passed_over", async () => {
  const { context, page } = await open(`/${fragment({ model: { layers: "<img src=x>" } })}`);
  await page.locator(".notice.wrong", { hasText: "model.layers must be" }).waitFor();
  assert.equal(await page.locator("#set-model-layers").inputValue(), "4");
  await context.close();
});

await runner.test("what_does_not_fit_is_refused_with_the_nearest_that_does", async () => {
  const setup = {
    model: { ...QUICK.model, context: 64 },
    train: { ...QUICK.train, batch: 32, micro_batch: 32 },
    memory: { budget: 3 << 20, recompute: "none" },
  };
  const { context, page } = await open(`/${fragment(setup)}`);
  const nearest = page.getByRole("button", { name: "Take the nearest that fits" });
  await nearest.waitFor();
  assert.ok(await primary(page, "Start training").isDisabled());
  await nearest.click();
  await page.locator("#refusal").waitFor({ state: "hidden" });
  await page.locator("#primary:enabled").click();
  await untilStep(page, 1);
  await context.close();
});

await runner.test("a_toy_task_shows_exact_answers", async () => {
  const setup = { ...QUICK, data: { kind: "sort" } };
  const { context, page, wrong } = await open(`/?start${fragment(setup)}`);
  await page.waitForFunction(() => /%/.test(document.querySelector("#read-accuracy").textContent));
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("a_text_of_ones_own_is_trained_on", async () => {
  const { context, page, wrong } = await open(`/${fragment(QUICK)}`);
  await page.locator(".data-kinds label", { hasText: "Your text" }).click();
  await page.locator("#own-text").fill("She sells sea shells by the sea shore.\n".repeat(300));
  await page.locator("#primary:enabled").click();
  await untilStep(page, 20);
  assert.deepEqual(wrong, []);
  await context.close();
});

/** Draws lines between points of the drawing area, in parts of its sides. */
async function draw(page, points) {
  const paper = page.locator("#drawing");
  await paper.scrollIntoViewIfNeeded();
  const { x, y, width, height } = await paper.boundingBox();
  for (const [index, [right, down]] of points.entries()) {
    await page.mouse.move(x + right * width, y + down * height, { steps: 4 });
    if (index === 0) await page.mouse.down();
  }
  await page.mouse.up();
}

const taken = (page, digit) =>
  page.waitForFunction(
    (digit) => document.querySelector("#classes .best .class-name")?.textContent === digit,
    digit,
    { timeout: WAIT_MS },
  );

await runner.test("digits_are_learnt_and_a_drawn_one_is_told", async () => {
  const { context, page, wrong } = await open("/?device=cpu");
  await page.getByRole("button", { name: "Digits", exact: true }).click();
  await page.locator("#set-model-patch_size").waitFor();
  assert.ok(await page.locator("#set-model-context").isHidden());
  // Half of the model, for the sake of time.
  await page.locator("#set-model-layers").fill("1");
  const begun = performance.now();
  await page.locator("#primary:enabled").click();
  await page.waitForFunction(
    () => Number.parseFloat(document.querySelector("#read-accuracy").textContent) > 75,
    undefined,
    { timeout: TRAIN_MS },
  );
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  figures.push(`${await text(page, "read-accuracy")} of held-out digits after ${seconds} s, step ${await step(page)}`);
  const ring = Array.from({ length: 25 }, (_, index) => (2 * Math.PI * index) / 24);
  await draw(page, ring.map((angle) => [0.5 + 0.22 * Math.sin(angle), 0.5 - 0.36 * Math.cos(angle)]));
  await taken(page, "0");
  await page.getByRole("button", { name: "Clear", exact: true }).click();
  // A 1 by the keyboard.
  await page.locator("#drawing").focus();
  for (const key of ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", " "]) await page.keyboard.press(key);
  for (let moved = 0; moved < 8; moved += 1) await page.keyboard.press("ArrowDown");
  await taken(page, "1");
  assert.deepEqual(await inaccessible(page), []);
  await pause(page);
  const at = await step(page);
  await page.getByRole("button", { name: "Save now" }).click();
  await page.locator("#saved", { hasText: `Step ${at},` }).waitFor();
  await page.reload();
  await primary(page, `Resume at step ${at}`).click();
  await untilStep(page, at + 1);
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("a_text_in_gpt2s_tokens_is_trained_on", async () => {
  const setup = {
    model: { layers: 1, channels: 16, heads: 1, context: 32 },
    train: { batch: 2, steps: 3 },
    // Few held-out tokens: the scores of 50,257 take a while.
    data: { tokenizer: "gpt2", holdout: 0.001 },
  };
  const { context, page, wrong } = await open(`/?start&device=cpu${fragment(setup)}`);
  await untilStep(page, 3);
  const loss = Number(await text(page, "read-loss"));
  // It knows nothing yet of 50,257 tokens.
  assert.ok(Math.abs(loss - Math.log(50_257)) < 1, `${loss}`);
  await page.locator(".sample").first().waitFor();
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("everything_has_a_name_and_fits_a_phone", async () => {
  const viewport = { width: 390, height: 844 };
  const { context, page } = await open(`/?start${fragment(QUICK)}`, { viewport });
  await untilStep(page, 3);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), viewport.width);
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, input, select, textarea, summary")]
      .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))
      .map((e) => e.outerHTML),
  );
  assert.deepEqual(nameless, []);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await inaccessible(page), [], colorScheme);
  }
  await context.close();
});

/** What axe finds on a page that is wrong for people with disabilities. */
async function inaccessible(page) {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

await runner.test("every_lesson_saves_memory_beside_the_plan_before_it", async () => {
  const { context, page, wrong } = await open("/?device=cpu");
  await page.locator("#pin:enabled").waitFor();
  assert.deepEqual(await page.locator("#lessons button:disabled").allInnerTexts(), ["Offload"]);
  const lessons = page.locator("#lessons button:enabled");
  const before = await exactBytes(page, "Predicted peak");
  for (let index = 0; index < (await lessons.count()); index += 1) {
    await lessons.nth(index).click();
    await page.locator("#lesson .effect", { hasText: /\d\s% less/ }).waitFor();
    const rows = await page.locator("#difference tbody tr").allInnerTexts();
    assert.match(rows[0], /^Peak.*−/s, await lessons.nth(index).innerText());
    assert.ok(await page.locator("#pinned-arena").isVisible());
  }
  assert.match(new URL(page.url()).hash, /^#lesson=/);
  assert.deepEqual(await inaccessible(page), []);
  await page.getByRole("button", { name: "Leave the lesson" }).click();
  await page.locator("#pinned-arena").waitFor({ state: "hidden" });
  assert.equal(await exactBytes(page, "Predicted peak"), before);
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("offloaded_state_is_in_the_tab_and_changes_no_loss", async () => {
  const { page: lesson, context: closed } = await open("/#lesson=offload");
  await lesson.locator("#lesson .effect", { hasText: /\d\s% less/ }).waitFor();
  await lesson.locator('[data-figure="Offloaded"]', { hasText: "MiB" }).waitFor();
  await closed.close();
  const losses = [];
  for (const offload of [[], ["optimizer"], ["optimizer", "gradients", "activations", "weights"]]) {
    const setup = { ...QUICK, train: { ...QUICK.train, steps: 30 }, memory: { offload } };
    const { context, page, wrong } = await open(`/?start&test${fragment(setup)}`);
    if (offload.length === 1) {
      await untilStep(page, 1);
      await page.evaluate(() => globalThis.tightrope.call("lose", "backward"));
      await page.locator('[data-notice="recovered"]').waitFor();
    }
    await untilStep(page, 30);
    losses.push(Number(await text(page, "read-loss")));
    const measured = page.locator('[data-figure="Measured peak"] small');
    assert.equal(await measured.innerText(), "0 B off the prediction");
    figures.push(`offloading ${offload.join(", ") || "nothing"}: ${await text(page, "read-speed")} tokens/s`);
    assert.deepEqual(wrong, []);
    await context.close();
  }
  assert.ok(losses[0] < 5, `${losses[0]}`);
  for (const loss of losses) assert.ok(Math.abs(loss - losses[0]) < 1e-3, `${losses}`);
});

await runner.test("a_pinned_plan_stays_beside_the_next_and_in_the_link", async () => {
  const { context, page, wrong } = await open(`/?device=cpu${fragment(QUICK)}`);
  await page.locator("#pin:enabled").click();
  await page.locator("#set-model-layers").fill("4");
  const table = page.locator("#difference");
  await table.locator("tr", { hasText: "Peak" }).filter({ hasText: "+" }).waitFor();
  const shown = await table.innerText();
  await page.getByRole("button", { name: "Copy link to this setup" }).click();
  const other = await open(`/?device=cpu${new URL(page.url()).hash}`);
  await other.page.locator("#difference tbody tr").first().waitFor();
  // Only the peaks and the classes: seconds depend on what else the machine does.
  const bytes = (text) => text.split("\n").filter((line) => line.includes("iB"));
  assert.deepEqual(bytes(await other.page.locator("#difference").innerText()), bytes(shown));
  await page.getByRole("button", { name: "Show this plan alone" }).click();
  await table.waitFor({ state: "hidden" });
  assert.deepEqual([...wrong, ...other.wrong], []);
  await context.close();
  await other.context.close();
});

await runner.test("words_are_explained_to_the_pointer_the_keyboard_and_screen_readers", async () => {
  const { context, page } = await open(`/?device=cpu${fragment(QUICK)}`);
  await page.locator("#pin:enabled").waitFor();
  const tip = page.locator(".tip");
  await page.getByRole("button", { name: "Lower bound" }).hover();
  await tip.filter({ hasText: "alive at once" }).waitFor();
  await page.keyboard.press("Escape");
  await tip.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "gap" }).hover();
  await tip.filter({ hasText: "less the lower bound" }).waitFor();
  const weight = page.locator("#legend button", { hasText: "weight" });
  await page.locator("#arena").focus();
  await page.keyboard.press("Tab");
  await tip.filter({ hasText: "training changes" }).waitFor();
  const described = await weight.evaluate((e) => document.getElementById(e.getAttribute("aria-describedby")).textContent);
  assert.equal(described, await tip.innerText());
  assert.match(await text(page, "why"), /^The peak is at .+: \d+% /);
  await context.close();
});

await runner.test("the_map_is_saved_as_svg_png_and_csv", async () => {
  const { context, page, wrong } = await open(`/?device=cpu${fragment(QUICK)}`);
  await page.locator("#pin:enabled").waitFor();
  const saved = {};
  for (const format of ["SVG", "PNG", "CSV"]) {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: `Save the map as ${format}` }).click(),
    ]);
    assert.equal(download.suggestedFilename(), `tightrope-map.${format.toLowerCase()}`);
    saved[format] = readFileSync(await download.path());
  }
  const tensors = saved.CSV.toString().trimEnd().split("\r\n").length - 1;
  assert.equal(saved.SVG.toString().match(/<rect [^>]*><title>/g).length, tensors);
  assert.ok(saved.PNG.subarray(1, 4).toString() === "PNG" && saved.PNG.length > 10_000);
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("lora_f16_and_consumed_gradients_train", async () => {
  for (const [device, more] of [
    ["auto", { run: { precision: "f16" } }],
    ["cpu", { lora: { rank: 4 } }],
    ["cpu", { memory: { consume_gradients: true }, train: { ...QUICK.train, clip: 0 } }],
  ]) {
    const { context, page, wrong } = await open(`/?start&device=${device}${fragment({ ...QUICK, ...more })}`);
    await untilStep(page, 3);
    const measured = page.locator('[data-figure="Measured peak"] small');
    await measured.filter({ hasText: "0 B off the prediction" }).waitFor();
    assert.deepEqual(wrong, []);
    await context.close();
  }
});

await runner.test("it_opens_under_cross_origin_isolation", async () => {
  const { context, page, wrong } = await open(`/${fragment(QUICK)}`, { origin: isolated.origin });
  await page.locator("#primary:enabled").waitFor();
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  assert.deepEqual(wrong, []);
  await context.close();
});

await runner.test("a_lost_device_is_replaced_without_a_reload", async () => {
  const { context, page } = await open(`/?start&test${fragment(QUICK)}`);
  await untilStep(page, 5);
  await page.evaluate(() => globalThis.tightrope.call("lose", "backward"));
  await page.locator('[data-notice="recovered"]').waitFor();
  const before = await step(page);
  await untilStep(page, before + 5);
  await context.close();
});

await browser.close();

await runner.test("without_webgpu_it_says_so_and_trains_on_the_cpu", async () => {
  const plain = await launch({ hasWebGpu: false });
  const page = await plain.newPage();
  await page.goto(`${server.origin}/?start${fragment(QUICK)}`);
  await page.locator('[data-notice="device"]', { hasText: "Safari from 26" }).waitFor();
  await untilStep(page, 3);
  assert.match(await text(page, "device"), /CPU/);
  await plain.close();
});

server.close();
isolated.close();
rmSync(folder, { recursive: true });
for (const figure of figures) console.log(figure);
process.exitCode = runner.finish();
