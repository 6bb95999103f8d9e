import { EXAMPLES } from "../src/examples";
import { STARTS, concerns, conflict, FIELDS, reads, same, toEngine, withFamily, withKind, withValue } from "../src/setup";
import { type Tests, equal } from "./check";

export const tests: Tests = {
  an_example_is_of_its_own_kind_alone_and_has_two_sentences() {
    for (const example of EXAMPLES) {
      equal(EXAMPLES.filter(({ isOf }) => isOf(example.setup)), [example]);
      equal(conflict(example.setup), null);
      for (const sentence of example.text) equal(/^[A-Z].*[^.]\.$/.test(sentence), true);
    }
  },
  data_and_model_go_together() {
    const { text, images } = STARTS;
    equal([reads(text), reads(images)], ["text", "images"]);
    const seeded = withValue(text, "memory", "budget", 7);
    const digits = withKind(seeded, "digits");
    equal([digits.model.family, digits.data.kind, digits.memory.budget], ["vit", "digits", 7]);
    equal(same(withFamily(seeded, "vit"), digits), true);
    equal(same(withKind(digits, "built-in"), seeded), true);
    equal(withFamily(digits, "llama").data.kind, "built-in");
    equal(withKind(withFamily(text, "llama"), "sort").model.family, "llama");
  },
  the_engine_is_given_what_concerns_the_model() {
    for (const setup of [STARTS.text, STARTS.images]) {
      const given = JSON.parse(toEngine(setup)) as Record<string, Record<string, unknown>>;
      for (const field of FIELDS.filter((field) => !concerns(setup, field))) {
        equal(given[field.table]?.[field.key], undefined);
      }
    }
    const given = JSON.parse(toEngine(STARTS.images)) as Record<string, Record<string, unknown>>;
    equal([given["model"]?.["family"], given["data"]?.["kind"], given["memory"]?.["budget"]], ["vit", "digits", null]);
  },
};
