// The page: one setup being edited, at most one run, and what both show.

import { Compared } from "./compared";
import { EngineClient, RefusedError } from "./engine/client";
import type { DeviceChoice, Event, Info, Memory, Planned, SavedRun, StartRequest } from "./engine/types";
import { offerDownload, onDrop } from "./files";
import { ago, bytes } from "./format";
import type { Lesson } from "./lessons";
import { type Outcome, Planning } from "./planning";
import { DEFAULTS, type Setup, conflict, readSetup, reads, same, simplified, withKind, withValue } from "./setup";
import { type Shared, encodeShare } from "./share";
import { Buttons, type Phase } from "./ui/buttons";
import { Controls } from "./ui/controls";
import { deviceNotice, deviceText } from "./ui/device";
import { byId, setText } from "./ui/dom";
import { LessonBar } from "./ui/lesson-bar";
import { ExampleBar } from "./ui/example-bar";
import { MemoryPanel } from "./ui/memory-panel";
import { Notices } from "./ui/notices";
import { Recogniser } from "./ui/recogniser";
import { RunView } from "./ui/run-view";
import { Definitions } from "./ui/terms";

interface Run {
  setup: Setup;
  step: number;
}

export class App {
  readonly #client = new EngineClient((event) => this.#hear(event));
  readonly #planning = new Planning(
    this.#client,
    (outcome) => this.#showPlan(outcome),
    (error) => {
      // A start plans too, and opens a device that is gone again.
      this.#fits = true;
      this.#memory.refuse(error.message);
      this.#update();
    },
  );
  readonly #view = new RunView();
  readonly #notices = new Notices(byId("notices"));
  readonly #memory = new MemoryPanel((budget) =>
    this.#edit(withValue(this.#draft, "memory", "budget", budget)),
  );
  readonly #compared = new Compared(this.#client, () => this.#showCompared());
  readonly #lessons = new LessonBar(
    (lesson) => this.#openLesson(lesson),
    () => this.#endComparison(),
  );
  readonly #examples = new ExampleBar((example) => this.#use(example.setup));
  readonly #recogniser = new Recogniser(this.#client);
  readonly #controls: Controls;
  readonly #buttons = new Buttons({
    primary: () => void this.#primary(),
    single: () => void this.#single(),
    reset: () => void this.#reset(),
    save: () => void this.#client.call("save").catch((error: Error) => this.#fail(error)),
    download: () => void this.#download(),
    restart: () => void this.#begin(null),
    apply: () => void this.#begin("current"),
    open: (file) => void this.#open(file),
    autosave: (seconds) => void this.#client.call("autosave", seconds),
    share: () => void this.#share(),
    pin: () => this.#pin(),
  });
  #draft: Setup;
  #phase: Phase = "loading";
  #ready: Promise<void> = Promise.resolve();
  #fits = false;
  #run: Run | null = null;
  #saved: SavedRun | null = null;
  #measured: Memory | null = null;
  #planned: Planned | null = null;

  constructor(setup: Setup) {
    this.#draft = setup;
    new Definitions(byId("definitions"));
    this.#controls = new Controls(byId("setup"), setup, (edited) => this.#edit(edited), () => this.#update());
    onDrop((file) => void (file.name.endsWith(".tar") ? this.#open(file) : this.#takeText(file)));
    this.#view.await(setup);
    this.#update();
  }

  /** The worker's side, for browser tests. */
  get client(): EngineClient {
    return this.#client;
  }

  /** Opens the device, and shows what was saved, or what came with the link. */
  open(choice: DeviceChoice, defaultLimits: boolean, shared: Shared | null): Promise<void> {
    this.#ready = this.#openDevice(choice, defaultLimits, shared);
    return this.#ready;
  }

  async #openDevice(choice: DeviceChoice, defaultLimits: boolean, shared: Shared | null): Promise<void> {
    let info: Info;
    try {
      info = await this.#client.call("open", choice, defaultLimits);
    } catch (error) {
      byId("device").textContent = "No device";
      this.#phase = "failed";
      this.#notices.show("failed", (error as Error).message, { wrong: true });
      this.#update();
      return;
    }
    byId("device").textContent = await deviceText(info);
    if (info.device === "cpu" && choice !== "cpu") this.#notices.show("device", deviceNotice(info));
    this.#controls.offer(info);
    this.#lessons.offer(info);
    this.#saved = await this.#client.call("saved").catch(() => null);
    if (this.#saved !== null) this.#offerSaved(this.#saved, shared !== null);
    this.#phase = "idle";
    this.#edit(this.#draft);
    if (shared !== null) await this.#compared.take(shared).catch((error: Error) => this.#fail(error));
    if (shared?.lesson) this.#showLesson();
  }

  /** Starts, or goes on with the saved run of this setup. */
  async start(): Promise<void> {
    const isSaved = this.#saved !== null && same(this.#saved.setup, this.#draft);
    await this.#begin(isSaved ? "saved" : null);
  }

  notice(text: string): void {
    this.#notices.show("setup", text, { wrong: true });
  }

  #offerSaved(saved: SavedRun, isShared: boolean): void {
    if (!isShared) this.#use(saved.setup);
    const since = ago((Date.now() - saved.at) / 1000);
    this.#notices.show("saved", `This browser keeps a run at step ${saved.step}, saved ${since}.`, {
      actions: [
        {
          text: "Resume it",
          run: () => {
            this.#use(saved.setup);
            void this.#begin("saved");
          },
        },
        { text: "Delete it", run: () => void this.#discard() },
      ],
    });
    setText(byId("saved"), `Step ${saved.step}, ${bytes(saved.bytes)}, in this browser.`);
  }

  async #discard(): Promise<void> {
    await this.#client.call("discard");
    this.#saved = null;
    this.#notices.hide("saved");
    setText(byId("saved"), "");
    this.#update();
  }

  /** A setup from elsewhere: shown in the form, and planned. */
  #use(setup: Setup): void {
    this.#controls.show(setup);
    this.#edit(setup);
  }

  #openLesson(lesson: Lesson): void {
    this.#compared.open(lesson, this.#draft).catch((error: Error) => this.#fail(error));
    this.#use(lesson.after);
    this.#keepInAddress();
    this.#showLesson();
  }

  #showLesson(): void {
    byId("memory").scrollIntoView({ block: "start" });
  }

  /** Pins the plan that is shown, or ends a comparison. */
  #pin(): void {
    if (this.#compared.setup !== null) this.#endComparison();
    else if (this.#planned !== null) this.#compared.pin(this.#draft, this.#planned);
  }

  #endComparison(): void {
    const before = this.#compared.clear();
    if (before !== null) this.#use(before);
    this.#keepInAddress();
  }

  /** Shows the plan beside the one that it's compared with, where there is one. */
  #showCompared(): void {
    const { lesson, planned, setup } = this.#compared;
    this.#lessons.show(lesson);
    this.#buttons.showPin(setup !== null, this.#planned !== null, lesson !== null);
    const names = lesson === null ? (["Pinned", "This plan"] as const) : (["Without it", "With it"] as const);
    this.#memory.pin(planned === null ? null : { planned, names });
    if (planned !== null && this.#planned !== null) this.#lessons.compare(planned, this.#planned);
  }

  #edit(setup: Setup): void {
    this.#draft = setup;
    this.#planned = null;
    this.#fits = false;
    const wrong = conflict(setup);
    if (wrong !== null) this.#memory.refuse(wrong);
    else if (this.#phase !== "loading") this.#planning.soon(setup);
    if (this.#run === null) this.#view.await(setup);
    this.#update();
  }

  #showPlan({ setup, planned, free, smallest }: Outcome): void {
    if (!same(setup, this.#draft)) return;
    const { budget } = setup.memory;
    this.#planned = planned;
    this.#fits = planned.fits;
    this.#memory.range(smallest, free.peak_bytes, budget);
    this.#memory.show(planned, setup);
    this.#showCompared();
    this.#memory.measured(this.#measured, this.#isRunShown());
    if (planned.fits) this.#memory.refuse(null);
    else this.#refuse(`This setup needs at least ${bytes(planned.smallest_seen_bytes)}.`, planned.nearest);
    this.#update();
  }

  #refuse(text: string, nearest: unknown): void {
    this.#fits = false;
    if (nearest === null || nearest === undefined) {
      this.#memory.refuse(text);
      return;
    }
    const setup = simplified(readSetup(nearest, DEFAULTS, true));
    this.#memory.refuse(text, { text: "Take the nearest that fits", take: () => this.#use(setup) });
  }

  #isRunShown(): boolean {
    return this.#run !== null && same(this.#run.setup, this.#draft);
  }

  async #primary(): Promise<void> {
    if (this.#phase === "running") await this.#client.call("pause");
    else if (this.#phase === "paused") await this.#go();
    else await this.start();
  }

  /** Starts a run of the draft and trains; `false` where it was refused. */
  async #begin(checkpoint: StartRequest["checkpoint"], isPaused = false): Promise<boolean> {
    const setup = this.#draft;
    const text = setup.data.kind === "text" ? this.#controls.text.value : null;
    if (setup.data.kind === "text" && text === null && checkpoint === null) {
      this.#notices.show("text", "Paste or choose a text to train on first.", { wrong: true });
      this.#controls.text.focus();
      return false;
    }
    for (const name of ["saved", "failed", "text"]) this.#notices.hide(name);
    this.#phase = "starting";
    this.#update();
    try {
      const { history, ...run } = await this.#client.call("start", { setup, text, checkpoint });
      this.#run = { setup, step: run.step };
      this.#measured = {
        predicted_bytes: run.predicted_bytes,
        allocated_bytes: run.allocated_bytes,
        wasm_heap_bytes: 0,
        host_copy_bytes: 0,
      };
      this.#view.begin(setup, run.step, history);
      this.#memory.measured(this.#measured, this.#isRunShown());
      this.#phase = run.step >= setup.train.steps ? "done" : "paused";
      this.#update();
      if (!isPaused && this.#phase === "paused") await this.#go();
      return true;
    } catch (error) {
      this.#run = null;
      this.#phase = "idle";
      if (error instanceof RefusedError) this.#refuse(error.message, error.refusal.nearest);
      else this.#notices.show("failed", (error as Error).message, { wrong: true });
      this.#update();
      return false;
    }
  }

  async #go(): Promise<void> {
    this.#phase = "running";
    this.#view.say("Training");
    this.#update();
    await this.#client.call("run");
  }

  async #single(): Promise<void> {
    if (this.#run === null && !(await this.#begin(null, true))) return;
    this.#phase = "starting";
    this.#update();
    await this.#client.call("single").catch((error: Error) => this.#fail(error));
  }

  async #reset(): Promise<void> {
    await this.#client.call("stop");
    this.#run = null;
    this.#measured = null;
    this.#view.clear(this.#draft);
    this.#memory.measured(null, false);
    this.#phase = "idle";
    this.#view.say("Reset");
    this.#update();
  }

  async #download(): Promise<void> {
    try {
      const tar = await this.#client.call("download");
      const name = `tightrope-step-${this.#run?.step ?? 0}.tar`;
      offerDownload(name, new Blob([tar as Uint8Array<ArrayBuffer>], { type: "application/x-tar" }));
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  async #takeText(file: File): Promise<void> {
    await this.#controls.text.take(file);
    this.#use(withKind(this.#draft, "text"));
  }

  async #open(file: File): Promise<void> {
    try {
      const tar = new Uint8Array(await file.arrayBuffer());
      // A file may be dropped before the device is open.
      await this.#ready;
      const setup: unknown = await this.#client.call("setupOf", tar);
      this.#use(simplified(readSetup(setup, DEFAULTS, true)));
      const isOpen = await this.#begin(tar, true);
      if (isOpen) this.#view.say(`${file.name} opened at step ${this.#run?.step ?? 0}`);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  async #share(): Promise<void> {
    const { href } = this.#keepInAddress();
    try {
      await navigator.clipboard.writeText(href);
      this.#buttons.shared("Link copied");
    } catch {
      // Without the clipboard, the address bar has it.
      this.#buttons.shared("Link is in the address bar");
    }
    this.#view.say("The link to this setup is copied");
  }

  /** Puts what is shown into the address, so that a reload shows it again. */
  #keepInAddress(): URL {
    const url = new URL(location.href);
    const { lesson, setup: pinned } = this.#compared;
    url.hash = encodeShare({ setup: this.#draft, pinned, lesson });
    history.replaceState(null, "", url);
    return url;
  }

  #hear(event: Event): void {
    switch (event.event) {
      case "steps": {
        const last = event.records.at(-1);
        if (this.#run === null || last === undefined) return;
        this.#run.step = last.step;
        this.#measured = event.memory;
        this.#view.steps(event.records);
        this.#recogniser.again();
        this.#memory.measured(event.memory, this.#isRunShown());
        if (event.recoveries > 0) {
          const times = event.recoveries === 1 ? "once" : `${event.recoveries} times`;
          const text = `The device was lost and re-created ${times}; the run went on from its copy.`;
          this.#notices.show("recovered", text);
        }
        break;
      }
      case "heldout":
        if (this.#run !== null) this.#view.heldout(event.step, event.loss, event.accuracy);
        break;
      case "sample":
        if (this.#run !== null) this.#view.sample(event.step, event.text);
        break;
      case "saved":
        setText(byId("saved"), `Step ${event.step}, ${bytes(event.bytes)}, in this browser.`);
        this.#notices.hide("unsaved");
        break;
      case "unsaved":
        this.#notices.show("unsaved", `This browser doesn’t keep the run: ${event.message}`, { wrong: true });
        break;
      case "stopped":
        if (this.#run === null) return;
        this.#phase = event.reason;
        this.#recogniser.again();
        this.#view.stopped(event.reason === "done" ? "Training is done" : `Paused at step ${this.#run.step}`);
        this.#update();
        break;
      case "failed":
        this.#phase = "failed";
        this.#fail(new Error(event.message));
        this.#update();
        break;
    }
  }

  #fail(error: Error): void {
    this.#notices.show("failed", error.message, { wrong: true });
  }

  #update(): void {
    const isSaved = this.#saved !== null && same(this.#saved.setup, this.#draft);
    this.#examples.show(this.#draft);
    const shown = this.#run?.setup ?? this.#draft;
    this.#recogniser.show(reads(shown) === "images", this.#run !== null && reads(shown) === "images");
    this.#buttons.show({
      phase: this.#phase,
      canStart: this.#fits,
      savedStep: isSaved ? (this.#saved?.step ?? null) : null,
      runSetup: this.#run?.setup ?? null,
      draft: this.#draft,
    });
  }
}
