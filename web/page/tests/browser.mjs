// Chromium as the browser tests run it: WebGPU on a software adapter, and nothing in the background.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--disable-quic",
];
const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];
const NO_WEBGPU = ["--disable-features=WebGPU,WebGPUService", "--disable-gpu"];

/** Starts the browser that CHROMIUM names, or the system's. */
export function launch({ hasWebGpu = true } = {}) {
  const executablePath = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path));
  if (executablePath === undefined) {
    throw new Error(`Chromium is in none of ${PLACES.join(", ")}: install it, or name it in CHROMIUM`);
  }
  return chromium.launch({ executablePath, args: [...ARGUMENTS, ...(hasWebGpu ? WEBGPU : NO_WEBGPU)] });
}
