// The page's style for one widget: in a shadow tree, so that neither the notebook's style nor ours reaches the other.

import uplot from "../../page/node_modules/uplot/dist/uPlot.min.css?inline";
import base from "../../page/src/style/base.css?inline";
import memory from "../../page/src/style/memory.css?inline";
import tokens from "../../page/src/style/tokens.css?inline";
import widget from "./widget.css?inline";

/** The page's colours are those of its root, by the system's theme. Here they are the host's, by the notebook's. */
const colours = tokens
  .replaceAll(":root", ":host")
  .replace(/@media\s*\(prefers-color-scheme:\s*dark\)\s*\{\s*:host/, "@media all{:host(.dark)");

const sheet = new CSSStyleSheet();
sheet.replaceSync([colours, base, memory, uplot, widget].join("\n"));

/** Opens a shadow tree with the style in `host`. */
export function styled(host: HTMLElement): ShadowRoot {
  const root = host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet];
  return root;
}
