// Opens the page. The address may ask for a device and a start; the fragment may hold a setup.

import { App } from "./app";
import type { DeviceChoice } from "./engine/types";
import { DEFAULTS, type Setup } from "./setup";
import { decodeShare, holdsSetup } from "./share";

const CHOICES: readonly DeviceChoice[] = ["auto", "webgpu", "cpu"];

function sharedSetup(): { setup: Setup | null; wrong: string | null } {
  try {
    return { setup: decodeShare(location.hash), wrong: null };
  } catch (error) {
    return { setup: null, wrong: (error as Error).message };
  }
}

async function main(): Promise<void> {
  const query = new URLSearchParams(location.search);
  const { setup, wrong } = sharedSetup();
  const app = new App(setup ?? DEFAULTS);
  if (wrong !== null) app.notice(`${wrong} The default setup is shown instead.`);
  // Browser tests make the device go away through this.
  if (query.has("test")) Object.assign(globalThis, { tightrope: app.client });
  // A link followed in an open page changes the fragment only.
  addEventListener("hashchange", () => {
    if (holdsSetup(location.hash)) location.reload();
  });
  const device = CHOICES.find((choice) => choice === query.get("device")) ?? "auto";
  await app.open(device, query.get("limits") === "default", setup !== null);
  if (query.has("start")) await app.start();
}

void main();
