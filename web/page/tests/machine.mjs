// How fast the machine is now: what shares it may leave half of it.

import { promisify } from "node:util";
import zlib from "node:zlib";

/** Seconds that [`slowness`] takes on the machine of docs/figures.md where nothing else runs. */
const QUIET_S = 1.4;
const BYTES = 4 << 20;
const QUALITY = 9;

const compress = promisify(zlib.brotliCompress);

/** Letters that repeat a little, the same every time. */
function letters() {
  const bytes = Buffer.alloc(BYTES);
  let state = 1;
  for (let at = 0; at < bytes.length; at += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[at] = 97 + ((state >>> 28) & (at >> 9) & 15);
  }
  return bytes;
}

const text = letters();

/** How many times longer than on a quiet machine one thread takes for a fixed piece of work, which like compiling shaders is bound by
 * branches and caches; at least 1. */
export async function slowness() {
  const start = performance.now();
  await compress(text, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: QUALITY } });
  return Math.max(1, (performance.now() - start) / 1000 / QUIET_S);
}
