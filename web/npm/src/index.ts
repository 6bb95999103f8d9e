// What the package offers; the map of a plan is in `tightrope-web/map`.

export { DeviceError, Disposed, DoesNotFit, NoSuchRun, NoWebGpu, RunInUse, SettingError, TightropeError } from "./errors";
export type { Device, DeviceChoice, EngineOptions, Memory, WasmSource } from "./link";
export { type ByClass, type Choices, Plan, type Tensor, type TensorClass } from "./plan";
export { Planner, type Preset, plan } from "./planner";
export { type SavedRun, discardRun, savedRuns } from "./runs";
export type { DataKind, Settings } from "./settings";
export { type Evaluation, type GenerateOptions, type Step, Trainer, type TrainerEvents, type TrainerOptions } from "./trainer";
