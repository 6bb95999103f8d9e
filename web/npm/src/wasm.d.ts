// `cargo xtask web` makes this module. What it exports is typed in protocol.ts.

declare module "*/tightrope_web.js" {
  const init: (options: { module_or_path: string | BufferSource | WebAssembly.Module }) => Promise<unknown>;
  export default init;
  export const Engine: unknown;
}
