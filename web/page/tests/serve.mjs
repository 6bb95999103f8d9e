// A static server on this machine only, with or without the headers of cross-origin isolation.

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".woff": "font/woff",
  ".woff2": "font/woff2",
};
const ISOLATION = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

function isFile(path) {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

/** Serves `folder` on a free port; `{ origin, close }`. */
export function serve(folder, { isIsolated = false, port = 0 } = {}) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const path = join(folder, normalize(decodeURIComponent(pathname)).replace(/\/$/, "/index.html"));
    if (!path.startsWith(folder) || !isFile(path)) {
      response.writeHead(404).end("not here");
      return;
    }
    response.writeHead(200, {
      "Content-Type": TYPES[extname(path)] ?? "application/octet-stream",
      "Cache-Control": "no-store",
      ...(isIsolated ? ISOLATION : {}),
    });
    createReadStream(path).pipe(response);
  });
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () => {
      const close = () => {
        server.closeAllConnections();
        server.close();
      };
      resolve({ origin: `http://127.0.0.1:${server.address().port}`, close });
    });
  });
}
