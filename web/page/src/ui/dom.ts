// The few helpers that make elements.

type Child = Node | string;

/** An element with attributes and children. A `false` or missing attribute is left out. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | undefined> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/** The element of the page with this id, which index.html has. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`index.html lacks #${id}`);
  return element as T;
}

/** Text in which `code` stands between backticks. */
export function withCode(text: string): Node[] {
  const parts = text.split("`");
  return parts.map((part, index) => (index % 2 === 0 ? document.createTextNode(part) : make("code", {}, part)));
}

/** Sets text only where it changed, so that nothing is announced or laid out twice. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A button that does something. */
export function button(text: string, onClick: () => void, className = "button"): HTMLButtonElement {
  const element = make("button", { type: "button", class: className }, text);
  element.addEventListener("click", onClick);
  return element;
}
