/** Rate limits for servers of grpc-js. */

import { BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  Metadata,
  ResponderBuilder,
  type ServerInterceptingCallInterface,
  ServerInterceptingCall,
  type ServerInterceptor,
  ServerListenerBuilder,
  status,
} from "@grpc/grpc-js";

import { durationOf } from "./duration.js";
import { Any } from "./gen/google/protobuf/any.js";
import { Duration } from "./gen/google/protobuf/duration.js";
import { type GrpcAnswer, grpcAnswer } from "./middleware/answer.js";
import { type Checked, Limiter, type RequestView } from "./middleware/limiter.js";
import type { LimitOptions } from "./middleware/options.js";

/** A call, as functions in the options see it. */
export interface RateLimitedCall {
  /** `/package.Service/Method`. */
  readonly path: string;
  /** The metadata that the caller sent. */
  readonly metadata: Metadata;
  /** `address:port` of the connection. */
  readonly peer: string;
}

/** Options of the interceptor. HTTP statuses and bodies do not apply to gRPC. */
export type GrpcLimitOptions = Omit<LimitOptions<RateLimitedCall>, "status" | "body" | "contentType" | "errorStatus">;

/**
 * Interceptor that checks each call when it starts: `new Server({ interceptors: [tollgate(options)] })`.
 *
 * A streaming call is checked once. An error of a function in the options ends the call with `UNKNOWN`. Throws
 * if an option cannot be right.
 */
export function tollgate(options: GrpcLimitOptions): ServerInterceptor {
  const limiter = new Limiter(options);
  return (method, call) => {
    let allowed: GrpcAnswer["metadata"] = [];
    let ended: Checked["ended"];
    const check = async (metadata: Metadata): Promise<GrpcAnswer | undefined> => {
      const limited = { path: method.path, metadata, peer: call.getPeer() };
      const checked = await limiter.check(viewOf(limited), limited);
      if (checked === undefined) return undefined;
      const answer = grpcAnswer(checked.decision, options);
      if (answer.refusal === undefined) ended = checked.ended;
      return answer;
    };
    const listener = new ServerListenerBuilder()
      .withOnReceiveMetadata((metadata, next) => {
        check(metadata).then(
          (answer) => {
            if (answer?.refusal !== undefined) {
              refuse(call, answer.metadata, answer.refusal);
              return;
            }
            allowed = answer?.metadata ?? [];
            next(metadata);
          },
          (error: unknown) => {
            const details = error instanceof Error ? error.message : String(error);
            call.sendStatus({ code: status.UNKNOWN, details });
          },
        );
      })
      .build();
    const responder = new ResponderBuilder()
      .withStart((next) => {
        next(listener);
      })
      .withSendMetadata((metadata, next) => {
        for (const [name, value] of allowed) metadata.set(name, value);
        next(metadata);
      })
      .withSendStatus((sent, next) => {
        ended?.(sent.code !== status.OK);
        next(sent);
      })
      .build();
    return new ServerInterceptingCall(call, responder);
  };
}

function viewOf(call: RateLimitedCall): RequestView {
  return {
    method: "POST",
    path: call.path,
    // grpc-js writes IPv6 without brackets.
    peer: call.peer.slice(0, call.peer.lastIndexOf(":")),
    header: (name) => (name.endsWith("-bin") ? [] : call.metadata.get(name).map(String)),
  };
}

function refuse(
  call: ServerInterceptingCallInterface,
  headers: GrpcAnswer["metadata"],
  { code, message, retryMs }: NonNullable<GrpcAnswer["refusal"]>,
): void {
  const metadata = new Metadata();
  for (const [name, value] of headers) metadata.set(name, value);
  if (retryMs !== undefined) metadata.set("grpc-status-details-bin", statusDetails(code, message, retryMs));
  call.sendStatus({ code, details: message, metadata });
}

/** A `google.rpc.Status` with a `google.rpc.RetryInfo`. */
function statusDetails(code: status, message: string, retryMs: number): Buffer {
  const delay = Duration.encode(durationOf(retryMs)).finish();
  const retryInfo = new BinaryWriter().uint32(10).bytes(delay).finish();
  const detail = { typeUrl: "type.googleapis.com/google.rpc.RetryInfo", value: Buffer.from(retryInfo) };
  const writer = new BinaryWriter().uint32(8).int32(code).uint32(18).string(message);
  return Buffer.from(writer.uint32(26).bytes(Any.encode(detail).finish()).finish());
}
