// Where the run is.

import type { Info } from "../engine/types";

/** What browsers tell of an adapter; each part may be empty. */
interface AdapterInfo {
  vendor: string;
  architecture: string;
  description: string;
}

interface Gpu {
  requestAdapter(): Promise<{ info?: AdapterInfo } | null>;
}

/** The device for people. Engines in a browser see less of an adapter than pages do. */
export async function deviceText({ device, name }: Info): Promise<string> {
  if (device === "cpu") return "CPU, in WebAssembly";
  const { gpu } = navigator as unknown as { gpu?: Gpu };
  const adapter = await gpu?.requestAdapter().catch(() => null);
  const { vendor = "", architecture = "", description = "" } = adapter?.info ?? {};
  const known = description || [vendor, architecture].filter((part) => part !== "").join(" ");
  return `WebGPU · ${known || name}`;
}

/** Why it's the CPU, and what to use instead. */
export function deviceNotice({ reason }: Info): string {
  const why = reason === null ? "" : ` ${reason.replace(/[.\s]*$/, ".")}`;
  return (
    `No WebGPU, so training runs on the CPU.${why} For the GPU, use Chrome or Edge from 113, ` +
    "Safari from 26, or Firefox from 141 on Windows and 145 on Apple silicon."
  );
}
