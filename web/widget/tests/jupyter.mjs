// The widget in a real JupyterLab, in Chromium, and what was saved there outside of it. PYTHON names an interpreter with tightrope,
// anywidget, jupyterlab and nbconvert; HOST the folder of html-manager and requirejs; SCREENSHOTS, where it's set, a folder for
// pictures of what was seen.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "../../page/tests/browser.mjs";
import { Runner } from "../../page/tests/harness.mjs";
import { outside } from "./outside.mjs";

const PYTHON = process.env.PYTHON ?? "python3";
const PICTURES = process.env.SCREENSHOTS;
/** From the slider's event to the map of the new plan, for GPT-2 of 124M parameters. */
const MOST_MS = 150;
/** How long something may take that nobody measures. */
const PATIENCE_MS = 10_000;

const PLAN = `import tightrope as tr
plan = tr.plan(preset="gpt2", batch=4, device="cpu", threads=2)
plan`;
const COMPARE = `tr.compare(plan, plan.within(plan.peak_bytes * 2 // 3), names=("fastest", "two thirds of its bytes"))`;
const TRAIN = `trainer = tr.Trainer(preset="tiny", context=32, batch=8, device="cpu", threads=1, steps=800)
trainer.live()
for step in trainer:
    pass
f"done {trainer.plan.peak_bytes} {trainer.measured_peak_bytes}"`;

const folder = mkdtempSync(join(tmpdir(), "tightrope-jupyter-"));
// Nothing of the user's own Jupyter, and no news.
const environment = {
  ...process.env,
  ...Object.fromEntries(["CONFIG", "DATA", "RUNTIME"].map((name) => [`JUPYTER_${name}_DIR`, join(folder, name)])),
  JUPYTERLAB_SETTINGS_DIR: join(folder, "settings"),
  JUPYTERLAB_WORKSPACES_DIR: join(folder, "workspaces"),
  IPYTHONDIR: join(folder, "ipython"),
  PYTHONSAFEPATH: "1",
};

function setting(plugin, value) {
  const [extension, name] = plugin.split(":");
  mkdirSync(join(folder, "settings", extension), { recursive: true });
  writeFileSync(join(folder, "settings", extension, `${name}.jupyterlab-settings`), JSON.stringify(value));
}

function notebook(name, ...sources) {
  const cells = sources.map((source, index) => ({
    cell_type: "code",
    id: `cell-${index}`,
    execution_count: null,
    metadata: {},
    outputs: [],
    source,
  }));
  const kernelspec = { name: "python3", display_name: "Python 3", language: "python" };
  const content = { nbformat: 4, nbformat_minor: 5, metadata: { kernelspec }, cells };
  writeFileSync(join(folder, name), JSON.stringify(content));
}

/** Starts JupyterLab; its process, and the address that it says. */
async function serve() {
  const options = ["--no-browser", "--allow-root", "--expose-app-in-browser", "--IdentityProvider.token="];
  const server = spawn(PYTHON, ["-m", "jupyterlab", ...options, `--ServerApp.root_dir=${folder}`, "--port=0"], {
    cwd: folder,
    env: environment,
  });
  let said = "";
  const address = await new Promise((resolve, reject) => {
    server.on("exit", (code) => reject(new Error(`JupyterLab ended with ${code}: ${said}`)));
    server.stderr.on("data", (data) => {
      said += data;
      const found = said.match(/http:\/\/(?:127\.0\.0\.1|localhost):\d+\/lab/);
      if (found !== null) resolve(found[0]);
    });
  });
  return { server, address };
}

