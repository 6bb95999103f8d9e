// Runs that are kept in the browser, in the origin's private file system. A run is a folder with one checkpoint.

import { NoSuchRun, RunInUse } from "./errors";

export interface SavedRun {
  run: string;
  /** Steps that were done. */
  step: number;
  bytes: number;
  savedAt: Date;
}

const FOLDER = "tightrope-runs";
const CHECKPOINT = /^step-(\d+)\.tar$/;

/** The runs that this browser keeps for this origin. */
export async function savedRuns(): Promise<SavedRun[]> {
  const found: SavedRun[] = [];
  for await (const [name, handle] of (await root()).entries()) {
    if (handle.kind !== "directory") continue;
    const newest = await newestIn(handle as FileSystemDirectoryHandle);
    if (newest !== null) found.push(described(decodeURIComponent(name.slice(1)), newest));
  }
  return found.sort((a, b) => b.savedAt.getTime() - a.savedAt.getTime());
}

/** Removes a run that nobody holds. */
export async function discardRun(run: string): Promise<void> {
  const release = await lockRun(run);
  try {
    await (await root()).removeEntry(folderName(run), { recursive: true }).catch(unlessMissing);
  } finally {
    release();
  }
}

/** A tab that is closed or loaded again lets go of its run a moment later. */
const PATIENCE_MS = 1000;

/** Takes a run for one trainer alone, in all tabs of this origin, until it's released. */
export function lockRun(run: string): Promise<() => void> {
  return new Promise((resolve, reject) => {
    const options = { signal: AbortSignal.timeout(PATIENCE_MS) };
    const held = navigator.locks.request(`${FOLDER}/${run}`, options, () => {
      return new Promise<void>((release) => resolve(release));
    });
    held.catch((error: unknown) => {
      const isHeld = error instanceof DOMException && error.name === "TimeoutError";
      reject(isHeld ? new RunInUse(run) : error);
    });
  });
}

export async function loadRun(run: string): Promise<File> {
  const folder = await (await root()).getDirectoryHandle(folderName(run)).catch(unlessMissing);
  const newest = folder === undefined ? null : await newestIn(folder);
  if (newest === null) throw new NoSuchRun(run);
  return newest.file;
}

/** Keeps a checkpoint in place of the one before it, which stays until this one is whole. */
export async function saveRun(run: string, step: number, checkpoint: Blob): Promise<SavedRun> {
  const folder = await (await root()).getDirectoryHandle(folderName(run), { create: true });
  const handle = await folder.getFileHandle(`step-${step}.tar`, { create: true });
  // What is written appears in the file when it's closed, all at once.
  const out = await handle.createWritable();
  await out.write(checkpoint);
  await out.close();
  for await (const name of folder.keys()) {
    if (name !== handle.name) await folder.removeEntry(name).catch(unlessMissing);
  }
  return described(run, { step, file: await handle.getFile() });
}

interface Checkpoint {
  step: number;
  file: File;
}

/** The checkpoint that was written last. A file without bytes is one whose writing was cut off. */
async function newestIn(folder: FileSystemDirectoryHandle): Promise<Checkpoint | null> {
  let newest: Checkpoint | null = null;
  for await (const [name, handle] of folder.entries()) {
    const step = CHECKPOINT.exec(name)?.[1];
    if (step === undefined || handle.kind !== "file") continue;
    const file = await (handle as FileSystemFileHandle).getFile();
    const isNewer = file.lastModified >= (newest?.file.lastModified ?? 0);
    if (file.size > 0 && isNewer) newest = { step: Number(step), file };
  }
  return newest;
}

function described(run: string, { step, file }: Checkpoint): SavedRun {
  return { run, step, bytes: file.size, savedAt: new Date(file.lastModified) };
}

async function root(): Promise<FileSystemDirectoryHandle> {
  return (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
}

/** The sign before it makes names of folders out of “.” and “..” too. */
function folderName(run: string): string {
  return `=${encodeURIComponent(run)}`;
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof DOMException && error.name === "NotFoundError") return undefined;
  throw error;
}
