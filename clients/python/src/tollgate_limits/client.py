"""Client for threads. `tollgate_limits.aio` has the same for asyncio."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import grpc

from . import _leases
from . import _wire as wire
from ._channels import Rotation
from ._core import Core, Flow, ReservationState, Rpc, Wait
from ._durations import to_seconds
from ._exit import LEASING
from .errors import ClosedError
from .model import (
    Decision,
    DescriptorLike,
    OnError,
    OnExpiry,
    Protocol,
    Settlement,
    UnknownDomain,
)
from .options import BreakerOptions, Clock, Keepalive, LocalBucket, Options, Tls

T = TypeVar("T")


class Client:
    """Client of a tollgate service. Threads can share it.

    Connections open with `ready` or the first call, so a client can be made before a fork.

    Args:
        addresses: `host:port`. Calls rotate over those that are connected.
        domain: Domain of a call that names none. Without it, each call must name one.
        protocol: `tollgate`, or `envoy` with check and peek only.
        deadline: Longest wait of a call in seconds, connecting included.
        tls: TLS of the connections. Without it, they have none.
        keepalive: Pings on a connection with calls in flight.
        on_error: Decision about a check or a reservation without an answer.
        unknown_domain: `error` raises `ValueError` if no rules have the domain of a call. It needs
            the protocol `tollgate`.
        local: Token bucket of `on_error="local"`.
        breaker: Circuit breaker.
        denial_cache: Most refusals that are repeated without a call; 0 turns the cache off.
        leases: Whether checks lease hits and admit them without a call; default: those of the
            middleware.
        http_proxy: Connect by the HTTP proxy that the environment names, such as `https_proxy`.
        clock: Time of the breaker, the denial cache, leases, the local bucket and the log.
        tracer_provider: OpenTelemetry's; default: the global one.
        meter_provider: OpenTelemetry's; default: the global one.

    Raises:
        ValueError: An option is out of bounds.
        OSError: A file of `tls` is not readable.
    """

    def __init__(
        self,
        *addresses: str,
        domain: str | None = None,
        protocol: Protocol = "tollgate",
        deadline: float = 0.1,
        tls: Tls | None = None,
        keepalive: Keepalive = Keepalive(),
        on_error: OnError = "allow",
        unknown_domain: UnknownDomain = "allow",
        local: LocalBucket = LocalBucket(),
        breaker: BreakerOptions = BreakerOptions(),
        denial_cache: int = 10_000,
        leases: bool | None = None,
        http_proxy: bool = False,
        clock: Clock = time.monotonic_ns,
        tracer_provider: Any = None,
        meter_provider: Any = None,
    ) -> None:
        options = Options(
            addresses=addresses or ("localhost:8081",),
            domain=domain,
            protocol=protocol,
            deadline=deadline,
            tls=tls,
            keepalive=keepalive,
            on_error=on_error,
            unknown_domain=unknown_domain,
            local=local,
            breaker=breaker,
            denial_cache=denial_cache,
            leases=leases,
            http_proxy=http_proxy,
            clock=clock,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
        )
        self._channels = Channels(options)
        self._background = _Background(options, self._channels)
        self._core: Core = self._background.core

    def check(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None = None,
        domain: str | None = None,
        dry_run: bool = False,
    ) -> Decision:
        """Takes hits from the limits of the descriptors, or refuses.

        Without an answer, `on_error` decides, and the decision has the error. A check is never
        sent twice.

        Args:
            descriptors: What to limit, such as `[{"user": "ann"}]`.
            hits: 0 to `MAX_HITS`; default: 1.
            domain: Domain of the rules; default: the client's.
            dry_run: Take no hits, as `peek`. It needs the protocol `tollgate`.

        Raises:
            ValueError, TypeError: An argument is wrong; no call was made.
            ClosedError: The client is closed.
        """
        step = self._core.check(descriptors, hits, domain, dry_run)
        return step if isinstance(step, Decision) else self._run(step)

    def _check_request(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None,
        domain: str | None,
        dry_run: bool = False,
    ) -> Decision:
        """The check of a middleware."""
        step = self._core.check(descriptors, hits, domain, dry_run, of_middleware=True)
        return step if isinstance(step, Decision) else self._run(step)

    def peek(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None = None,
        domain: str | None = None,
    ) -> Decision:
        """Says what a check would answer, and takes nothing. Arguments are those of `check`.

        Raises:
            NoAnswerError: The service did not answer, or the breaker is open.
            ValueError, TypeError: An argument is wrong; no call was made.
            ClosedError: The client is closed.
        """
        return self._run(self._core.peek(descriptors, hits, domain))

    def reserve(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None = None,
        domain: str | None = None,
        reservation: str | None = None,
        expires: float | None = None,
        on_expiry: OnExpiry | None = None,
    ) -> Reservation:
        """Takes hits from all limits or from none, until they are settled or expire.

        Use the result in a `with` statement, which releases what was not committed. Without an
        answer, `on_error` decides, and the reservation has no id.

        Args:
            descriptors: What to limit, such as `[{"user": "ann"}]`.
            hits: 0 to `MAX_HITS`; default: the amount of each rule.
            domain: Domain of the rules; default: the client's.
            reservation: Id, at most 256 bytes; default: the service makes one.
            expires: Seconds from now, 0.001 to 86,400; default: the rule's, else 60.
            on_expiry: `charge` keeps the hits, `release` gives them back; default: the rule's,
                else `charge`.

        Raises:
            ValueError, TypeError: An argument is wrong, or the protocol is `envoy`; no call was
                made.
            ClosedError: The client is closed.
        """
        flow = self._core.reserve(descriptors, hits, domain, reservation, expires, on_expiry)
        return Reservation(self, self._run(flow))

    def ready(self, timeout: float = 5.0) -> bool:
        """Connects, and waits until an address is connected, at most `timeout` seconds.

        Returns whether one is. A program that calls it at its start spares its first check the
        time of the connection.

        Raises:
            ClosedError: The client is closed.
        """
        return self._channels.ready(timeout)

    def close(self) -> None:
        """Returns the hits of leases, and closes the connections. Can be repeated.

        Calls in flight end without an answer.
        """
        self._background.end()
        self._channels.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        return self._channels.run(flow)


class Reservation:
    """Hits that are reserved. It is true in a condition if it is allowed.

    A `with` statement releases what was neither committed nor released in it. An error of that
    release is dropped: the reservation then ends by its expiry.
    """

    def __init__(self, client: Client, state: ReservationState) -> None:
        self._client = client
        self._state = state

    @property
    def decision(self) -> Decision:
        """Whether the request may pass, and why."""
        return self._state.decision

    @property
    def allowed(self) -> bool:
        """Whether the request may pass."""
        return self._state.decision.allowed

    @property
    def id(self) -> str | None:
        """Id; None if nothing is reserved."""
        return self._state.id

    @property
    def hits(self) -> int:
        """Hits that are reserved."""
        return self._state.hits

    @property
    def expires(self) -> float | None:
        """Seconds from the reservation to its expiry; None if nothing is reserved."""
        return self._state.expires

    def __bool__(self) -> bool:
        return self.allowed

    def commit(self, hits: int | Sequence[int]) -> Settlement:
        """Settles by the true amount. Does nothing if nothing is reserved. Can be repeated.

        Args:
            hits: One amount, or one for each descriptor.

        Raises:
            ServiceError: The service did not settle it; status `NOT_FOUND` if it has expired.
            ValueError: An amount is wrong; no call was made.
            ClosedError: The client is closed.
        """
        return self._client._run(self._client._core.commit(self._state, hits))

    def release(self) -> Settlement:
        """Gives back all of it. Does nothing if nothing is reserved. Can be repeated.

        Raises:
            ServiceError: The service did not settle it; status `NOT_FOUND` if it has expired.
            ClosedError: The client is closed.
        """
        return self._client._run(self._client._core.release(self._state))

    def extend(self, expires: float) -> Settlement:
        """Moves the expiry. Does nothing if nothing is reserved.

        Args:
            expires: Seconds from now, 0.001 to 86,400.

        Raises:
            ServiceError: The service did not extend it; status `NOT_FOUND` if it has expired.
            ValueError: `expires` is out of bounds; no call was made.
            ClosedError: The client is closed.
        """
        return self._client._run(self._client._core.extend(self._state, expires))

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client._run(self._client._core.end_scope(self._state))


class _Channel:
    """Connection to one address, with the callables of its methods."""

    def __init__(
        self, options: Options, target: str, credentials: grpc.ChannelCredentials | None
    ) -> None:
        arguments = options.channel_arguments()
        if credentials is None:
            self.channel = grpc.insecure_channel(target, arguments)
        else:
            self.channel = grpc.secure_channel(target, credentials, arguments)
        self.state = grpc.ChannelConnectivity.IDLE
        self.methods = {
            method: self.channel.unary_unary(method.path, method.serialize, method.parse)
            for method in wire.METHODS
        }

    def watch(self) -> None:
        """Connects, and keeps `state` current. gRPC runs a thread for this until `close`."""
        self.channel.subscribe(self._changed, try_to_connect=True)

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        idle = grpc.ChannelConnectivity.IDLE
        lost, self.state = state is idle and self.state is not idle, state
        if lost:  # gRPC does not connect again by itself.
            self.channel.unsubscribe(self._changed)
            self.channel.subscribe(self._changed, try_to_connect=True)


class Channels:
    """Connections to all addresses. They open with `ready` or the first call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._closed = False
        self._channels: list[_Channel] = []
        self._rotation = Rotation(len(options.addresses))
        self._credentials = options.tls.credentials() if options.tls is not None else None

    def run(self, flow: Flow[T]) -> T:
        """Makes the calls of a flow. Returns its result."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self.answer(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def start(self, flow: Flow[None]) -> None:
        """Makes the calls of a flow in the background."""
        self._go_on(flow, partial(next, flow))

    def _go_on(self, flow: Flow[None], advance: Callable[[], Rpc | Wait]) -> None:
        def answered(call: Any) -> None:
            try:
                answer = call.result()
            except Exception as error:
                self._go_on(flow, partial(flow.throw, error))
            else:
                self._go_on(flow, partial(flow.send, answer))

        with suppress(StopIteration):
            while True:
                rpc = advance()
                assert isinstance(rpc, Rpc), "a flow in the background waits for calls only"
                try:
                    call = self._call(rpc, lambda method: method.future)
                except Exception as error:
                    advance = partial(flow.throw, error)
                else:
                    call.add_done_callback(answered)
                    return

    def answer(self, step: Rpc | Wait) -> Any:
        """Makes a call, or waits. Raises `grpc.RpcError` or `ClosedError`."""
        if isinstance(step, Wait):
            wait([step.future], step.timeout)
            return None
        return self._call(step, lambda method: method)

    def _call(self, rpc: Rpc, how: Callable[[Any], Callable[..., Any]]) -> Any:
        channels = self._channels or self._open()
        if len(channels) == 1:
            channel = channels[0]
        else:
            channel = channels[self._rotation.next([channel.state for channel in channels])]
        try:
            return how(channel.methods[rpc.method])(rpc.request, timeout=rpc.timeout)
        except ValueError:  # gRPC's error for a call on a closed channel
            if self._closed:
                raise ClosedError from None
            raise

    def _open(self) -> list[_Channel]:
        with self._lock:
            if self._closed:
                raise ClosedError
            if not self._channels:
                channels = [
                    _Channel(self._options, target, self._credentials)
                    for target in self._options.targets()
                ]
                if len(channels) > 1:
                    for channel in channels:
                        channel.watch()
                self._channels = channels
            return self._channels

    def ready(self, timeout: float) -> bool:
        """Connects, and returns whether an address is connected in time."""
        connected = threading.Event()

        def changed(state: grpc.ChannelConnectivity) -> None:
            if state is grpc.ChannelConnectivity.READY:
                connected.set()

        channels = self._open()
        for one in channels:
            one.channel.subscribe(changed, try_to_connect=True)
        try:
            return connected.wait(timeout)
        finally:
            for one in channels:
                one.channel.unsubscribe(changed)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for channel in self._channels:
                channel.channel.close()


class _Background:
    """Calls that threads of gRPC make, and a thread that makes rounds of leases."""

    def __init__(self, options: Options, channels: Channels) -> None:
        self.core = Core(options, self)
        self._channels = channels
        self._ended = threading.Event()

    def spawn(self, flow: Flow[None]) -> None:
        """Runs a flow, and does not wait for its end."""
        self._channels.start(flow)

    def begin_rounds(self) -> None:
        """Makes rounds in a thread, while there are leases."""
        LEASING.add(self)
        try:
            threading.Thread(target=self._rounds, name="tollgate-leases", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self.core.leases.has_rounds = False

    def end(self) -> None:
        """Returns all hits. Waits for the answers."""
        self._ended.set()
        self._channels.run(self.core.close())

    def _rounds(self) -> None:
        while not self._ended.wait(to_seconds(_leases.ROUND_TIME)) and self.core.round():
            pass
