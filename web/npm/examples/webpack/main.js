// A run that the browser keeps: a reload goes on where the tab was left.

import { NoSuchRun, Trainer, discardRun } from "tightrope-web";

const RUN = "webpack-example";
const settings = {
  model: { layers: 2, channels: 64, heads: 4, context: 32, dropout: 0 },
  train: { batch: 8, steps: 40, lr: 0.002, seed: 7 },
};
const status = document.querySelector("#status");
const losses = document.querySelector("#losses");

async function open() {
  const saved = Trainer.load(RUN);
  try {
    await saved.ready();
    return saved;
  } catch (error) {
    if (!(error instanceof NoSuchRun)) throw error;
    return new Trainer(settings, { run: RUN, saveEveryS: 10 });
  }
}

try {
  const trainer = await open();
  trainer.addEventListener("saved", ({ detail }) => {
    status.textContent = `Step ${detail.step} is kept in this browser.`;
  });
  for await (const { step, loss } of trainer) losses.textContent += `${step} ${loss.toFixed(5)}\n`;
  trainer.dispose();
  // The next visit begins anew.
  await discardRun(RUN);
  status.textContent = "Done.";
} catch (error) {
  status.textContent = `${error.name}: ${error.message}`;
}
