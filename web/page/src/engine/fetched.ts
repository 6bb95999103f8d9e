// Files that some setups need and that the module doesn't hold. They are fetched when they're needed first.

import digitsImages from "../../../../data/assets/digits/digits-images-idx3-ubyte.gz?url";
import digitsLabels from "../../../../data/assets/digits/digits-labels-idx1-ubyte.gz?url";
import merges from "../../../../data/assets/gpt2/vocab.bpe.gz?url";
import type { Engine } from "./types";

/** Where the files are, by the engine's names. All are packed by gzip. */
const FILES: Partial<Record<string, string>> = {
  "digits-images": digitsImages,
  "digits-labels": digitsLabels,
  gpt2: merges,
};
const GZIP = [0x1f, 0x8b] as const;

/** Gives the engine what a setup needs. */
export async function giveFiles(engine: Engine, setup: string): Promise<void> {
  const names = JSON.parse(engine.needs(setup)) as string[];
  await Promise.all(names.map(async (name) => engine.give(name, await fetched(name))));
}

async function fetched(name: string): Promise<Uint8Array> {
  const address = FILES[name];
  if (address === undefined) throw new Error(`This page lacks the file “${name}”.`);
  const response = await fetch(address).catch((error: unknown) => {
    throw new Error(`The file “${name}” can’t be loaded: ${String(error)}`);
  });
  if (!response.ok) throw new Error(`The file “${name}” can’t be loaded: ${response.status}.`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  // Some servers say that it's packed, and browsers then unpack it.
  if (GZIP.some((byte, index) => bytes[index] !== byte)) return bytes;
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}
