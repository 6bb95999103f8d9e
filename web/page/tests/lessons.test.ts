import { LESSONS, lessonOf } from "../src/lessons";
import { FIELDS, agree, conflict, same } from "../src/setup";
import { effect } from "../src/ui/lesson-bar";
import { type Tests, equal } from "./check";

export const tests: Tests = {
  a_lesson_is_one_change_and_two_sentences() {
    for (const { name, before, after, text } of LESSONS) {
      const changed = FIELDS.filter((field) => !agree(before, after, field));
      equal([name, changed.length], [name, 1]);
      equal([name, text.length], [name, 2]);
      for (const sentence of text) equal(/^[A-Z][^.]*\.$/.test(sentence), true);
    }
  },
  both_setups_of_a_lesson_hold_together() {
    for (const { before, after } of LESSONS) {
      equal([conflict(before), conflict(after)], [null, null]);
      equal(same(before, after), false);
    }
  },
  a_lesson_is_found_by_its_name() {
    for (const lesson of LESSONS) equal(lessonOf(lesson.name)?.title, lesson.title);
    equal(lessonOf("none"), null);
  },
  what_a_lesson_saves_and_costs_is_said() {
    const by_class = { weight: 0, frozen: 0, optimizer: 0, gradient: 0, activation: 0, workspace: 0, input: 0, gaps: 0 };
    const choices = { micro_batch: 1, accumulation: 1, checkpoint: "none", loss_chunk: 0 };
    const plan = (peak_bytes: number, step_s: number) => ({ peak_bytes, step_s, by_class, choices });
    const said = effect(plan(400 * 2 ** 20, 0.02), plan(100 * 2 ** 20, 0.03)).replaceAll("\u00a0", " ");
    equal(said, "The peak goes from 400 MiB to 100 MiB: 75 % less. A step is predicted to take 30.0 ms instead of 20.0 ms.");
    equal(effect(plan(1024, 1), plan(1024, 1)).includes("less"), false);
  },
};
