// Fills the page from its data: the map with its controls, the tables, the chart of plans.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const WORDS = JSON.parse(byId("definitions").textContent);
// Frozen weights are shown where there are any.
const SHOWN = CLASSES.filter((name) => name in data.by_class);
const percent = (part) => `${(100 * part).toFixed(1)}%`;
const milliseconds = (seconds) => (1e3 * seconds).toFixed(2);

function row(cells, properties = {}) {
  return element("tr", properties, ...cells.map((cell) => {
    if (cell instanceof Node) return cell;
    const [className, content] = Array.isArray(cell) ? cell : ["", cell];
    return element("td", { className }, content);
  }));
}

function bar(share, name) {
  const made = element("div", { className: "bar" });
  made.style.width = `${Math.max(100 * share, 0.3)}%`;
  made.style.background = `var(--class-${name}, var(--rule))`;
  return made;
}

function describe(program, step, tensor, alive) {
  const list = element("dl");
  const say = (name, value) => list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  const op = program.ops[step];
  if (tensor) {
    say("Bytes", `${bytes(tensor.bytes)} (${tensor.bytes} bytes)`);
    say("Type", tensor.type);
    say("Class", tensor.class);
    say("Made by", tensor.kept ? "kept between steps" : opText(program, tensor.birth));
    const last = tensor.read_by.at(-1);
    if (last !== undefined) say("Last read by", opText(program, last));
    if (!tensor.kept) say("Alive", `ops ${tensor.birth} to ${tensor.death} of ${program.ops.length}`);
    say("Why now", reason(tensor, program, step));
    const again = tensor.again_s === null ? null : `making it once more takes ${time(tensor.again_s)}, where what it reads is there`;
    const never = tensor.kept ? "not possible: it is state" : "not possible: it is made in the pass that uses it";
    if (tensor.class === "activation" || tensor.kept) say("Again", again ?? never);
    say("Offset", `${tensor.offset} to ${tensor.offset + tensor.bytes}`);
  }
  say("At", opText(program, step));
  const measured = program.measured_s ? `, ${time(program.measured_s[step])} measured` : "";
  say("Takes", `${time(op.seconds)} predicted${measured}; moves ${bytes(op.bytes)}`);
  say("In use", `${bytes(op.live)}, ${percent(op.live / data.peak_bytes)} of the peak`);
  byId("tensor").replaceChildren(element("h3", { textContent: tensor ? tensor.name : "Nothing here: a gap" }), list);
  const largest = alive.toSorted((a, b) => b.bytes - a.bytes).slice(0, 8);
  byId("alive").replaceChildren(...largest.map((it) =>
    row([["number", bytes(it.bytes)], ["name", element("span", {}, swatch(it.class), it.name)]])));
}

function fillMap() {
  const map = new ArenaMap(byId("map"), data, describe);
  const controls = byId("controls");
  const names = data.programs.map(({ name, repeats }, index) => [index, repeats > 1 ? `${name} × ${repeats}` : name]);
  const start = map.index;
  if (names.length > 1) {
    const group = choice("Program", "program", names, (index) => map.show(Number(index)));
    group.querySelectorAll("input")[start].checked = true;
    controls.append(group);
  }
  const scales = [["ops", "ops"], ["predicted", "predicted time"]];
  if (data.profile) scales.push(["measured", "measured time"]);
  controls.append(choice("Width", "scale", scales, (value) => {
    map.scale = value;
    map.measure();
    map.paint();
  }));
  const heights = [["whole", "whole arena"], ["above", "above what is kept"]];
  if (!map.whole) heights.reverse();
  controls.append(choice("Height", "height", heights, (value) => {
    map.whole = value === "whole";
    map.paint();
  }));
  byId("legend").append(...SHOWN.map((name) => {
    const button = element("button", { type: "button", title: WORDS[name] }, swatch(name), name);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const hide = !map.hidden.has(name);
      if (hide) map.hidden.add(name);
      else map.hidden.delete(name);
      button.setAttribute("aria-pressed", String(!hide));
      map.paint();
    });
    return button;
  }));
}

function fillPeak() {
  byId("classes").append(...[...SHOWN, "gaps"].map((name) => {
    const count = data.by_class[name];
    const share = count / data.peak_bytes;
    return row([element("th", { scope: "row" }, swatch(name), name), ["number", bytes(count)],
      ["number", percent(share)], ["bars", bar(share, name)]]);
  }));
  byId("groups").append(...data.groups.map((group) => {
    const count = group.count > 1 ? `${group.count} × ` : "";
    return row([["number", bytes(group.bytes)],
      ["name", element("span", {}, swatch(group.class), count + group.name)], group.type]);
  }));
}

function fillWords() {
  const isUsed = (word) => !CLASSES.includes(word) || SHOWN.includes(word);
  byId("words").append(...Object.entries(WORDS).filter(([word]) => isUsed(word)).flatMap(([word, meaning]) =>
    [element("dt", { textContent: word }), element("dd", { textContent: meaning })]));
}

function fillPlans() {
  const fastest = data.plans[0];
  byId("plans").append(...data.plans.map((plan) => {
    const { micro_batch: size, accumulation, checkpoint } = plan.choices;
    return row([["number", bytes(plan.peak_bytes)], ["number", time(plan.predicted_step_s)],
      ["number", percent(plan.predicted_step_s / fastest.predicted_step_s - 1)],
      ["name", `${size} × ${accumulation}, ${checkpoint}`]], { className: isThis(plan) ? "this" : "" });
  }));
  // A line needs two points.
  byId("pareto").parentElement.hidden = data.plans.length < 2;
  if (data.plans.length > 1) drawPlans();
}

