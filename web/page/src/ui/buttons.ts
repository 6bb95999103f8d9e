// What can be pressed, and when.

import type { Setup } from "../setup";
import { same } from "../setup";
import { button, byId, make, setText } from "./dom";

export type Phase = "loading" | "idle" | "starting" | "running" | "paused" | "done" | "failed";

export interface Actions {
  primary: () => void;
  single: () => void;
  reset: () => void;
  save: () => void;
  download: () => void;
  restart: () => void;
  apply: () => void;
  open: (file: File) => void;
  autosave: (seconds: number) => void;
  share: () => void;
  pin: () => void;
}

export interface View {
  phase: Phase;
  canStart: boolean;
  savedStep: number | null;
  runSetup: Setup | null;
  draft: Setup;
}

const SHARED_MS = 2500;
const SHARE_TEXT = "Copy link to this setup";
const PIN_HINT = "to see another one beside it";
const PINNED_HINT = "Change the setup or the budget: the pinned plan stays.";

export class Buttons {
  readonly #primary = byId<HTMLButtonElement>("primary");
  readonly #single = byId<HTMLButtonElement>("single");
  readonly #reset = byId<HTMLButtonElement>("reset");
  readonly #save = byId<HTMLButtonElement>("save");
  readonly #download = byId<HTMLButtonElement>("download");
  readonly #pending = byId("pending");
  readonly #share = byId<HTMLButtonElement>("share");
  readonly #pin = byId<HTMLButtonElement>("pin");
  readonly #pinHint = byId("pin-hint");
  readonly #restart: HTMLButtonElement;
  readonly #apply: HTMLButtonElement;
  readonly #pendingText = make("p", {});

  constructor(actions: Actions) {
    this.#primary.addEventListener("click", actions.primary);
    this.#single.addEventListener("click", actions.single);
    this.#reset.addEventListener("click", actions.reset);
    this.#save.addEventListener("click", actions.save);
    this.#download.addEventListener("click", actions.download);
    this.#share.addEventListener("click", actions.share);
    this.#pin.addEventListener("click", actions.pin);
    this.#restart = button("Restart with it", actions.restart);
    this.#apply = button("Go on with it", actions.apply);
    this.#pending.append(this.#pendingText, this.#apply, " ", this.#restart);
    const file = byId<HTMLInputElement>("open-file");
    byId("open").addEventListener("click", () => file.click());
    file.addEventListener("change", () => {
      const chosen = file.files?.[0];
      file.value = "";
      if (chosen !== undefined) actions.open(chosen);
    });
    const autosave = byId<HTMLSelectElement>("autosave");
    autosave.addEventListener("change", () => actions.autosave(Number(autosave.value)));
  }

  show({ phase, canStart, savedStep, runSetup, draft }: View): void {
    const isActive = phase === "running" || phase === "paused";
    const text: Record<Phase, string> = {
      loading: "Start training",
      idle: savedStep === null ? "Start training" : `Resume at step ${savedStep}`,
      starting: "Preparing…",
      running: "Pause",
      paused: "Continue",
      done: "Start again",
      failed: "Start again",
    };
    setText(this.#primary, text[phase]);
    const isBusy = phase === "loading" || phase === "starting";
    this.#primary.disabled = isBusy || (!isActive && !canStart);
    this.#single.disabled = !(phase === "paused" || (phase === "idle" && canStart));
    this.#reset.disabled = runSetup === null || phase === "starting";
    this.#save.disabled = this.#download.disabled = runSetup === null || isBusy;
    this.#showPending(phase, canStart, runSetup, draft);
  }

  /** Offers to pin the plan that is shown, or to end the comparison with one. */
  showPin(isCompared: boolean, isPlanned: boolean, isLesson: boolean): void {
    setText(this.#pin, isCompared ? "Show this plan alone" : "Pin this plan");
    this.#pin.disabled = !isCompared && !isPlanned;
    setText(this.#pinHint, isCompared ? PINNED_HINT : PIN_HINT);
    // A lesson has its own way out.
    this.#pin.hidden = this.#pinHint.hidden = isLesson;
  }

  /** Says for a moment what became of the link. */
  shared(text: string): void {
    setText(this.#share, text);
    setTimeout(() => setText(this.#share, SHARE_TEXT), SHARED_MS);
  }

  #showPending(phase: Phase, canStart: boolean, runSetup: Setup | null, draft: Setup): void {
    const isChanged = runSetup !== null && !same(runSetup, draft) && phase !== "starting";
    this.#pending.hidden = !isChanged;
    if (!isChanged) return;
    const keepsWeights = continues(runSetup, draft) && phase !== "failed";
    setText(
      this.#pendingText,
      keepsWeights
        ? "The run goes on with its old setup. This one can take over its weights."
        : "The run goes on with its old setup. This one needs a new run.",
    );
    this.#apply.hidden = !keepsWeights;
    this.#apply.disabled = this.#restart.disabled = !canStart;
  }
}

/** Whether a run can go on under another setup: the same model, adapters, data and optimizer state. */
function continues(run: Setup, draft: Setup): boolean {
  const parts = (setup: Setup): string =>
    JSON.stringify([
      setup.model,
      setup.lora,
      setup.data,
      setup.train.optimizer,
      setup.train.seed,
      setup.memory.optimizer_bits,
    ]);
  return parts(run) === parts(draft);
}
