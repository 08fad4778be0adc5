import type { IncomingMessage, ServerResponse } from "node:http";
import { finished } from "node:stream";

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

/** Says once a response has ended whether its request failed: with 400 or more, or without a response. */
export function whenAnswered(response: ServerResponse, ended: (failed: boolean) => void): void {
  finished(response, { readable: false }, () => {
    ended(!response.headersSent || response.statusCode >= 400);
  });
}

function headerValues(request: IncomingMessage, name: string): readonly string[] {
  // Requests of node:http2 do not have `headersDistinct`.
  const distinct = (request.headersDistinct as NodeJS.Dict<string[]> | undefined)?.[name];
  if (distinct !== undefined) return distinct;
  const values = request.headers[name];
  return values === undefined ? [] : typeof values === "string" ? [values] : values;
}