const isThis = (plan) => plan.peak_bytes === data.peak_bytes;

function drawPlans() {
  const svg = byId("pareto");
  const [width, height, left, right, top, bottom] = [560, 320, 84, 18, 16, 40];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const add = (name, attributes, text) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (text !== undefined) made.textContent = text;
    svg.append(made);
    return made;
  };
  const here = { peak_bytes: data.peak_bytes, predicted_step_s: data.step_s };
  const points = [...data.plans, here];
  const range = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = (high - low || high) * 0.08;
    return [Math.max(0, low - margin), high + margin];
  };
  const [fewest, most] = range(points.map((point) => point.peak_bytes));
  const [least, longest] = range(points.map((point) => point.predicted_step_s));
  const x = (count) => left + ((count - fewest) / (most - fewest)) * (width - left - right);
  const y = (seconds) => height - bottom - ((seconds - least) / (longest - least)) * (height - top - bottom);
  for (let tick = 0; tick <= 4; tick += 1) {
    const count = fewest + ((most - fewest) * tick) / 4;
    const seconds = least + ((longest - least) * tick) / 4;
    add("line", { class: "axis", x1: left, x2: width - right, y1: y(seconds), y2: y(seconds) });
    add("text", { x: left - 8, y: y(seconds) + 4, "text-anchor": "end" }, time(seconds));
    const anchor = tick === 0 ? "start" : tick === 4 ? "end" : "middle";
    add("text", { x: x(count), y: height - bottom + 20, "text-anchor": anchor }, bytes(count));
  }
  const budget = data.budget_bytes;
  if (budget !== null && budget > fewest && budget < most) {
    add("line", { class: "budget", x1: x(budget), x2: x(budget), y1: top, y2: height - bottom });
    add("text", { x: x(budget) + 5, y: top + 10 }, `budget ${bytes(budget)}`);
  }
  // A plan is the fastest for every budget up to the next one's peak.
  const rising = data.plans.toReversed();
  const path = rising.map(({ peak_bytes: count, predicted_step_s: seconds }, index) =>
    index === 0 ? `M${x(count)} ${y(seconds)}` : `H${x(count)}V${y(seconds)}`);
  add("path", { class: "line", d: path.join("") });
  const dot = ({ peak_bytes: count, predicted_step_s: seconds }, className, label) => {
    const made = add("circle", { class: className, cx: x(count), cy: y(seconds), r: className === "here" ? 6 : 4 });
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = `${label}${bytes(count)}, ${time(seconds)}`;
    made.append(title);
  };
  data.plans.forEach((plan) => dot(plan, "dot", ""));
  dot(here, "here", "this plan: ");
  const side = x(here.peak_bytes) > width / 2 ? "end" : "start";
  add("text", { x: x(here.peak_bytes) + (side === "end" ? -10 : 10), y: y(here.predicted_step_s) - 9, "text-anchor": side },
    `this plan: ${bytes(here.peak_bytes)}, ${time(here.predicted_step_s)}`);
}

function fillLayers() {
  byId("layers").append(...data.layers.map((layer) => {
    const [first, last] = layer.blocks ?? [];
    const several = `${first} to ${last}, each`;
    const name = layer.blocks === null ? "outside of blocks" : first === last ? `${first}` : several;
    const sizes = [layer.weight, layer.gradient, layer.optimizer, layer.kept].map(bytes);
    const times = [layer.forward_s, layer.backward_s, layer.recompute_s, layer.update_s].map((it) => (it > 0 ? milliseconds(it) : "–"));
    return row([element("th", { scope: "row", textContent: name }), ...[...sizes, ...times].map((it) => ["number", it])]);
  }));
}

const phaseName = ({ program, phase }) => (program === phase ? phase : `${program} ${phase}`);

function fillMeasured() {
  const { profile } = data;
  if (!profile) return;
  byId("measured").hidden = false;
  const whole = profile.step_s === null ? "" : ` A step of the run took ${time(profile.step_s)} (median), and
    ${time(profile.predicted_step_s)} were predicted.`;
  byId("measured-note").textContent = `Ops one by one on ${profile.device}, in milliseconds of a step.${whole} The plan's peak
    is ${profile.predicted_peak_bytes} bytes, and the device allocated ${profile.allocated_bytes}:
    ${Math.abs(profile.allocated_bytes - profile.predicted_peak_bytes)} apart.`;
  const longest = Math.max(...profile.families.flatMap((it) => [it.predicted_s, it.measured_s]));
  byId("families").append(...profile.families.map((family) => {
    const bars = element("div", { className: "pair" }, bar(family.predicted_s / longest, "input"),
      bar(family.measured_s / longest, "weight"));
    return row([element("th", { scope: "row", textContent: family.op }), ["number", `${family.runs}`],
      ["number", milliseconds(family.predicted_s)], ["number", milliseconds(family.measured_s)],
      ["number", (family.measured_s / family.predicted_s).toFixed(2)], ["bars", bars]]);
  }));
  byId("phases").append(...profile.phases.map((phase) => row([
    element("th", { scope: "row", textContent: phaseName(phase) }),
    ["number", milliseconds(phase.predicted_s)], ["number", milliseconds(phase.measured_s)],
    ["number", bytes(phase.live_bytes)], ["number", bytes(phase.allocated_bytes)],
    ["number", phase.resident_bytes === null ? "unknown" : bytes(phase.resident_bytes)]])));
}

fillMap();
fillPeak();
fillWords();
fillPlans();
fillLayers();
fillMeasured();
