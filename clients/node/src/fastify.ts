/** Rate limits for Fastify 5. */

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

import { httpAnswer } from "./middleware/answer.js";
import { Limiter } from "./middleware/limiter.js";
import { nodeRequestView, whenAnswered } from "./middleware/node_request.js";
import type { LimitOptions } from "./middleware/options.js";

/** Options of a route: those of the plugin that differ, or `false` for no limit. */
export type RouteLimit = false | Partial<LimitOptions<FastifyRequest>>;

declare module "fastify" {
  interface FastifyContextConfig {
    /** What differs from the options of the plugin; `false`: no limit. */
    tollgate?: RouteLimit;
  }
}

/**
 * Fastify plugin that checks each request in an `onRequest` hook: `app.register(tollgate, { client, … })`.
 *
 * A route changes options with `config: { tollgate: { hits: 5 } }`, and is not limited with `config: { tollgate: false }`.
 * It applies to the instance that registers it and to those below it. An error of a function in the options
 * goes to Fastify's error handler. Registering fails if an option cannot be right.
 */
export function tollgate(
  app: FastifyInstance,
  options: LimitOptions<FastifyRequest>,
  done: (error?: Error) => void,
): void {
  const shared = tollgateHook(options);
  const own = new WeakMap<object, typeof shared>();
  const hookOf = (route: RouteLimit | undefined): typeof shared | undefined => {
    if (route === undefined) return shared;
    if (route === false) return undefined;
    if (typeof (route as unknown) !== "object") throw new TypeError("config.tollgate: expected false or options");
    const hook = own.get(route) ?? tollgateHook({ ...options, ...route });
    own.set(route, hook);
    return hook;
  };
  // A wrong option fails the declaration of its route.
  app.addHook("onRoute", ({ config }) => void hookOf(config?.tollgate));
  app.addHook("onRequest", async (request, reply) => {
    await hookOf(request.routeOptions.config.tollgate)?.(request, reply);
  });
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
    const checked = await limiter.check(nodeRequestView(request.raw, request.originalUrl), request);
    if (checked === undefined) return;
    const { headers, refusal } = httpAnswer(checked.decision, options);
    for (const [name, value] of headers) reply.header(name, value);
    if (refusal === undefined) {
      if (checked.ended !== undefined) whenAnswered(reply.raw, checked.ended);
      return;
    }
    await reply.code(refusal.status).header("content-type", refusal.contentType).send(refusal.body);
  };
}
