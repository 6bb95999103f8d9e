// A plan's map as an image, as the page draws it.

import { type Theme, frameOf, paintScene } from "../arena/paint";
import { type Planned, ROWS } from "../engine/types";
import { bytes } from "../format";
import { HEADROOM, HEIGHT, LEGEND, TITLE, WIDTH } from "./sheet";

/** Device pixels to a CSS pixel. */
const RATIO = 2;

export function pngOf(planned: Planned, theme: Theme): Promise<Blob> {
  const canvas = document.createElement("canvas");
  const height = TITLE + HEIGHT + LEGEND;
  [canvas.width, canvas.height] = [WIDTH * RATIO, height * RATIO];
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("This browser draws no images.");
  const frame = frameOf(WIDTH, HEIGHT, planned.program.ops.length, planned.peak_bytes * HEADROOM);
  frame.top += TITLE;
  paintScene(context, { planned, frame, budget: null, highlight: null }, theme, RATIO);
  context.setTransform(RATIO, 0, 0, RATIO, 0, 0);
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillStyle = theme.ink;
  context.fillText(`Memory of a training step: peak ${bytes(planned.peak_bytes)}`, frame.left, 22);
  ROWS.filter((name) => (planned.by_class[name] ?? 0) > 0).forEach((name, index) => {
    const [x, y] = [frame.left + index * 140, height - 16];
    context.fillStyle = name === "gaps" ? theme.muted : theme.classes[name];
    context.fillRect(x, y - 9, 10, 10);
    context.fillStyle = theme.muted;
    context.fillText(`${name} ${bytes(planned.by_class[name] ?? 0)}`, x + 16, y);
  });
  // What is drawn so far has no ground.
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, WIDTH, height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob === null ? reject(new Error("The image can’t be made.")) : resolve(blob)), "image/png");
  });
}
