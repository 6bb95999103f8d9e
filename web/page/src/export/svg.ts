// A plan's map as SVG, which scales and can be searched: each tensor has its name.

import { boxOf, sections, ticks, xOf, yOf } from "../arena/geometry";
import { type Theme, frameOf } from "../arena/paint";
import { type PlanTensor, type Planned, ROWS } from "../engine/types";
import { bytes, roundBytes } from "../format";
import { HEADROOM, HEIGHT, LEGEND, TITLE, WIDTH } from "./sheet";

const INTERVALS = 5;

export function svgOf(planned: Planned, theme: Theme): string {
  const { ops, tensors } = planned.program;
  const frame = frameOf(WIDTH, HEIGHT, ops.length, planned.peak_bytes * HEADROOM);
  frame.top += TITLE;
  const right = frame.left + frame.width;
  const height = TITLE + HEIGHT + LEGEND;
  const title = `Memory of a training step: peak ${bytes(planned.peak_bytes)}`;
  const text = (x: number, y: number, content: string, more = ""): string =>
    `<text x="${round(x)}" y="${round(y)}"${more}>${escaped(content)}</text>`;
  const lines = ticks(frame.bytes, INTERVALS).map((tick) => {
    const y = round(yOf(frame, tick));
    const label = text(frame.left - 8, y + 4, roundBytes(tick), ' text-anchor="end"');
    return `<path d="M${frame.left} ${y}H${right}" stroke="${theme.rule}"/>${label}`;
  });
  const box = (tensor: PlanTensor): string => {
    const { x, y, width, height } = boxOf(frame, tensor);
    const size = `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
    const name = escaped(`${tensor.name}: ${bytes(tensor.bytes)}, ${tensor.class}`);
    return `<rect ${size} fill="${theme.classes[tensor.class]}"><title>${name}</title></rect>`;
  };
  const bottom = frame.top + frame.height;
  const phases = sections(ops).map(({ label, from, to }) => {
    const [x, end] = [xOf(frame, from), xOf(frame, to)];
    const bar = `<path d="M${round(x)} ${bottom + 8}H${round(end - 1)}" stroke="${theme.muted}" stroke-width="4"/>`;
    return end - x > 7 * label.length ? bar + text(x, bottom + 24, label) : bar;
  });
  const peak = round(yOf(frame, planned.peak_bytes));
  const classes = ROWS.filter((name) => (planned.by_class[name] ?? 0) > 0);
  const legend = classes.map((name, index) => {
    const [x, y] = [frame.left + index * 120, height - 16];
    const swatch = `<rect x="${x}" y="${y - 9}" width="10" height="10" rx="2" fill="${name === "gaps" ? theme.muted : theme.classes[name]}"/>`;
    return swatch + text(x + 16, y, `${name} ${bytes(planned.by_class[name] ?? 0)}`);
  });
  const size = `viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="11" fill="${theme.muted}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" fill="${theme.surface}"/>`,
    text(frame.left, 22, title, ` font-size="15" fill="${theme.ink}"`),
    ...lines,
    ...tensors.map(box),
    `<path d="M${frame.left} ${peak}H${right}" stroke="${theme.ink}"/>`,
    ...phases,
    ...legend,
    "</svg>\n",
  ].join("\n");
}

/** To hundredths: finer than any screen, and short. */
function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
