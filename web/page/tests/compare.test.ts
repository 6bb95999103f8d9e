import { type Comparable, bytesChange, compare, secondsChange, sentence } from "../src/compare/compare";
import { type Tests, equal } from "./check";

const MIB = 2 ** 20;

function plan(values: Partial<Comparable>): Comparable {
  return {
    peak_bytes: 100 * MIB,
    by_class: { weight: 40 * MIB, optimizer: 0, gradient: 0, activation: 60 * MIB, workspace: 0, input: 0 } as Comparable["by_class"],
    step_s: 0.5,
    choices: { micro_batch: 8, accumulation: 1, checkpoint: "none", loss_chunk: 0 },
    ...values,
  };
}

const whole = plan({});
const less = plan({
  peak_bytes: 75 * MIB,
  by_class: { ...whole.by_class, activation: 30 * MIB, workspace: 5 * MIB },
  step_s: 0.75,
  choices: { micro_batch: 4, accumulation: 2, checkpoint: "none", loss_chunk: 128 },
});

export const tests: Tests = {
  a_plan_differs_from_itself_in_nothing() {
    const same = compare(whole, whole);
    equal([same.peak.change, same.step.change, same.choices], [0, 0, []]);
    equal(same.classes.every(({ change }) => change === 0), true);
    equal(bytesChange(same.peak), "no change");
    equal(sentence(same), "The second plan is as large and as fast.");
  },
  bytes_and_seconds_are_the_second_plans_less_the_firsts() {
    const { peak, step } = compare(whole, less);
    equal([peak.change, peak.share], [-25 * MIB, -0.25]);
    equal(bytesChange(peak), "−25.0 MiB (−25 %)");
    equal(secondsChange(step), "+250 ms (+50 %)");
    equal(sentence(compare(whole, less)), "The second plan is 25.0 MiB smaller and 50 % slower.");
    equal(sentence(compare(less, whole)), "The second plan is 25.0 MiB larger and 33 % faster.");
  },
  classes_are_those_that_one_of_both_has() {
    const { classes } = compare(whole, less);
    equal(classes.map(({ name, change }) => [name, change / MIB]), [
      ["weight", 0],
      ["activation", -30],
      ["workspace", 5],
    ]);
    equal(classes.map(({ share }) => share), [0, -0.5, null]);
    equal(bytesChange(classes[2] as (typeof classes)[number]), "+5.00 MiB");
  },
  a_share_that_rounds_to_nothing_is_left_out() {
    const { peak } = compare(whole, plan({ peak_bytes: whole.peak_bytes + 4 }));
    equal(bytesChange(peak), "+4 B");
  },
  only_choices_that_differ_are_named() {
    equal(compare(whole, less).choices, [
      { name: "Micro-batch", first: "8 × 1", second: "4 × 2" },
      { name: "Loss", first: "in one piece", second: "in chunks of 128" },
    ]);
  },
  choices_beyond_the_pages_own_are_compared_where_the_engine_tells_them() {
    const choices = { ...whole.choices, precision: "f32", optimizer_bits: 32, offload: [], lora: null };
    const other = { ...choices, precision: "bf16", optimizer_bits: 8, offload: ["optimizer"], lora: { rank: 8 } };
    equal(compare(plan({ choices }), plan({ choices: other })).choices.map(({ name, second }) => [name, second]), [
      ["Precision", "bf16"],
      ["Optimizer state", "8 bits"],
      ["Offloaded", "optimizer"],
      ["LoRA rank", "8"],
    ]);
  },
};
