// `cargo xtask web` puts these files into src/wasm. What they export is typed in engine/types.ts.

declare module "*/tightrope_web.js" {
  const init: (options: { module_or_path: string }) => Promise<unknown>;
  export default init;
  export const Engine: unknown;
}
