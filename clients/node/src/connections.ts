import {
  type ChannelOptions,
  Client as GrpcClient,
  connectivityState,
  credentials,
  type MethodDefinition,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";

import { callError } from "./errors.js";
import type { ResolvedOptions, TlsOptions } from "./options.js";

/** How long a call may take, and what cancels it. */
export interface CallLimits {
  /** A time of `performance.now`. */
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
}

/** The gRPC connections of a client: one for each address. */
export class Connections {
  readonly #clients: readonly GrpcClient[];
  #next = 0;
  #closed = false;

  constructor(options: ResolvedOptions) {
    this.#clients = options.addresses.map(
      (address) => new GrpcClient(address, channelCredentials(options.tls), channelOptions(options)),
    );
  }

  /** Makes one call. Rejects with a `CallError`, or with the signal's reason if it is aborted. */
  async unary<Q, A>(method: MethodDefinition<Q, A>, request: Q, limits: CallLimits): Promise<A> {
    const client = await this.client(limits);
    if (limits.signal?.aborted) throw abortReason(limits.signal);
    return sendUnary(client, method, request, limits);
  }

  /** A connection for a call: one that is connected, or the first that will be. Rejects after `close`. */
  async client(limits: CallLimits): Promise<GrpcClient> {
    const client = this.#connected() ?? (await this.#connect(limits));
    if (this.#closed) throw callError(status.UNAVAILABLE, "the client was closed during the call");
    return client;
  }

  /** Connects, and waits until an address is connected. Returns whether one is in time. */
  async ready(timeoutMs: number): Promise<boolean> {
    const deadline = grpcTime(performance.now() + timeoutMs);
    const waits = this.#clients.map(
      (client) =>
        new Promise<void>((resolve, reject) => {
          client.waitForReady(deadline, (error) => {
            if (error === undefined) resolve();
            else reject(error);
          });
        }),
    );
    return Promise.any(waits).then(
      () => true,
      () => false,
    );
  }

  /** Closes all connections. Calls in flight end by their deadline. */
  close(): void {
    this.#closed = true;
    for (const client of this.#clients) client.close();
  }

  /** The next connection in turn that is connected. A single one is used in any state. */
  #connected(): GrpcClient | undefined {
    const count = this.#clients.length;
    if (count === 1) return this.#clients[0];
    for (let tried = 0; tried < count; tried += 1) {
      const client = this.#clients[(this.#next + tried) % count];
      if (client !== undefined && stateOf(client.getChannel()) === connectivityState.READY) {
        this.#next = (this.#next + tried + 1) % count;
        return client;
      }
    }
    return undefined;
  }

  /** Waits for the first connection. If all have failed, it is one that fails at once. */
  async #connect(limits: CallLimits): Promise<GrpcClient> {
    for (;;) {
      const ready = this.#connected();
      if (ready !== undefined) return ready;
      const pending = this.#clients.map((client) => client.getChannel()).filter(isPending);
      if (pending.length === 0 || this.#closed || performance.now() >= limits.deadline || limits.signal?.aborted)
        return this.#nextInTurn();
      await Promise.race(pending.map((channel) => stateChange(channel, limits.deadline)));
    }
  }

  #nextInTurn(): GrpcClient {
    const client = this.#clients[this.#next % this.#clients.length];
    this.#next = (this.#next + 1) % this.#clients.length;
    if (client === undefined) throw new Error("a client has at least one address");
    return client;
  }
}

type Channel = ReturnType<GrpcClient["getChannel"]>;

/** The state of the channel, which connects if it is idle. */
function stateOf(channel: Channel): connectivityState {
  return channel.getConnectivityState(true);
}

function isPending(channel: Channel): boolean {
  const state = stateOf(channel);
  return state === connectivityState.IDLE || state === connectivityState.CONNECTING;
}

/** A time of `performance.now` as gRPC takes it: milliseconds since 1970, by a clock that can be set. */
function grpcTime(deadline: number): number {
  return Date.now() + deadline - performance.now();
}

function stateChange(channel: Channel, deadline: number): Promise<void> {
  return new Promise((resolve) => {
    channel.watchConnectivityState(channel.getConnectivityState(false), new Date(grpcTime(deadline)), () => {
      resolve();
    });
  });
}

function sendUnary<Q, A>(
  client: GrpcClient,
  method: MethodDefinition<Q, A>,
  request: Q,
  limits: CallLimits,
): Promise<A> {
  const { signal, deadline } = limits;
  return new Promise((resolve, reject) => {
    const call = client.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      new Metadata(),
      { deadline: grpcTime(deadline) },
      (error: ServiceError | null, answer?: A) => {
        signal?.removeEventListener("abort", cancel);
        if (signal?.aborted) reject(abortReason(signal));
        else if (error !== null) reject(callError(error.code, error.details, error));
        else resolve(answer as A);
      },
    );
    const cancel = (): void => {
      call.cancel();
    };
    signal?.addEventListener("abort", cancel);
  });
}

/** The reason of an aborted signal, as an error. */
export function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("aborted", { cause: signal.reason });
}

function channelCredentials(tls: TlsOptions | undefined): ReturnType<typeof credentials.createInsecure> {
  if (tls === undefined) return credentials.createInsecure();
  return credentials.createSsl(bytes(tls.ca), bytes(tls.key), bytes(tls.cert));
}

function bytes(text: string | Buffer | undefined): Buffer | null {
  return text === undefined ? null : Buffer.from(text);
}

function channelOptions(options: ResolvedOptions): ChannelOptions {
  const serverName = options.tls?.serverName;
  return {
    // Without it, clients of one process share connections, and closing one does not close its own.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.service_config_disable_resolution": 1,
    // By default none: a proxy of the environment does not reach the service.
    "grpc.enable_http_proxy": options.httpProxy ? 1 : 0,
    "grpc.keepalive_time_ms": options.keepaliveIntervalMs,
    "grpc.keepalive_timeout_ms": options.keepaliveTimeoutMs,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
    ...(serverName === undefined
      ? {}
      : { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName }),
  };
}
