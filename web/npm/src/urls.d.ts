/** The script of the worker. */
export function workerUrl(): URL;
/** The engine. */
export function wasmUrl(): URL;
