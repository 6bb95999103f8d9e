import { LESSONS } from "../src/lessons";
import { DEFAULTS, FIELDS, type Setup, agree, conflict, get, readSetup, same, simplified, withValue } from "../src/setup";
import { decodeShare, encodeShare, isShare } from "../src/share";
import { type Tests, equal, throws } from "./check";

const alone = (setup: Setup) => ({ setup, pinned: null, lesson: null });
const link = (value: unknown): string => `#setup=${btoa(JSON.stringify(value))}`.replace(/=+$/, "");

/** A value of every field that isn't the default. */
function other(setup: Setup): Setup {
  return FIELDS.reduce((changed, { table, key, rule }) => {
    const now = get(setup, table, key);
    if (rule.type === "switch") return withValue(changed, table, key, now !== true);
    if (rule.type === "list") return withValue(changed, table, key, [...(rule.choices ?? ["a"])]);
    if (rule.type === "form") return withValue(changed, table, key, rule.whole ? 2 : "every:3");
    if (rule.type === "choice") {
      return withValue(changed, table, key, rule.choices.find((choice) => choice !== now));
    }
    return withValue(changed, table, key, rule.type === "integer" ? rule.min + 2 : 0.5);
  }, setup);
}

export const tests: Tests = {
  every_field_survives_the_link() {
    const setup = other(DEFAULTS);
    equal(FIELDS.some((field) => agree(setup, DEFAULTS, field)), false);
    equal(decodeShare(encodeShare(alone(setup))), alone(setup));
  },
  the_defaults_make_a_short_link() {
    equal(encodeShare(alone(DEFAULTS)), "#setup=e30");
    equal(decodeShare("#setup=e30"), alone(DEFAULTS));
  },
  a_pinned_plan_and_a_lesson_survive_the_link() {
    const [lesson] = LESSONS;
    if (lesson === undefined) throw new Error("there are no lessons");
    const setup = withValue(lesson.after, "train", "seed", 7);
    for (const shown of [
      { setup, pinned: other(DEFAULTS), lesson: null },
      { setup, pinned: lesson.before, lesson },
      { setup: lesson.after, pinned: DEFAULTS, lesson },
      { setup: lesson.after, pinned: lesson.before, lesson },
    ]) {
      equal(decodeShare(encodeShare(shown)), shown);
    }
  },
  a_lesson_as_it_begins_makes_a_short_link() {
    for (const lesson of LESSONS) {
      const shown = { setup: lesson.after, pinned: lesson.before, lesson };
      equal(encodeShare(shown), `#lesson=${lesson.name}`);
      equal(isShare(encodeShare(shown)), true);
    }
    throws(() => decodeShare("#lesson=none"), /lesson is unknown/);
  },
  no_setup_is_not_an_error() {
    equal(decodeShare(""), null);
    equal(decodeShare("#learning"), null);
  },
  damage_is_an_error() {
    throws(() => decodeShare("#setup=%%%"), /damaged/);
    throws(() => decodeShare("#setup=e"), /damaged/);
    throws(() => decodeShare(`#setup=${"a".repeat(5000)}`), /damaged/);
    throws(() => decodeShare(link([1])), /object/);
    throws(() => decodeShare(link({ model: 3 })), /object/);
  },
  links_of_earlier_versions_still_work() {
    equal(decodeShare(link({ memory: { checkpoint: "block" } }))?.setup.memory.recompute, "block");
  },
  unknown_keys_are_errors() {
    throws(() => decodeShare(link({ script: {} })), /Unknown table/);
    throws(() => decodeShare(link({ model: { onload: "x" } })), /Unknown setting/);
    throws(() => decodeShare(`#setup=${btoa('{"__proto__":{"a":1}}')}`), /Unknown table/);
    throws(() => decodeShare(link({ model: { constructor: 1 } })), /Unknown setting/);
  },
  wrong_values_are_errors() {
    const wrong: unknown[] = [
      { model: { layers: 0 } },
      { model: { layers: "4" } },
      { model: { layers: 2.5 } },
      { model: { family: "<img>" } },
      { model: { dropout: 1 } },
      { model: { layers: null } },
      { train: { micro_batch: "none" } },
      { train: { lr: -1 } },
      { memory: { recompute: "every:0" } },
      { memory: { budget: -1 } },
      { run: { precision: "f64" } },
    ];
    for (const value of wrong) throws(() => decodeShare(link(value)), /must be/);
  },
  a_checkpoint_may_have_settings_the_page_lacks() {
    const setup = readSetup({ model: { layers: 2, preset: null }, out: {} }, DEFAULTS, true);
    equal(setup.model.layers, 2);
    throws(() => readSetup({ model: { layers: 0 } }, DEFAULTS, true), /must be/);
  },
  filled_in_values_are_left_out_again() {
    const full = withValue(withValue(DEFAULTS, "model", "hidden", 256), "model", "kv_heads", 4);
    const filled = withValue(withValue(full, "train", "min_lr", 2e-4), "train", "warmup", 50);
    equal(same(simplified(filled), DEFAULTS), true);
    equal(simplified(withValue(DEFAULTS, "model", "hidden", 100)).model.hidden, 100);
  },
  values_that_contradict_each_other_are_named() {
    equal(conflict(DEFAULTS), null);
    equal(conflict(withValue(DEFAULTS, "model", "heads", 3))?.includes("3 heads"), true);
    equal(conflict(withValue(DEFAULTS, "train", "micro_batch", 5))?.includes("micro-batch"), true);
    equal(conflict(withValue(DEFAULTS, "model", "kv_heads", 3))?.includes("key–value"), true);
  },
};
