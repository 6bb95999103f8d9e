// What a notebook loads: anywidget calls `render` for each place that shows a widget.

import { CompareView } from "./compare-view";
import type { CompareTraits, Model, PlanTraits, RunTraits, Traits, View } from "./model";
import { PlanView } from "./plan-view";
import { RunView } from "./run-view";
import { styled } from "./style";
import { followTheme } from "./theme";

interface Place {
  model: Model<Traits>;
  el: HTMLElement;
}

function viewOf(model: Model<Traits>, root: HTMLElement): View {
  switch (model.get("kind")) {
    case "plan":
      return new PlanView(model as unknown as Model<PlanTraits>, root);
    case "compare":
      return new CompareView(model as unknown as Model<CompareTraits>, root);
    case "run":
      return new RunView(model as unknown as Model<RunTraits>, root);
  }
}

function render({ model, el }: Place): () => void {
  const host = document.createElement("div");
  // JupyterLab would take arrow keys for its own: to go from cell to cell.
  host.dataset["lmSuppressShortcuts"] = "true";
  el.append(host);
  const root = document.createElement("div");
  root.className = "widget";
  styled(host).append(root);
  const view = viewOf(model, root);
  const ended = new AbortController();
  followTheme(host, ended.signal, () => view.restyle());
  return () => {
    ended.abort();
    view.dispose();
  };
}

export default { render };
