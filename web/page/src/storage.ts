// A run in the origin's private file system. Two checkpoint files take turns, and the note that names the
// complete one is written last, so that a tab closed at any moment leaves a run to resume.

import { type SavedRun } from "./engine/types";
import { readSetup } from "./setup";

const FOLDER = "tightrope";
const NOTE = "run.json";
const TEXT = "text.bin";
const FILES = ["checkpoint-a.tar", "checkpoint-b.tar"] as const;

interface Note extends SavedRun {
  file: string;
  hasText: boolean;
}

/** Workers of browsers that lack `createWritable` have this. */
interface SyncAccess {
  truncate(size: number): void;
  write(data: Uint8Array, options: { at: number }): number;
  flush(): void;
  close(): void;
}

async function folder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create: true });
}

async function write(name: string, data: Uint8Array<ArrayBuffer>): Promise<void> {
  const file = await (await folder()).getFileHandle(name, { create: true });
  if ("createWritable" in file) {
    const out = await file.createWritable();
    await out.write(data);
    await out.close();
    return;
  }
  const older = file as unknown as { createSyncAccessHandle(): Promise<SyncAccess> };
  const out = await older.createSyncAccessHandle();
  try {
    out.truncate(0);
    out.write(data, { at: 0 });
    out.flush();
  } finally {
    out.close();
  }
}

async function read(name: string): Promise<Uint8Array | null> {
  try {
    const file = await (await folder()).getFileHandle(name);
    return new Uint8Array(await (await file.getFile()).arrayBuffer());
  } catch (error) {
    if (error instanceof DOMException && error.name === "NotFoundError") return null;
    throw error;
  }
}

async function note(): Promise<Note | null> {
  const data = await read(NOTE);
  if (data === null) return null;
  try {
    const value = JSON.parse(new TextDecoder().decode(data)) as Note;
    return { ...value, setup: readSetup(value.setup) };
  } catch {
    // Written by another build of the page, whose settings differ.
    return null;
  }
}

/** The run that is saved, without its bytes. */
export async function savedRun(): Promise<SavedRun | null> {
  return note();
}

/** The checkpoint of the saved run, and its text where it has one of its own. */
export async function loadRun(): Promise<{ run: SavedRun; tar: Uint8Array; text: Uint8Array | null }> {
  const found = await note();
  const tar = found === null ? null : await read(found.file);
  if (found === null || tar === null) throw new Error("There is no saved run in this browser.");
  return { run: found, tar, text: found.hasText ? await read(TEXT) : null };
}

/** Saves a run in place of the one before it. */
export async function saveRun(run: SavedRun, tar: Uint8Array<ArrayBuffer>, hasText: boolean): Promise<void> {
  const before = await note();
  const file = before?.file === FILES[0] ? FILES[1] : FILES[0];
  await write(file, tar);
  const text = JSON.stringify({ ...run, file, hasText } satisfies Note);
  await write(NOTE, new TextEncoder().encode(text));
}

/** Keeps the text that a run trains on; saved once, as it doesn't change. */
export async function saveText(text: Uint8Array<ArrayBuffer>): Promise<void> {
  await write(TEXT, text);
}

/** Removes the saved run. */
export async function discardRun(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  await root.removeEntry(FOLDER, { recursive: true }).catch((error: unknown) => {
    if (!(error instanceof DOMException) || error.name !== "NotFoundError") throw error;
  });
}
