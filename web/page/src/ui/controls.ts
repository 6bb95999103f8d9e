// The form of settings. It reports a new setup on each valid change, and marks what is wrong.

import type { Info } from "../engine/types";
import type { Setting, Table } from "../settings";
import {
  DEFAULTS,
  type Setup,
  concerns,
  get,
  problem,
  readSetup,
  same,
  simplified,
  withFamily,
  withKind,
  withValue,
} from "../setup";
import { make } from "./dom";
import { DATA_FIELDS, DATA_HINTS, DATA_KINDS, GROUPS, optionsOf } from "./fields";
import { TextInput } from "./text-input";

type Input = HTMLInputElement | HTMLSelectElement;

interface Row {
  element: HTMLElement;
  shown: Setting;
  input: Input;
  wrong: HTMLElement;
}

const idOf = (table: Table, key: string): string => `set-${table}-${key}`;

export class Controls {
  readonly #form: HTMLElement;
  readonly #onChange: (setup: Setup) => void;
  readonly #rows: Row[] = [];
  readonly #kinds = new Map<string, HTMLInputElement>();
  readonly #hint = make("p", { class: "hint", id: "data-hint" });
  readonly #presets = make("select", { id: "preset" });
  readonly text: TextInput;
  #known: { name: string; setup: Setup }[] = [];
  #setup: Setup;

