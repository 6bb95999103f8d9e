// The worker: owns the engine, so that nothing it does holds up the page.

import { peakProgram } from "./arena/geometry";
import { giveFiles } from "./engine/fetched";
import { loadEngine } from "./engine/load";
import { Queue } from "./engine/queue";
import { AUTOSAVE_S, Training } from "./engine/training";
import type {
  Call,
  Engine,
  Event,
  History,
  Info,
  Methods,
  Plan,
  Reply,
  Seen,
  StartRequest,
  Started,
} from "./engine/types";
import { toEngine } from "./setup";
import { discardRun, loadRun, saveText, savedRun } from "./storage";

const queue = new Queue();
let engine: Engine | null = null;
let training: Training | null = null;
let autosave = AUTOSAVE_S;
/** The text of the run in progress. */
let ownText: Uint8Array | null = null;

const emit = (event: Event): void => self.postMessage(event);

function opened(): Engine {
  if (engine === null) throw new Error("The engine isn’t open yet.");
  return engine;
}

function started(): Training {
  if (training === null) throw new Error("There is no run yet.");
  return training;
}

interface Source {
  text: Uint8Array | null;
  tar: Uint8Array | null;
  history: History;
}

/** What a run starts from. */
async function sourceOf(
  text: Uint8Array | null,
  checkpoint: StartRequest["checkpoint"],
  before: Training | null,
): Promise<Source> {
  if (checkpoint === "saved") {
    const { run, tar, text } = await loadRun();
    return { text, tar, history: run.history };
  }
  if (checkpoint === "current" && before !== null) {
    const tar = await queue.run(() => opened().checkpoint());
    return { text: ownText, tar, history: before.history };
  }
  // Without storage, training works all the same; a later save says what is wrong.
  if (text !== null) await saveText(text as Uint8Array<ArrayBuffer>).catch(() => undefined);
  const tar = checkpoint instanceof Uint8Array ? checkpoint : null;
  return { text, tar, history: { losses: [], heldout: [], samples: [] } };
}

const methods: Methods = {
  async open(device, defaultLimits) {
    const Class = await loadEngine();
    engine = await Class.open(device, defaultLimits);
    return JSON.parse(engine.info()) as Info;
  },

  plan(setup) {
    return queue.run(() => {
      const { programs, ...plan } = JSON.parse(opened().plan(toEngine(setup))) as Plan;
      return { ...plan, program: peakProgram(programs) };
    });
  },

  setupOf(checkpoint) {
    return queue.run(() => JSON.parse(opened().setup_of(checkpoint)) as unknown);
  },

  async start({ setup, text, checkpoint }) {
    const before = training;
    before?.pause();
    training = null;
    const source = await sourceOf(text, checkpoint, before);
    await giveFiles(opened(), toEngine(setup));
    const json = await queue.run(() =>
      opened().start(toEngine(setup), source.text ?? undefined, source.tar ?? undefined),
    );
    const { step, ...run } = JSON.parse(json) as Started;
    ownText = source.text;
    const { history } = source;
    const hasText = ownText !== null;
    training = new Training(opened(), queue, emit, { setup, step, history, hasText, autosave });
    return { ...run, step, history };
  },

  async run() {
    // Not awaited: it reports by events.
    void started().run();
  },

  async pause() {
    training?.pause();
  },

  async stop() {
    training?.pause();
    training = null;
  },

  single: () => started().single(),

  classify: (ink, width) =>
    queue.run(async () => JSON.parse(await opened().classify(ink, width)) as Seen | null),

  save: () => started().save(),

  download: () => queue.run(() => opened().checkpoint()),

  saved: savedRun,

  discard: discardRun,

  async autosave(seconds) {
    autosave = seconds;
    if (training !== null) training.autosave = seconds;
  },

  async lose(at) {
    opened().lose_device(at);
  },
};

self.onmessage = async ({ data }: MessageEvent<Call>) => {
  let reply: Reply;
  try {
    const method = methods[data.method] as (...args: unknown[]) => Promise<unknown>;
    reply = { id: data.id, ok: true, value: await method(...data.args) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    reply = { id: data.id, ok: false, message };
  }
  self.postMessage(reply);
};
