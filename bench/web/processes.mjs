// Processor time of a process and all that descend from it. SwiftShader computes on the processor, and its time
// there says what a kernel costs on a machine that does other work too.

import { readFile, readdir } from "node:fs/promises";

/** Clock ticks of /proc are hundredths of a second on every Linux architecture that Chromium runs on. */
const MS_PER_TICK = 10;
/** Indices of fields in /proc/PID/stat after the name, which is in parentheses and may hold anything. */
const [PARENT, USER, SYSTEM] = [1, 11, 12];

/** Milliseconds that live processes have used so far; `undefined` where there's no /proc. */
export async function processorMs(root) {
  const found = new Map();
  const names = await readdir("/proc").catch(() => []);
  const read = async (pid) => {
    // A process may end between the listing and here.
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
    const fields = stat?.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields === undefined) return;
    const ms = (Number(fields[USER]) + Number(fields[SYSTEM])) * MS_PER_TICK;
    found.set(Number(pid), { parent: Number(fields[PARENT]), ms });
  };
  await Promise.all(names.filter((name) => /^\d+$/.test(name)).map(read));
  if (!found.has(root)) return undefined;
  const descends = (pid) => pid === root || (found.has(pid) && descends(found.get(pid).parent));
  let sum = 0;
  for (const [pid, { ms }] of found) if (descends(pid)) sum += ms;
  return sum;
}
