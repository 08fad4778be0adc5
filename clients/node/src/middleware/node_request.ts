import type { IncomingMessage } from "node:http";

import type { RequestView } from "./limiter.js";

/** A request of Node.js, with the path as the client sent it. */
export function nodeRequestView(request: IncomingMessage, path: string): RequestView {
  return {
    method: request.method ?? "",
    path,
    peer: request.socket.remoteAddress,
    header: (name) => headerValues(request, name),
  };
}

function headerValues(request: IncomingMessage, name: string): readonly string[] {
  // Requests of node:http2 do not have `headersDistinct`.
  const distinct = (request.headersDistinct as NodeJS.Dict<string[]> | undefined)?.[name];
  if (distinct !== undefined) return distinct;
  const values = request.headers[name];
  return values === undefined ? [] : typeof values === "string" ? [values] : values;
}
