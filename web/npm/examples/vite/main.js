// A plan with a slider for its memory, then training within what was chosen. Nothing but the package is set up.

import { Planner, Trainer } from "tightrope-web";
import { defineMap } from "tightrope-web/map";

const settings = {
  model: { layers: 2, channels: 64, heads: 4, context: 32, dropout: 0 },
  train: { batch: 8, steps: 40, lr: 0.002, seed: 7 },
};
const [map, status, slider, losses] = ["tightrope-map", "#status", "#budget", "#losses"].map((selector) =>
  document.querySelector(selector),
);
defineMap();

const planner = await Planner.open();
const free = await planner.plan(settings);
const smallest = await planner.plan({ ...settings, memory: { budget: 1 } });
map.plan = free;
slider.disabled = false;
slider.addEventListener("input", async () => {
  const span = free.peakBytes - smallest.peakBytes;
  const budget = Math.round(smallest.peakBytes + (span * slider.value) / slider.max);
  map.plan = await planner.plan({ ...settings, memory: { budget } });
  status.textContent = `${map.plan.peakBytes} bytes, ${map.plan.choices.recompute} recomputed`;
});

const trainer = new Trainer(settings);
for await (const { step, loss } of trainer) losses.textContent += `${step} ${loss.toFixed(5)}\n`;
const { predictedBytes, allocatedBytes } = await trainer.memory();
status.textContent = `Done: ${predictedBytes} bytes predicted, ${allocatedBytes} allocated.`;
trainer.dispose();