  constructor(form: HTMLElement, setup: Setup, onChange: (setup: Setup) => void, onText: () => void) {
    this.#form = form;
    this.#setup = setup;
    this.#onChange = onChange;
    this.text = new TextInput(onText);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.append(this.#data());
    for (const group of GROUPS) form.append(this.#group(group.title, group.fields, group.more));
    this.show(setup);
  }

  /** Offers the engine's presets; those that don't fit the device say so. */
  offer(info: Info): void {
    this.#known = info.presets.map(({ name, setup }) => ({
      name,
      setup: simplified(readSetup(setup, DEFAULTS, true)),
    }));
    const last = this.#known.findIndex(({ name }) => name === info.largest_fitting_preset);
    this.#presets.replaceChildren(
      make("option", { value: "" }, "custom"),
      ...this.#known.map(({ name }, index) =>
        make("option", { value: name }, last >= 0 && index > last ? `${name} (too large)` : name),
      ),
    );
    this.#presets.disabled = this.#known.length === 0;
    this.#showPreset();
  }

  /** Shows a setup that came from elsewhere. */
  show(setup: Setup): void {
    this.#setup = setup;
    for (const { element, shown, input, wrong } of this.#rows) {
      element.hidden = !concerns(setup, shown);
      const value = get(setup, shown.table, shown.key);
      if (input instanceof HTMLInputElement && input.type === "checkbox") {
        input.checked = value === true;
        continue;
      }
      const text = value === null || value === "auto" ? "" : String(value);
      const choice = input instanceof HTMLSelectElement ? String(value) : text;
      if (input instanceof HTMLSelectElement && ![...input.options].some((o) => o.value === choice)) {
        input.append(make("option", { value: choice }, choice));
      }
      if (input.value !== choice) input.value = choice;
      this.#mark(input, wrong, null);
    }
    const kind = this.#kinds.get(setup.data.kind);
    if (kind !== undefined) kind.checked = true;
    this.#showData();
    this.#showPreset();
  }

  #data(): HTMLElement {
    const kinds = make("div", { class: "data-kinds", role: "radiogroup", "aria-label": "Data" });
    for (const [value, text] of DATA_KINDS) {
      const input = make("input", { type: "radio", name: "data-kind", value });
      input.addEventListener("change", () => {
        this.#change(withKind(this.#setup, value));
        this.show(this.#setup);
        if (value === "text") this.text.focus();
      });
      this.#kinds.set(value, input);
      kinds.append(make("label", {}, input, text));
    }
    const rows = DATA_FIELDS.map((shown) => this.#row(shown));
    return make("fieldset", {}, make("legend", {}, "Data"), kinds, this.#hint, this.text.element, ...rows);
  }

  #showData(): void {
    this.#hint.textContent = DATA_HINTS[this.#setup.data.kind] ?? "";
    this.text.element.hidden = this.#setup.data.kind !== "text";
  }

  #group(title: string, fields: readonly Setting[], more: readonly Setting[]): HTMLElement {
    const set = make("fieldset", {}, make("legend", {}, title));
    if (title === "Model") {
      const label = make("label", { for: "preset" }, "Preset");
      this.#presets.disabled = true;
      this.#presets.append(make("option", { value: "" }, "custom"));
      this.#presets.addEventListener("change", () => this.#usePreset());
      set.append(make("div", { class: "row" }, label, this.#presets));
    }
    set.append(...fields.map((shown) => this.#row(shown)));
    const rest = make("details", {}, make("summary", {}, `More: ${title.toLowerCase()}`));
    rest.append(...more.map((shown) => this.#row(shown)));
    set.append(rest);
    return set;
  }

  #row(shown: Setting): HTMLElement {
    const id = idOf(shown.table, shown.key);
    const wrong = make("p", { class: "wrong-text", id: `${id}-wrong`, hidden: true });
    const input = this.#input(shown, id);
    const label = make("label", { for: id, title: shown.help }, shown.label ?? shown.key);
    const element = make("div", { class: "row" }, label, input, wrong);
    const row: Row = { element, shown, input, wrong };
    input.addEventListener(input instanceof HTMLSelectElement ? "change" : "input", () => this.#read(row));
    this.#rows.push(row);
    return element;
  }

  #input(shown: Setting, id: string): Input {
    const choices = optionsOf(shown);
    if (choices !== null) {
      const options = choices.map(([value, text]) => make("option", { value }, text));
      return make("select", { id }, ...options);
    }
    if (shown.rule.type === "switch") return make("input", { id, type: "checkbox" });
    return make("input", { id, type: "text", inputmode: "decimal", placeholder: shown.empty });
  }

  #read({ shown, input, wrong }: Row): void {
    const { rule } = shown;
    let value: unknown = input.value;
    if (rule.type === "choice") value = rule.choices.find((choice) => String(choice) === input.value);
    if (rule.type === "list") value = input.value === "" ? [] : input.value.split(",");
    if (input instanceof HTMLInputElement) {
      const text = input.value.trim();
      const words = rule.type === "form" ? rule.words : [];
      if (input.type === "checkbox") value = input.checked;
      else if (text === "") value = shown.empty === undefined ? Number.NaN : (words[0] ?? null);
      else if (words.includes(text)) value = text;
      else value = Number(text);
    }
    const message = problem(shown, value);
    this.#mark(input, wrong, message);
    if (message !== null) return;
    if (shown.key !== "family") {
      this.#change(withValue(this.#setup, shown.table, shown.key, value));
      return;
    }
    this.#change(withFamily(this.#setup, value as Setup["model"]["family"]));
    this.show(this.#setup);
  }

  #mark(input: Input, wrong: HTMLElement, message: string | null): void {
    wrong.hidden = message === null;
    wrong.textContent = message === null ? "" : `This ${message}.`;
    if (message === null) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    } else {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", wrong.id);
    }
  }

  #change(setup: Setup): void {
    this.#setup = setup;
    this.#showPreset();
    this.#onChange(setup);
  }

  /** A preset decides the model, batch and rates; data, steps and seed stay. */
  #presetSetup(setup: Setup): Setup {
    const { lora, data, memory, run } = this.#setup;
    const { steps, seed } = this.#setup.train;
    return { model: setup.model, train: { ...setup.train, steps, seed }, lora, memory, data, run };
  }

  #usePreset(): void {
    const found = this.#known.find(({ name }) => name === this.#presets.value);
    if (found === undefined) return;
    const setup = this.#presetSetup(found.setup);
    this.show(setup);
    this.#onChange(setup);
  }

  #showPreset(): void {
    const found = this.#known.find(({ setup }) => same(this.#presetSetup(setup), this.#setup));
    this.#presets.value = found?.name ?? "";
    this.#form.dataset["preset"] = found?.name ?? "";
  }
}
