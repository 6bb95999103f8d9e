// Opens the page. The address may ask for a device and a start; the fragment may hold a setup.

import { App } from "./app";
import type { DeviceChoice } from "./engine/types";
import { DEFAULTS } from "./setup";
import { type Shared, decodeShare, isShare } from "./share";

const CHOICES: readonly DeviceChoice[] = ["auto", "webgpu", "cpu"];

function ofLink(): { shared: Shared | null; wrong: string | null } {
  try {
    return { shared: decodeShare(location.hash), wrong: null };
  } catch (error) {
    return { shared: null, wrong: (error as Error).message };
  }
}

async function main(): Promise<void> {
  const query = new URLSearchParams(location.search);
  const { shared, wrong } = ofLink();
  const app = new App(shared?.setup ?? DEFAULTS);
  if (wrong !== null) app.notice(`${wrong} The default setup is shown instead.`);
  // Browser tests make the device go away through this.
  if (query.has("test")) Object.assign(globalThis, { tightrope: app.client });
  // A link followed in an open page changes the fragment only.
  addEventListener("hashchange", () => {
    if (isShare(location.hash)) location.reload();
  });
  const device = CHOICES.find((choice) => choice === query.get("device")) ?? "auto";
  await app.open(device, query.get("limits") === "default", shared);
  if (query.has("start")) await app.start();
}

void main();