async function picture(page, name) {
  if (PICTURES === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

function check(holds, words) {
  if (!holds) throw new Error(words);
}

/** Looks until what is seen is as it should be. */
async function until(look, isSo) {
  const last = performance.now() + PATIENCE_MS;
  for (;;) {
    const seen = await look();
    if (isSo(seen)) return;
    check(performance.now() < last, `still ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Runs the cell and waits until it has ended. */
async function runCell(page, index) {
  await page.evaluate(async (index) => {
    const { shell, commands } = window.jupyterapp;
    shell.currentWidget.content.activeCellIndex = index;
    await commands.execute("notebook:run-cell");
  }, index);
}

const widgetOf = (page, index) => page.locator(".jp-CodeCell").nth(index).locator(".widget");
const figure = (widget, name) => widget.locator(`[data-figure="${name}"]`);
const exact = async (widget, name) =>
  Number((await figure(widget, name).locator("small").innerText()).replace(/[^\d]/g, ""));

/** Moves the slider as a hand does, and gives milliseconds until the frame that shows the new plan was made. */
function move(widget, position) {
  return widget.evaluate(async (root, position) => {
    const slider = root.querySelector("input[type=range]");
    const changed = new Promise((resolve) => {
      const seen = new MutationObserver(() => {
        seen.disconnect();
        // The map is painted in the next frame, and that is over when the one after it begins.
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
      });
      seen.observe(root.querySelector(".figures"), { childList: true, subtree: true, characterData: true });
    });
    const start = performance.now();
    slider.value = String(position);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    return (await changed) - start;
  }, position);
}

/** How many pixels of the map have each class's colour. */
function colours(widget) {
  return widget.evaluate((root) => {
    const canvas = root.querySelector("canvas");
    if (canvas.width === 0) return { painted: 0 };
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const counts = {};
    const style = getComputedStyle(root);
    const probe = document.createElement("canvas").getContext("2d");
    for (const name of ["weight", "optimizer", "activation"]) {
      probe.fillStyle = style.getPropertyValue(`--class-${name}`).trim();
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
      counts[name] = 0;
      for (let at = 0; at < data.length; at += 4) {
        if (data[at] === r && data[at + 1] === g && data[at + 2] === b) counts[name] += 1;
      }
    }
    return counts;
  });
}

/** Holds that a widget has its map, and says that nobody answers where its slider is moved; `wrong` lists what went wrong. */
async function look(page, widget, name, wrong = []) {
  await widget.locator("[data-figure]").first().waitFor({ timeout: 30_000 });
  await until(() => colours(widget), (counts) => Object.values(counts).every((count) => count > 500));
  await widget.locator("summary").first().click();
  check((await widget.locator("details").first().locator("tbody tr").count()) >= 4, "no classes");
  await widget.locator("summary").first().click();
  await widget.locator("input[type=range]").fill("40");
  await widget.locator(".refusal", { hasText: "The kernel doesn’t answer" }).waitFor();
  await picture(page, name);
  check(wrong.length === 0, wrong.join("\n"));
}

const runner = new Runner();
setting("@jupyterlab/apputils-extension:notification", { fetchNews: "false", checkForUpdates: false });
// What a user ticks as "Save Widget State Automatically".
setting("@jupyter-widgets/jupyterlab-manager:plugin", { saveState: true });
notebook("widget.ipynb", PLAN, COMPARE, TRAIN);
notebook("picture.ipynb", PLAN, TRAIN.replace("800", "40"));
const { server, address } = await serve();
const browser = await launch();
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const problems = [];
  page.on("pageerror", (error) => problems.push(error.stack));
  await page.goto(`${address}/tree/widget.ipynb`);
  await page.locator(".jp-Notebook .jp-CodeCell").nth(2).waitFor({ timeout: 60_000 });
  await page.waitForFunction(() => {
    const opened = window.jupyterapp?.shell.currentWidget?.context?.sessionContext;
    return opened?.session?.kernel?.status === "idle";
  });
  const widget = widgetOf(page, 0);

  await runner.test("a_plan_in_a_cell_is_the_map", async () => {
    await runCell(page, 0);
    await figure(widget, "Predicted peak").waitFor({ timeout: 30_000 });
    const counts = await colours(widget);
    check(Object.values(counts).every((count) => count > 500), JSON.stringify(counts));
    check((await widget.locator(".why").innerText()).startsWith("The peak is at"), "no reason for the peak");
    await picture(page, "plan-light");
  });

  await runner.test("the_slider_plans_again_in_time", async () => {
    const before = await exact(widget, "Predicted peak");
    const took = [];
    for (const position of [150, 120, 90, 60, 30, 0]) took.push(await move(widget, position));
    const after = await exact(widget, "Predicted peak");
    check(after < before * 0.9, `the peak was ${before} and is ${after}`);
    console.log(`slider to new map: ${took.map((ms) => ms.toFixed(0)).join(", ")} ms`);
    check(Math.min(...took) <= MOST_MS, `the fastest move took ${Math.min(...took)} ms`);
    await picture(page, "plan-smallest");
  });

  await runner.test("of_positions_in_a_row_the_last_is_shown", async () => {
    const last = await widget.evaluate((root) => {
      const slider = root.querySelector("input[type=range]");
      for (let position = 0; position <= 200; position += 5) {
        slider.value = String(position);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
      }
      return root.querySelector("output").textContent;
    });
    await until(() => figure(widget, "Predicted peak").evaluate((term) => term.firstChild.textContent), (peak) => peak === last);
    check((await widget.locator(".refusal").isVisible()) === false, "something was refused");
  });

  await runner.test("arrow_keys_walk_the_map_and_not_the_notebook", async () => {
    const arena = widget.locator(".arena");
    await arena.focus();
    await page.keyboard.press("ArrowRight");
    const first = await widget.locator(".detail").innerText();
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowUp");
    const second = await widget.locator(".detail").innerText();
    check(first.includes("Step ") && second.includes("Class") && first !== second, `${first} then ${second}`);
    const active = await page.evaluate(() => window.jupyterapp.shell.currentWidget.content.activeCellIndex);
    check(active === 0, `cell ${active} became the active one`);
    await picture(page, "plan-keyboard");
  });

  await runner.test("a_legend_brings_a_class_out_and_tables_open", async () => {
    await widget.locator(".legend button", { hasText: "activation" }).click();
    for (const summary of await widget.locator("summary").all()) await summary.click();
    const rows = await widget.locator("details").first().locator("tbody tr").allInnerTexts();
    const sizes = rows.map((row) => Number(row.split("\t")[1].replaceAll(",", "")));
    const peak = sizes.pop();
    check(peak === (await exact(widget, "Predicted peak")), "the table has another peak");
    check(sizes.reduce((sum, size) => sum + size, 0) === peak, `${sizes} don't add up to ${peak}`);
    check((await widget.locator("details").nth(1).locator("tbody tr").count()) >= 2, "no layers");
    await picture(page, "plan-tables");
    for (const summary of await widget.locator("summary").all()) await summary.click();
    await widget.locator(".legend button", { hasText: "activation" }).click();
  });

  await runner.test("two_plans_stand_side_by_side", async () => {
    await runCell(page, 1);
    const compared = widgetOf(page, 1);
    await compared.locator(".difference table").waitFor({ timeout: 30_000 });
    check((await compared.locator(".arena").count()) === 2, "there aren't two maps");
    check((await compared.locator(".why").innerText()).includes("smaller"), "nothing is smaller");
    check((await compared.locator(".difference").innerText()).includes("activation"), "no classes");
    await picture(page, "compare-light");
  });

  await runner.test("a_run_is_followed_while_it_trains", async () => {
    const trained = runCell(page, 2);
    const run = widgetOf(page, 2);
    await figure(run, "Step").waitFor({ timeout: 30_000 });
    const seen = new Set();
    let hasEnded = false;
    void trained.finally(() => (hasEnded = true));
    while (!hasEnded) {
      seen.add(await figure(run, "Step").innerText());
      await page.waitForTimeout(100);
    }
    await trained;
    check(seen.size >= 3, `steps ${[...seen]} were shown`);
    const output = page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-executeResult");
    check((await figure(run, "Step").innerText()) === "800", "the last step isn't shown");
    const [, planned, measured] = (await output.innerText()).match(/done (\d+) (\d+)/);
    check(planned === measured, `${planned} planned, ${measured} measured`);
    check((await figure(run, "Measured").innerText()).endsWith("0 B off"), "the widget says another difference");
    await picture(page, "run-light");
  });

  await runner.test("a_dark_notebook_has_dark_widgets", async () => {
    await page.evaluate(() => window.jupyterapp.commands.execute("apputils:change-theme", { theme: "JupyterLab Dark" }));
    await page.waitForFunction(() => document.body.dataset.jpThemeLight === "false");
    const ground = () => widget.evaluate((root) => getComputedStyle(root).backgroundColor);
    const seen = async () => {
      // JupyterLab takes cells that are out of sight out of the page, and may scroll once more when the theme has changed.
      await page.evaluate(() => window.jupyterapp.shell.currentWidget.content.scrollToItem(0));
      await widget.locator(".arena").scrollIntoViewIfNeeded();
      return { ground: await ground(), ...(await colours(widget)) };
    };
    const isDark = ({ ground, ...counts }) => ground === "rgb(22, 27, 31)" && Object.values(counts).every((count) => count > 500);
    await until(seen, isDark);
    await picture(page, "plan-dark");
    await widgetOf(page, 1).locator(".difference").scrollIntoViewIfNeeded();
    await picture(page, "compare-dark");
    await widgetOf(page, 2).locator(".bars").scrollIntoViewIfNeeded();
    await picture(page, "run-dark");
  });

  await runner.test("a_narrow_cell_has_all_of_it", async () => {
    await page.setViewportSize({ width: 620, height: 900 });
    await page.evaluate(() => window.jupyterapp.shell.collapseLeft());
    await widget.locator(".legend").scrollIntoViewIfNeeded();
    await page.waitForTimeout(500);
    const overflow = await widget.evaluate((root) => root.scrollWidth - root.clientWidth);
    check(overflow <= 0, `${overflow} pixels stick out`);
    await picture(page, "plan-narrow");
    await widgetOf(page, 1).locator(".detail").scrollIntoViewIfNeeded();
    await picture(page, "compare-narrow");
    await page.evaluate(() => window.jupyterapp.shell.currentWidget.content.scrollToItem(0));
  });

  await runner.test("where_no_script_runs_there_is_a_picture_of_the_same", async () => {
    const convert = ["-m", "jupyter", "nbconvert", "--execute", "--to", "html", "picture.ipynb"];
    const done = spawnSync(PYTHON, convert, { cwd: folder, env: environment, encoding: "utf8" });
    check(done.status === 0, done.stderr);
    const html = readFileSync(join(folder, "picture.html"), "utf8");
    const images = [...html.matchAll(/<img[^>]+src="data:image\/svg\+xml;base64,([^"]+)/g)];
    const [svg = "", curve = ""] = images.map(([, encoded]) => Buffer.from(encoded, "base64").toString());
    check(svg.includes("<title>Memory of a training step"), "the page has no picture of the plan");
    check(curve.includes(">step 40: loss ") && curve.includes("<polyline"), `the run ended with ${curve}`);
    check(!html.includes("widget-view+json"), "the page needs a widget's script");
    // What the first plan is; the slider was moved since.
    const [, peak, tensors] = svg.match(/<title>(\d+) bytes at the peak; (\d+) tensors/);
    await move(widget, 199);
    await move(widget, 200);
    check(Number(peak) === (await exact(widget, "Predicted peak")), `the picture's peak is ${peak}`);
    const note = await widget.locator(".head").innerText();
    check(note.includes(`${tensors} tensors`), `the picture has ${tensors} tensors, the map ${note}`);
    for (const legend of await widget.locator(".legend button").allInnerTexts()) {
      const [name, size] = legend.split("\n");
      check(svg.includes(`>${name} ${size}<`), `the picture doesn't say ${name} ${size}`);
    }
  });

  let saved = "";
  await runner.test("a_notebook_that_is_opened_again_has_the_map_without_its_kernel", async () => {
    const before = await exact(widget, "Predicted peak");
    await page.evaluate(async () => {
      const { context } = window.jupyterapp.shell.currentWidget;
      await context.save();
      await context.sessionContext.shutdown();
    });
    await page.goto(`${address}/tree/widget.ipynb?reset`);
    await figure(widget, "Predicted peak").waitFor({ timeout: 60_000 });
    await look(page, widget, "opened-again");
    check((await exact(widget, "Predicted peak")) === before, "the peak is another");
    const convert = ["-m", "jupyter", "nbconvert", "--to", "html", "widget.ipynb"];
    const done = spawnSync(PYTHON, convert, { cwd: folder, env: environment, encoding: "utf8" });
    check(done.status === 0, done.stderr);
    saved = join(folder, "widget.html");
  });

  const packages = spawnSync(PYTHON, ["-c", "import anywidget, tightrope; print(anywidget.__path__[0], tightrope.__path__[0])"], {
    encoding: "utf8",
  });
  const [anywidget, tightrope] = packages.stdout.trim().split(" ");
  await outside(runner, {
    browser,
    notebook: join(folder, "widget.ipynb"),
    html: saved,
    host: process.env.HOST,
    anywidget,
    module: join(tightrope, "static", "widget.js"),
    look,
  });

  await runner.test("no_script_failed", () => check(problems.length === 0, problems.join("\n")));
} finally {
  await browser.close();
  server.kill();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(runner.finish());
