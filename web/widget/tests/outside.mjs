// The widget where there is no JupyterLab: in a page that was saved with its widgets, as nbconvert, nbviewer and Colab show them, and
// by itself under the strictest policies of the webviews that load it.
//
// Colab and VS Code's notebooks take anywidget's AMD module from a CDN or the kernel, and give it a manager of @jupyter-widgets; so
// does the html-manager of this page. anywidget imports our module from a blob.

import { readFileSync } from "node:fs";
import { join } from "node:path";

/** As in Colab's frame: an origin of its own, and no storage. The rest is VS Code's policy, with the blobs that anywidget imports. */
const POLICY = [
  "sandbox allow-scripts",
  "default-src 'none'",
  "script-src https: blob: 'unsafe-inline' 'unsafe-eval'",
  "style-src https: 'unsafe-inline'",
  "img-src https: data:",
  "font-src https:",
  "connect-src https:",
].join("; ");

/** Without eval, and without styles that aren't a style sheet's. */
const STRICT = "sandbox allow-scripts; default-src 'none'; script-src blob: 'nonce-test'; img-src data:";

const ADDRESS = "https://output.example/";

/** What saved pages ask for besides: formulas, diagrams, and anywidget beside the page before the CDN's. */
const NOT_NEEDED = /mathjax|mermaid|^https:\/\/output\.example\/anywidget\.js$/;

/**
 * Shows a page of HTML under a policy; scripts of CDNs come from `files`, by what their addresses end in. Gives the page, and what
 * went wrong in it.
 */
async function opened(browser, html, policy, files = []) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(error.stack));
  page.on("console", (message) => {
    const isOurs = /Content Security Policy|anywidget/.test(message.text());
    if (isOurs && message.type() === "error") wrong.push(message.text());
  });
  await page.route(/^https:/, (route) => {
    const url = route.request().url();
    const headers = { "content-security-policy": policy };
    if (url === ADDRESS) return route.fulfill({ body: html, contentType: "text/html; charset=utf-8", headers });
    const found = files.find(([address]) => address.test(new URL(url).pathname));
    if (found !== undefined) {
      const headers = { "access-control-allow-origin": "*" };
      return route.fulfill({ path: found[1], contentType: "text/javascript", headers });
    }
    if (!NOT_NEEDED.test(url)) wrong.push(`asked for ${url}`);
    return route.abort();
  });
  await page.goto(ADDRESS);
  return { page, wrong };
}

/** What a notebook calls of anywidget: a module from a blob, and values that stay as they are. */
function alone(source, state) {
  const script = `
    const state = ${JSON.stringify(state)};
    const decoded = (value) => {
      if (typeof value !== "object" || value === null) return value;
      if (typeof value.base64 === "string") {
        return new DataView(Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0)).buffer);
      }
      const entries = Object.entries(value).map(([key, part]) => [key, decoded(part)]);
      return Array.isArray(value) ? entries.map(([, part]) => part) : Object.fromEntries(entries);
    };
    const values = decoded(state);
    const model = { get: (key) => values[key], set: (key, value) => (values[key] = value), save_changes() {}, on() {}, off() {} };
    const blob = new Blob([${JSON.stringify(source)}], { type: "text/javascript" });
    import(URL.createObjectURL(blob)).then(({ default: widget }) => widget.render({ model, el: document.body }));
  `;
  return `<html><head></head><body><script nonce="test">${script.replaceAll("</", "<\\/")}</script></body></html>`;
}

/** The state of a saved notebook's first plan, its buffers in their places. */
function savedPlan(notebook) {
  const { state } = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"];
  const models = Object.values(state).filter(({ model_module }) => model_module === "anywidget");
  const { state: values, buffers } = models.find(({ state }) => state.kind === "plan");
  for (const { path, data } of buffers) {
    const last = path.at(-1);
    path.slice(0, -1).reduce((at, key) => at[key], values)[last] = { base64: data };
  }
  return values;
}

/**
 * Tests a notebook that was saved with its widgets, as `html` and as it is. `host` is the folder of html-manager and requirejs,
 * `anywidget` that of the package; `look` holds what is seen of a widget.
 */
export async function outside(runner, { browser, notebook, html, host, anywidget, module, look }) {
  await runner.test("a_saved_page_has_the_map_where_widgets_come_from_a_cdn", async () => {
    const { page, wrong } = await opened(browser, readFileSync(html, "utf8"), POLICY, [
      [/\/require\.min\.js$/, join(host, "requirejs", "require.js")],
      [/\/html-manager@[^/]+\/dist\/embed-amd\.js$/, join(host, "html-manager", "dist", "embed-amd.js")],
      [/\/anywidget@[^/]+\/dist\/index\.js$/, join(anywidget, "nbextension", "index.js")],
    ]);
    await look(page, page.locator(".widget").first(), "saved-page", wrong);
    await page.close();
  });

  await runner.test("the_module_alone_needs_no_eval_no_network_and_no_jupyter", async () => {
    const state = savedPlan(JSON.parse(readFileSync(notebook, "utf8")));
    const { page, wrong } = await opened(browser, alone(readFileSync(module, "utf8"), state), STRICT);
    await look(page, page.locator(".widget"), "alone", wrong);
    await page.close();
  });
}
