// A static server on this machine only, as a site or as another origin than the site's.

import { readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".wasm": "application/wasm",
};

/** Serves `folder` on a free port. `edit` may change a text. */
export function serve(folder, { headers = {}, edit = (text) => text } = {}) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const path = join(folder, normalize(decodeURIComponent(pathname)).replace(/\/$/, "/index.html"));
    if (!path.startsWith(folder) || !statSync(path, { throwIfNoEntry: false })?.isFile()) {
      response.writeHead(404).end("not here");
      return;
    }
    const type = TYPES[extname(path)] ?? "application/octet-stream";
    response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-store", ...headers });
    response.end(type.startsWith("text/html") ? edit(readFileSync(path, "utf8")) : readFileSync(path));
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const close = () => {
        server.closeAllConnections();
        server.close();
      };
      resolve({ origin: `http://127.0.0.1:${server.address().port}`, close });
    });
  });
}
