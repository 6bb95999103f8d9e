// The worker: an engine behind messages, so that nothing it does holds up the page.

import { failure } from "./errors";
import { Host } from "./host";
import type { Call, HostEvent, Reply } from "./protocol";

const host = new Host((event: HostEvent) => self.postMessage(event));

self.onmessage = async ({ data: { id, method, args } }: MessageEvent<Call>) => {
  let reply: Reply;
  try {
    reply = { id, value: await host.call(method, args) };
  } catch (error) {
    reply = { id, failure: failure(error) };
  }
  // A checkpoint moves to the page, it isn't copied.
  const moved = "value" in reply && reply.value instanceof Uint8Array ? [reply.value.buffer] : [];
  self.postMessage(reply, { transfer: moved });
};
