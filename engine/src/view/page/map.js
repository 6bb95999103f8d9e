// The arena as a map of offset and time, with the bytes in use below it. Both are painted on one canvas; a second one
// above it carries the cursor.

const CLASSES = ["weight", "frozen", "gradient", "optimizer", "activation", "workspace", "input"];
const GUTTER = { left: 70, right: 14, top: 18, middle: 30, live: 112, bottom: 24 };
const FONT = "12px system-ui, sans-serif";
// Above this share of what is kept between steps, the map begins above it.
const KEPT_SHARE = 0.6;
// Seams between boxes take a pixel, where the boxes have some to spare.
const SEAM_FROM = 4;

const KIB = 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** `512 B`, `1.24 GiB`: three digits. */
function bytes(count) {
  let value = count;
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit + 1 < UNITS.length) {
    value /= KIB;
    unit += 1;
  }
  const size = Math.abs(value);
  const decimals = unit === 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return `${value.toFixed(decimals)} ${UNITS[unit]}`;
}

/** Seconds as milliseconds, or as seconds where they are many. */
function time(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(3)} s`;
  if (seconds >= 1e-3) return `${(1e3 * seconds).toFixed(seconds >= 0.1 ? 0 : 2)} ms`;
  return `${(1e6 * seconds).toFixed(1)} µs`;
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function swatch(name) {
  const made = element("span", { className: "swatch" });
  made.style.background = `var(--class-${name}, var(--rule))`;
  made.setAttribute("aria-hidden", "true");
  return made;
}

/** The names of a list of (value, label) pairs as a group of radio buttons. */
function choice(title, name, options, onChange) {
  const group = element("fieldset", {}, element("legend", { textContent: title }));
  options.forEach(([value, label], index) => {
    const input = element("input", { type: "radio", name, value, checked: index === 0 });
    input.addEventListener("change", () => onChange(value));
    group.append(element("label", {}, input, ` ${label}`));
  });
  return group;
}

/** Why a tensor holds its bytes at an op. */
function reason(tensor, program, step) {
  const next = tensor.read_by.find((reader) => reader > step || (reader === step && reader !== tensor.birth));
  if (next !== undefined && next === step) return `this op reads it`;
  if (next !== undefined) return `read next by ${opText(program, next)}`;
  if (tensor.result) return "the host reads it after the program";
  if (tensor.kept) return "kept for the next step";
  return tensor.birth === step ? "this op makes it" : "until its last reader ends";
}

function opText(program, step) {
  const { op, name, phase } = program.ops[step];
  return `op ${step}: ${op} → ${name} (${phase})`;
}

class ArenaMap {
  constructor(host, data, details) {
    this.host = host;
    this.data = data;
    this.details = details;
    [this.scene, this.overlay] = host.querySelectorAll("canvas");
    this.hidden = new Set();
    this.scale = "ops";
    // What is kept between steps would leave the rest a thin stripe.
    this.whole = data.persistent_bytes < KEPT_SHARE * data.peak_bytes;
    this.cursor = null;
    this.show(this.peak().program);
    new ResizeObserver(() => this.paint()).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    for (const type of ["pointermove", "pointerdown"]) {
      host.addEventListener(type, (event) => this.point(event));
    }
    host.addEventListener("keydown", (event) => this.key(event));
  }

  /** Where the most bytes are in use. */
  peak() {
    let found = { program: 0, step: 0, live: 0 };
    this.data.programs.forEach(({ ops }, program) => {
      ops.forEach(({ live }, step) => {
        if (live > found.live) found = { program, step, live };
      });
    });
    return found;
  }

  show(index) {
    this.index = index;
    this.program = this.data.programs[index];
    this.measure();
    const peak = this.peak();
    const step = peak.program === index ? peak.step : this.program.ops.reduce(
      (best, { live }, step, ops) => (live > ops[best].live ? step : best), 0);
    this.top = step;
    const alive = this.aliveAt(step).filter((tensor) => !tensor.kept);
    this.move(step, alive.reduce((best, tensor) => (best && best.bytes >= tensor.bytes ? best : tensor), null));
    this.paint();
  }

  /** Where each op begins, from 0 to 1. */
  measure() {
    const { ops, measured_s: measured } = this.program;
    const widths = ops.map((op, step) => {
      if (this.scale === "ops") return 1;
      return this.scale === "measured" && measured ? measured[step] : op.seconds;
    });
    const total = widths.reduce((sum, width) => sum + width, 0) || 1;
    let sum = 0;
    this.begins = widths.map((width) => (sum += width) - width).map((begin) => begin / total);
    this.begins.push(1);
  }

  frame() {
    const { clientWidth, clientHeight } = this.host;
    const height = clientHeight - GUTTER.top - GUTTER.middle - GUTTER.live - GUTTER.bottom;
    const bottom = this.whole ? 0 : this.data.persistent_bytes;
    const top = Math.max(this.data.peak_bytes - this.data.fixed_bytes, 1);
    const width = clientWidth - GUTTER.left - GUTTER.right;
    return { left: GUTTER.left, top: GUTTER.top, width, height, bottom, bytes: Math.max(top - bottom, 1) };
  }

  x(frame, step) {
    return frame.left + this.begins[Math.min(step, this.begins.length - 1)] * frame.width;
  }

  y(frame, offset) {
    const part = (Math.max(offset, frame.bottom) - frame.bottom) / frame.bytes;
    return frame.top + frame.height * (1 - part);
  }

  box(frame, tensor) {
    const left = this.x(frame, tensor.birth);
    const right = this.x(frame, tensor.death + 1);
    const top = this.y(frame, tensor.offset + tensor.bytes);
    return [left, top, Math.max(right - left, 1), Math.max(this.y(frame, tensor.offset) - top, 0)];
  }

  visible(tensor) {
    return !this.hidden.has(tensor.class);
  }

  aliveAt(step) {
    const { tensors } = this.program;
    return tensors
      .filter((tensor) => tensor.birth <= step && step <= tensor.death)
      .sort((a, b) => a.offset - b.offset);
  }

  paint() {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.scene, this.overlay]) {
      canvas.width = Math.round(this.host.clientWidth * ratio);
      canvas.height = Math.round(this.host.clientHeight * ratio);
    }
    const style = getComputedStyle(this.host);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = Object.fromEntries(
      ["ink", "muted", "rule", "accent", "surface"].map((name) => [name, color(name)]));
    CLASSES.forEach((name) => (this.colors[name] = color(`class-${name}`)));
    const context = this.scene.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.host.clientWidth, this.host.clientHeight);
    context.font = FONT;
    const frame = this.frame();
    this.paintAxis(context, frame);
    for (const tensor of this.program.tensors.filter((tensor) => this.visible(tensor))) {
      const [x, y, width, height] = this.box(frame, tensor);
      if (height === 0) continue;
      context.fillStyle = this.colors[tensor.class];
      const seam = (length) => (length >= SEAM_FROM ? length - 1 : length);
      context.fillRect(x, y, seam(width), Math.max(seam(height), 0.5));
    }
    this.paintPhases(context, frame);
    this.paintLive(context, frame);
    this.paintCursor();
  }

  paintAxis(context, frame) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let tick = 0; tick <= 4; tick += 1) {
      const offset = frame.bottom + (frame.bytes * tick) / 4;
      const y = this.y(frame, offset);
      context.fillStyle = this.colors.rule;
      context.fillRect(frame.left, Math.round(y), frame.width, 1);
      context.fillStyle = this.colors.muted;
      context.fillText(bytes(offset), frame.left - 8, y);
    }
  }

  /** A stripe for each run of ops of one phase, and the names of those with room. */
  paintPhases(context, frame) {
    const y = frame.top + frame.height + 5;
    const group = (phase) => (phase === "recompute" ? "backward" : phase);
    const { ops } = this.program;
    context.textBaseline = "top";
    context.textAlign = "left";
    for (let from = 0, to = 0; from < ops.length; from = to) {
      for (to = from; to < ops.length && group(ops[to].phase) === group(ops[from].phase); to += 1);
      const [left, right] = [this.x(frame, from), this.x(frame, to)];
      context.fillStyle = this.colors.rule;
      context.fillRect(left, y, Math.max(right - left - 1, 1), 5);
      context.fillStyle = this.colors.muted;
      const name = group(ops[from].phase);
      if (context.measureText(name).width < right - left) context.fillText(name, left, y + 9);
    }
    context.fillStyle = this.colors.accent;
    ops.forEach(({ phase }, step) => {
      const left = this.x(frame, step);
      if (phase === "recompute") context.fillRect(left, y, Math.max(this.x(frame, step + 1) - left, 0.5), 5);
    });
  }

  /** The bytes in use, the lower bound and the peak. */
  paintLive(context, frame) {
    const { peak_bytes: most, lower_bound_bytes: bound, budget_bytes: budget } = this.data;
    const top = frame.top + frame.height + GUTTER.middle;
    const base = frame.bottom;
    const y = (live) => top + GUTTER.live * (1 - Math.max(live - base, 0) / Math.max(most - base, 1) * 0.8);
    const right = frame.left + frame.width;
    context.fillStyle = this.colors.muted;
    context.globalAlpha = 0.35;
    context.beginPath();
    context.moveTo(frame.left, top + GUTTER.live);
    this.program.ops.forEach(({ live }, step) => {
      context.lineTo(this.x(frame, step), y(live));
      context.lineTo(this.x(frame, step + 1), y(live));
    });
    context.lineTo(right, top + GUTTER.live);
    context.fill();
    context.globalAlpha = 1;
    const rule = (value, color, dash) => {
      context.strokeStyle = color;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(frame.left, Math.round(y(value)) + 0.5);
      context.lineTo(right, Math.round(y(value)) + 0.5);
      context.stroke();
      context.setLineDash([]);
    };
    rule(most, this.colors.ink, []);
    rule(bound, this.colors.ink, [2, 3]);
    if (budget !== null && budget >= most && y(budget) > top + 20) rule(budget, this.colors.accent, [4, 3]);
    context.fillStyle = this.colors.ink;
    context.beginPath();
    context.arc((this.x(frame, this.top) + this.x(frame, this.top + 1)) / 2, y(this.program.ops[this.top].live), 3.5, 0, 7);
    context.fill();
    context.textAlign = "left";
    context.textBaseline = "middle";
    const text = most === bound ? `peak ${bytes(most)} = lower bound` : `peak ${bytes(most)}, lower bound ${bytes(bound)}`;
    context.fillText(text, frame.left, top + 12);
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = this.colors.muted;
    context.fillText("in use", frame.left - 8, top + GUTTER.live / 2);
    context.fillText(bytes(base), frame.left - 8, top + GUTTER.live);
    context.textBaseline = "top";
    const ends = { ops: `${this.program.ops.length} ops`, predicted: "predicted time", measured: "measured time" };
    context.fillText(ends[this.scale], right, top + GUTTER.live + 6);
  }

  paintCursor() {
    const ratio = window.devicePixelRatio || 1;
    const context = this.overlay.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.host.clientWidth, this.host.clientHeight);
    if (this.cursor === null || this.colors === undefined) return;
    const frame = this.frame();
    const x = (this.x(frame, this.cursor.step) + this.x(frame, this.cursor.step + 1)) / 2;
    context.fillStyle = this.colors.ink;
    context.fillRect(Math.round(x), frame.top, 1, frame.height + GUTTER.middle + GUTTER.live);
    const { tensor } = this.cursor;
    if (!tensor) return;
    const [left, top, width, height] = this.box(frame, tensor);
    context.lineWidth = 3;
    context.strokeStyle = this.colors.surface;
    context.strokeRect(left, top, width, height);
    context.lineWidth = 1.5;
    context.strokeStyle = this.colors.ink;
    context.strokeRect(left, top, width, height);
    for (const reader of tensor.read_by) {
      const at = (this.x(frame, reader) + this.x(frame, reader + 1)) / 2;
      context.beginPath();
      context.moveTo(at, top + height);
      context.lineTo(at - 3, top + height + 5);
      context.lineTo(at + 3, top + height + 5);
      context.fill();
    }
  }

  move(step, tensor) {
    if (this.cursor && this.cursor.step === step && this.cursor.tensor === tensor) return;
    this.cursor = { step, tensor };
    this.paintCursor();
    this.details(this.program, step, tensor, this.aliveAt(step));
  }

  point(event) {
    const frame = this.frame();
    const box = this.host.getBoundingClientRect();
    const across = (event.clientX - box.left - this.host.clientLeft - frame.left) / frame.width;
    const up = 1 - (event.clientY - box.top - this.host.clientTop - frame.top) / frame.height;
    if (across < 0 || across >= 1) return;
    let step = this.begins.findIndex((begin) => begin > across) - 1;
    if (step < 0) step = this.program.ops.length - 1;
    const offset = frame.bottom + up * frame.bytes;
    const found = this.aliveAt(step).filter((tensor) => this.visible(tensor))
      .find((tensor) => tensor.offset <= offset && offset < tensor.offset + tensor.bytes);
    this.move(step, found ?? null);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.program.ops.length - 1;
    const { step, tensor } = this.cursor;
    const stride = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
    const sideways = { ArrowLeft: -stride, ArrowRight: stride, Home: -last, End: last }[event.key];
    const upwards = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (sideways !== undefined) {
      const next = Math.min(last, Math.max(0, step + sideways));
      const alive = this.aliveAt(next);
      const offset = tensor ? tensor.offset : 0;
      const beside = alive.findLast((other) => other.offset <= offset) ?? alive[0] ?? null;
      this.move(next, alive.includes(tensor) ? tensor : beside);
    } else if (upwards !== undefined) {
      const alive = this.aliveAt(step).filter((other) => this.visible(other));
      const at = alive.indexOf(tensor);
      const next = at < 0 ? 0 : Math.min(alive.length - 1, Math.max(0, at + upwards));
      this.move(step, alive[next] ?? null);
    } else if (event.key === "p" || event.key === "P") {
      this.show(this.peak().program);
    } else {
      return;
    }
    event.preventDefault();
  }
}
