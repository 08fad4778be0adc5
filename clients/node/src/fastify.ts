/** Rate limits for Fastify 5. */

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

import { httpAnswer } from "./middleware/answer.js";
import { Limiter } from "./middleware/limiter.js";
import { nodeRequestView } from "./middleware/node_request.js";
import type { LimitOptions } from "./middleware/options.js";

/**
 * Fastify plugin that checks each request in an `onRequest` hook: `app.register(tollgate, { client, … })`.
 *
 * It applies to the instance that registers it and to those below it. An error of a function in the options
 * goes to Fastify's error handler. Registering fails if an option cannot be right.
 */
export function tollgate(
  app: FastifyInstance,
  options: LimitOptions<FastifyRequest>,
  done: (error?: Error) => void,
): void {
  app.addHook("onRequest", tollgateHook(options));
  done();
}

// Without it Fastify would apply the hook only to routes that the plugin itself declares.
Object.defineProperty(tollgate, Symbol.for("skip-override"), { value: true });
Object.defineProperty(tollgate, Symbol.for("fastify.display-name"), { value: "tollgate-limits" });

/** The hook alone, for single routes: `{ onRequest: tollgateHook(options) }`. */
export function tollgateHook(
  options: LimitOptions<FastifyRequest>,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const limiter = new Limiter(options);
  return async (request, reply) => {
    const decision = await limiter.check(nodeRequestView(request.raw, request.originalUrl), request);
    if (decision === undefined) return;
    const { headers, refusal } = httpAnswer(decision, options);
    for (const [name, value] of headers) reply.header(name, value);
    if (refusal === undefined) return;
    await reply.code(refusal.status).header("content-type", refusal.contentType).send(refusal.body);
  };
}
