// Puts the weights of `case.ts` into one of Tightrope's checkpoints: a tar of a manifest and safetensors files.
// Sizes stay, so bytes are replaced where they are, and their checksums in the manifest with them.

import { xxhash3 } from "hash-wasm";

import type { Parameter } from "./case";

const MODEL = "model.safetensors";
const MANIFEST = "manifest.json";
/** A tar consists of blocks; a header is one, with the name at its start and the size, in octal, here. */
const BLOCK = 512;
const SIZE = [124, 136] as const;
const NAME_BYTES = 100;
/** The manifest ends in the hexadecimal checksum of what precedes this. */
const LAST_CHECKSUM = /,\n {2}"checksum": "([0-9a-f]{16})"\n\}\n$/;

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** The files of an archive by their last name, as views into it. */
function files(archive: Uint8Array): Map<string, Uint8Array> {
  const found = new Map<string, Uint8Array>();
  for (let at = 0; archive[at] !== 0 && at < archive.length; ) {
    const field = (from: number, to: number) =>
      textOf(archive.subarray(at + from, at + to)).replace(/\0.*$/s, "");
    const size = Number.parseInt(field(...SIZE), 8);
    const name = field(0, NAME_BYTES).split("/").at(-1) ?? "";
    found.set(name, archive.subarray(at + BLOCK, at + BLOCK + size));
    at += BLOCK * (1 + Math.ceil(size / BLOCK));
  }
  return found;
}

interface Entry {
  shape: number[];
  data_offsets: [number, number];
}

/** Changes `archive` and answers it. */
export async function withWeights(archive: Uint8Array, parameters: Parameter[]): Promise<Uint8Array> {
  const folder = files(archive);
  const [model, manifest] = [folder.get(MODEL), folder.get(MANIFEST)];
  if (model === undefined || manifest === undefined) throw new Error("not a checkpoint");
  const headerBytes = Number(new DataView(model.buffer, model.byteOffset).getBigUint64(0, true));
  const header = 8 + headerBytes;
  const entries = JSON.parse(textOf(model.subarray(8, header))) as Record<string, Entry>;
  let text = textOf(manifest);
  for (const { name, shape, values } of parameters) {
    const entry = entries[name];
    if (entry === undefined || String(entry.shape) !== String(shape)) {
      throw new Error(`the checkpoint has no ${name} of shape ${shape}`);
    }
    const bytes = model.subarray(header + entry.data_offsets[0], header + entry.data_offsets[1]);
    const old = await xxhash3(bytes);
    bytes.set(new Uint8Array(values.buffer));
    const line = (sum: string) => `"${MODEL}/${name}": "${sum}"`;
    if (!text.includes(line(old))) throw new Error(`the manifest has another checksum of ${name}`);
    text = text.replace(line(old), line(await xxhash3(bytes)));
  }
  const end = LAST_CHECKSUM.exec(text);
  if (end === null) throw new Error("the manifest doesn't end in its checksum");
  const sum = await xxhash3(new TextEncoder().encode(text.slice(0, end.index)));
  text = text.replace(LAST_CHECKSUM, (tail) => tail.replace(end[1] as string, sum));
  manifest.set(new TextEncoder().encode(text));
  return archive;
}
