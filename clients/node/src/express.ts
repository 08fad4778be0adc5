/** Rate limits for Express 4 and 5. */

import type { NextFunction, Request, RequestHandler, Response } from "express";

import { type HttpAnswer, httpAnswer } from "./middleware/answer.js";
import { Limiter } from "./middleware/limiter.js";
import { nodeRequestView, whenAnswered } from "./middleware/node_request.js";
import type { LimitOptions } from "./middleware/options.js";

/**
 * Express middleware that checks each request before the handlers behind it: `app.use(tollgate({ client, … }))`.
 *
 * An error of a function in the options goes to Express's error handlers. Throws if an option cannot be right.
 */
export function tollgate(options: LimitOptions<Request>): RequestHandler {
  const limiter = new Limiter(options);
  return (request: Request, response: Response, next: NextFunction): void => {
    limiter.check(nodeRequestView(request, request.originalUrl), request).then((checked) => {
      if (checked !== undefined) {
        if (answer(response, httpAnswer(checked.decision, options))) return;
        if (checked.ended !== undefined) whenAnswered(response, checked.ended);
      }
      next();
    }, next);
  };
}

/** Adds the headers, and sends the refusal if the answer is one. */
function answer(response: Response, { headers, refusal }: HttpAnswer): boolean {
  for (const [name, value] of headers) response.setHeader(name, value);
  if (refusal === undefined) return false;
  response.statusCode = refusal.status;
  response.setHeader("Content-Type", refusal.contentType);
  response.end(refusal.body);
  return true;
}
