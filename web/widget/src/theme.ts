// Whether a notebook is light or dark: its theme is its own, and the system's may be another.

/** Half of the brightness of white. */
const HALF = 127.5;

/** Whether text on this element is bright, as it is on a dark ground. The ground itself may be of another document. */
function isDark(element: Element): boolean {
  const [red = 0, green = 0, blue = 0] = (getComputedStyle(element).color.match(/[\d.]+/g) ?? []).map(Number);
  return 0.3 * red + 0.6 * green + 0.1 * blue > HALF;
}

/** Marks `host` with the class `dark` where its notebook is, now and whenever that changes, until `signal`. */
export function followTheme(host: HTMLElement, signal: AbortSignal, onChange: () => void): void {
  let wasPlaced = false;
  const look = (): void => {
    const around = host.parentElement;
    if (around === null || !host.isConnected) return;
    const before = host.classList.contains("dark");
    if (host.classList.toggle("dark", isDark(around)) !== before || !wasPlaced) onChange();
    wasPlaced = true;
  };
  // Notebooks name their theme in an attribute of one of these.
  const named = new MutationObserver(look);
  for (const element of [document.documentElement, document.body]) named.observe(element, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look, { signal });
  // A view is made before it's put into the page.
  const placed = new ResizeObserver(look);
  placed.observe(host);
  signal.addEventListener("abort", () => {
    named.disconnect();
    placed.disconnect();
  });
  look();
}
