// A gRPC server on loopback whose answers a test scripts.

import {
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  status,
} from "@grpc/grpc-js";

import {
  type Answer,
  type Call,
  type CheckResponse,
  RateLimitsService,
  Verdict,
} from "../../src/gen/tollgate/v1/rate_limits.js";
import { SHOULD_RATE_LIMIT } from "../../src/protocol_envoy.js";

/** What the server does with a call. */
export type Script = { answer: unknown } | { error: keyof typeof status; message?: string } | { hang: true };

/** A call that the server got. */
export interface ReceivedCall {
  method: string;
  request: unknown;
}

/** An answer that allows. */
export const ALLOWED: CheckResponse = {
  verdict: Verdict.OK,
  remaining: 9n,
  reset: { seconds: 60n, nanos: 0 },
  retryAfter: undefined,
  limits: [],
  noLimit: "",
};

/** An answer that refuses for a minute. */
export const REFUSED: CheckResponse = {
  ...ALLOWED,
  verdict: Verdict.OVER_LIMIT,
  remaining: 0n,
  retryAfter: { seconds: 60n, nanos: 0 },
};

/** The server. `script` decides each call. */
export class ScriptedServer {
  readonly calls: ReceivedCall[] = [];
  /** The number of streams that were opened. */
  streams = 0;
  /** The number of calls that the client cancelled. */
  cancelled = 0;
  script: (call: ReceivedCall) => Script | Promise<Script>;
  readonly #server = new Server();
  #address = "";

  constructor(script: (call: ReceivedCall) => Script | Promise<Script> = () => ({ answer: ALLOWED })) {
    this.script = script;
    const { check, peek, reserve, extend, commit, release, lease, batch, stream } = RateLimitsService;
    const unary = { check, peek, reserve, extend, commit, release, lease, batch };
    const handlers = Object.fromEntries(Object.keys(unary).map((name) => [name, this.#unary.bind(this)]));
    this.#server.addService({ ...unary, stream }, { ...handlers, stream: this.#stream.bind(this) });
    this.#server.addService({ shouldRateLimit: SHOULD_RATE_LIMIT }, { shouldRateLimit: this.#unary.bind(this) });
  }

  /** `host:port` of the server. */
  get address(): string {
    return this.#address;
  }

  async start(port = 0, credentials = ServerCredentials.createInsecure()): Promise<this> {
    const bound = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(`127.0.0.1:${String(port)}`, credentials, (error, number) => {
        if (error === null) resolve(number);
        else reject(error);
      });
    });
    this.#address = `127.0.0.1:${String(bound)}`;
    return this;
  }

  stop(): void {
    this.#server.forceShutdown();
  }

  #unary(call: ServerUnaryCall<unknown, unknown>, respond: sendUnaryData<unknown>): void {
    call.on("cancelled", () => {
      this.cancelled += 1;
    });
    const method = call.getPath().split("/").pop() ?? "";
    void this.#decide({ method, request: call.request }).then((script) => {
      if ("answer" in script) respond(null, script.answer);
      else if ("error" in script) respond({ code: status[script.error], details: script.message ?? "scripted" });
    });
  }

  #stream(stream: ServerDuplexStream<Call, Answer>): void {
    this.streams += 1;
    stream.on("error", () => undefined);
    stream.on("end", () => {
      stream.end();
    });
    stream.on("data", ({ tag, call }: Call) => {
      const request: unknown = call && Object.entries(call).find(([name]) => name !== "$case")?.[1];
      const method = call?.$case === "check" ? "Check" : String(call?.$case);
      void this.#decide({ method, request }).then((script) => {
        if ("answer" in script)
          stream.write({ tag, answer: { $case: "check", check: script.answer as CheckResponse } });
        else if ("error" in script) {
          const failure = { code: status[script.error], message: script.message ?? "scripted", details: [] };
          stream.write({ tag, answer: { $case: "failure", failure } });
        }
      });
    });
  }

  async #decide(call: ReceivedCall): Promise<Script> {
    this.calls.push(call);
    return this.script(call);
  }
}
