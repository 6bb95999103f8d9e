import { explain } from "../src/arena/explain";
import { type Frame, aliveAt, at, boxOf, peakProgram, peakStep, sections, snapped, spans, tensorAt, ticks } from "../src/arena/geometry";
import type { PlanOp, PlanTensor, Program } from "../src/engine/types";
import { smoothed } from "../src/ui/chart";
import { type Tests, equal } from "./check";

const frame: Frame = { left: 50, top: 10, width: 100, height: 200, steps: 10, bytes: 400 };

function tensor(values: Partial<PlanTensor>): PlanTensor {
  return {
    name: "x",
    type: "f32[25]",
    class: "activation",
    offset: 0,
    bytes: 100,
    birth: 0,
    death: 0,
    kept: false,
    read_by: [],
    again_s: null,
    ...values,
  };
}

const weight = tensor({ name: "w", class: "weight", kept: true, death: 9 });
const kept = tensor({ name: "kept", offset: 100, birth: 2, death: 7, read_by: [3, 7], again_s: 5e-4 });
const inPlace = tensor({ name: "later", offset: 100, birth: 7, death: 8, read_by: [8] });
const tensors = [weight, kept, inPlace];
const op = (phase: PlanOp["phase"], live = 100): PlanOp => ({ op: "map", name: "map", phase, seconds: 1e-3, live });

const program: Program = {
  name: "step",
  ops: Array.from({ length: 10 }, (_, index) =>
    op(index < 5 ? "forward" : "backward", 2 <= index && index < 9 ? 200 : 100),
  ),
  tensors,
};

export const tests: Tests = {
  a_tensor_is_as_wide_as_its_life_and_as_high_as_its_bytes() {
    equal(boxOf(frame, kept), { x: 70, y: 110, width: 60, height: 50 });
    equal(boxOf(frame, weight), { x: 50, y: 160, width: 100, height: 50 });
  },
  rectangles_lie_on_device_pixels_and_never_vanish() {
    equal(snapped({ x: 1.3, y: 2.6, width: 0.1, height: 0.2 }, 2), { x: 3, y: 5, width: 1, height: 1 });
    const a = snapped({ x: 0, y: 0, width: 3.3, height: 1 }, 1.5);
    const b = snapped({ x: 3.3, y: 0, width: 3.3, height: 1 }, 1.5);
    equal(a.x + a.width, b.x);
  },
  a_point_finds_its_step_and_offset() {
    equal(at(frame, 70, 110), { step: 2, offset: 200 });
    equal(at(frame, 49, 110), null);
    equal(at(frame, 150, 110), null);
  },
  every_corner_of_a_box_points_back_at_its_tensor() {
    for (const index of [0, 1]) {
      const box = boxOf(frame, tensors[index] as PlanTensor);
      const place = at(frame, box.x + 0.1, box.y + box.height - 0.1);
      equal(tensorAt(tensors, place?.step ?? -1, place?.offset ?? -1), index);
    }
  },
  of_tensors_in_one_place_the_last_made_is_found() {
    equal(tensorAt(tensors, 6, 150), 1);
    equal(tensorAt(tensors, 7, 150), 2);
    equal(tensorAt(tensors, 9, 150), null);
    equal(tensorAt(tensors, 9, 50), 0);
  },
  the_living_are_listed_from_the_bottom() {
    equal(aliveAt(tensors, 7), [0, 1, 2]);
    equal(aliveAt(tensors, 0), [0]);
    equal(peakStep(program.ops), 2);
    equal(peakStep([]), 0);
  },
  the_program_of_the_peak_is_shown() {
    const update: Program = { name: "update", ops: [op("update", 150)], tensors: [] };
    equal(peakProgram([update, program, { ...program, name: "another" }]).name, "step");
    equal(peakProgram([]).ops, []);
  },
  phases_are_joined() {
    equal(spans(program.ops), [
      { phase: "forward", from: 0, to: 5 },
      { phase: "backward", from: 5, to: 10 },
    ]);
  },
  recomputation_is_labelled_with_the_backward_pass() {
    const ops = (["forward", "recompute", "backward", "recompute", "backward", "update"] as const).map((phase) => op(phase));
    equal(sections(ops).map(({ label, from, to }) => [label, from, to]), [
      ["forward", 0, 1],
      ["backward, recompute", 1, 5],
      ["update", 5, 6],
    ]);
  },
  ticks_are_round_and_few() {
    const mib = 2 ** 20;
    equal(ticks(20 * mib, 5), [0, 5, 10, 15, 20].map((value) => value * mib));
    equal(ticks(1.1 * mib, 5), [0, 0.25, 0.5, 0.75, 1].map((value) => value * mib));
    equal(ticks(0, 5), [0]);
    for (let most = 1; most < 2 ** 42; most *= 1.7) {
      const found = ticks(most, 5);
      equal(found.length >= 2 && found.length <= 6 && (found.at(-1) ?? 0) <= most, true);
    }
  },
  a_tensor_says_who_made_it_and_who_reads_it_next() {
    const rows = Object.fromEntries(explain(program, 1, 4).rows);
    equal(rows["Made by"], "step 2 · map (forward)");
    equal(rows["Read next by"], "step 7 · map (backward)");
    equal(rows["Recomputing"], "Would take 0.50 ms, 5.0 % of program “step”.");
    equal(rows["Alive"], "Steps 2 to 7, 6 of 10");
    equal(Object.fromEntries(explain(program, 0, 4).rows)["Kept"]?.startsWith("For the whole run"), true);
  },
  smoothing_keeps_a_constant_and_skips_gaps() {
    equal(smoothed([2, 2, null, 2]), [2, 2, null, 2]);
    equal(smoothed(Array.from({ length: 200 }, () => 3)).every((value) => value === 3), true);
    equal(smoothed([]), []);
  },
};
