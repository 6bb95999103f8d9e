// A program with types: what should compile does, and what shouldn't is marked.

import { DoesNotFit, type Plan, type Settings, Trainer, plan } from "tightrope-web";
import { TightropeMap, defineMap } from "tightrope-web/map";

const settings: Settings = {
  model: { preset: "tiny" },
  train: { optimizer: "muon", micro_batch: "auto" },
  memory: { budget: "64MiB", recompute: "sqrt" },
  data: { text: "She sells sea shells." },
};
// @ts-expect-error no such optimizer
export const wrong: Settings = { train: { optimizer: "adam" } };
// @ts-expect-error no such setting
export const unknown: Settings = { train: { learning: 1 } };

const planned: Plan = await plan(settings, { device: "cpu" });
export const weights: number = planned.byClass.weight;
defineMap();
const map: TightropeMap = document.createElement("tightrope-map");
map.plan = planned;

await using trainer = new Trainer(settings);
trainer.addEventListener("devicelost", ({ detail }) => console.log(detail.recoveries.toFixed()));
// @ts-expect-error no such figure
trainer.addEventListener("saved", ({ detail }) => console.log(detail.speed));
try {
  for await (const { step, loss, tokensPerS } of trainer) console.log(step, loss.toFixed(3), tokensPerS);
  for await (const piece of trainer.generate("To be", { maxTokens: 20 })) console.log(piece.length);
} catch (error) {
  if (error instanceof DoesNotFit) console.log(error.needed, error.budget, error.suggestion?.train?.micro_batch);
}
