// The wasm module, compiled while it downloads.

import init, { Engine } from "../wasm/tightrope_web.js";
import address from "../wasm/tightrope_web_bg.wasm?url";
import type { EngineClass } from "./types";

export async function loadEngine(): Promise<EngineClass> {
  await init({ module_or_path: address });
  return Engine as unknown as EngineClass;
}
