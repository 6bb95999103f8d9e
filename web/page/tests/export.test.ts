import type { Theme } from "../src/arena/paint";
import { CLASSES, type PlanTensor, type Planned } from "../src/engine/types";
import { csvOf } from "../src/export/csv";
import { svgOf } from "../src/export/svg";
import { type Tests, equal } from "./check";

const theme: Theme = {
  ink: "#000",
  muted: "#666",
  rule: "#ddd",
  surface: "#fff",
  accent: "#c00",
  font: "11px mono",
  classes: Object.fromEntries(CLASSES.map((name, index) => [name, `#00000${index}`])) as Theme["classes"],
};

const tensor = (values: Partial<PlanTensor>): PlanTensor => ({
  name: "x",
  type: "f32[2, 8]",
  class: "activation",
  offset: 0,
  bytes: 256,
  birth: 0,
  death: 1,
  kept: false,
  read_by: [],
  again_s: null,
  ...values,
});

const op = { op: "map", name: "x", seconds: 1, live: 512 };
const planned = {
  peak_bytes: 512,
  lower_bound_bytes: 512,
  by_class: { weight: 256, activation: 256 },
  program: {
    name: "train",
    ops: [{ ...op, phase: "forward" }, { ...op, phase: "backward" }],
    tensors: [
      tensor({ name: "w", class: "weight", kept: true, type: "f32[64]" }),
      tensor({ name: 'a "<b>" & c', offset: 256, again_s: 0.5 }),
    ],
  },
} as unknown as Planned;

export const tests: Tests = {
  a_table_has_a_row_for_each_tensor() {
    const rows = csvOf(planned).split("\r\n");
    equal(rows.length, 4);
    equal(rows[0]?.startsWith("name,class,type,bytes,offset,first_op,last_op"), true);
    equal(rows[1], "w,weight,f32[64],256,0,0,1,true,,,");
    equal(rows[2], '"a ""<b>"" & c",activation,"f32[2, 8]",256,256,0,1,false,map,forward,0.5');
    equal(rows[3], "");
  },
  a_drawing_has_a_box_for_each_tensor_and_says_its_name() {
    const svg = svgOf(planned, theme);
    equal(svg.match(/<rect [^>]*><title>/g)?.length, 2);
    equal(svg.includes("<title>w: 256 B, weight</title>"), true);
    equal(svg.includes("a &quot;&lt;b&gt;&quot; &amp; c: 256 B"), true);
    equal(svg.includes("peak 512 B") && svg.includes(">forward</text>"), true);
    // Classes that the plan has none of aren't in the legend.
    equal(svg.includes("weight 256 B") && !svg.includes("gradient"), true);
  },
  boxes_of_a_drawing_lie_where_the_plan_says() {
    const boxes = svgOf(planned, theme).matchAll(/<rect x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)"/g);
    const [weight, activation] = [...boxes].map(([, ...numbers]) => numbers.map(Number));
    const [, low = 0] = weight ?? [];
    const [left, high = 0, , height = 0] = activation ?? [];
    equal(Math.abs(low - (high + height)) < 0.02, true);
    equal(weight?.[0], left);
  },
};
