// Where the other files of the package are. Bundlers find files by these very words, so the build copies this one as it is.

export const workerUrl = () => new URL("./worker.js", import.meta.url);
export const wasmUrl = () => new URL("./tightrope.wasm", import.meta.url);
