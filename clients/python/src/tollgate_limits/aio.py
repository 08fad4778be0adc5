"""Client for asyncio. `tollgate_limits.Client` is the same for threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from . import _leases, client
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

__all__ = ["Client", "PendingReservation", "Reservation"]


class Client:
    """Client of a tollgate service, for one event loop.

    Connections open with `ready` or the first call. A cancelled call raises
    `asyncio.CancelledError`.

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
        self._channels = _Channels(options)
        self._background = _Background(options, self._run)
        self._core = self._background.core

    async def check(
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
        return step if isinstance(step, Decision) else await self._run(step)

    async def _check_request(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None,
        domain: str | None,
        dry_run: bool = False,
    ) -> Decision:
        """The check of a middleware."""
        step = self._core.check(descriptors, hits, domain, dry_run, of_middleware=True)
        return step if isinstance(step, Decision) else await self._run(step)

    async def peek(
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
        return await self._run(self._core.peek(descriptors, hits, domain))

    def reserve(
        self,
        descriptors: Iterable[DescriptorLike],
        *,
        hits: int | None = None,
        domain: str | None = None,
        reservation: str | None = None,
        expires: float | None = None,
        on_expiry: OnExpiry | None = None,
    ) -> PendingReservation:
        """Takes hits from all limits or from none, until they are settled or expire.

        Use it as `async with client.reserve(...) as reservation`, which releases what was not
        committed, or as `reservation = await client.reserve(...)`. Without an answer, `on_error`
        decides, and the reservation has no id.

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
        return PendingReservation(self, flow)

    async def ready(self, timeout: float = 5.0) -> bool:
        """Connects, and waits until an address is connected, at most `timeout` seconds.

        Returns whether one is. A program that calls it at its start spares its first check the
        time of the connection.

        Raises:
            ClosedError: The client is closed.
        """
        return await self._channels.ready(timeout)

    async def close(self) -> None:
        """Returns the hits of leases, and closes the connections. Can be repeated.

        It waits for the calls in flight.
        """
        await self._run(self._core.close())
        await self._channels.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T], step: Rpc | Wait | None = None) -> T:
        """Makes the calls of a flow, which may have begun with a step. Returns its result."""
        try:
            step = step or next(flow)
            while True:
                try:
                    answer = await self._channels.answer(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


class Reservation:
    """Hits that are reserved. It is true in a condition if it is allowed.

    An `async with` statement releases what was neither committed nor released in it. An error of
    that release is dropped: the reservation then ends by its expiry.
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

    async def commit(self, hits: int | Sequence[int]) -> Settlement:
        """Settles by the true amount. Does nothing if nothing is reserved. Can be repeated.

        Args:
            hits: One amount, or one for each descriptor.

        Raises:
            ServiceError: The service did not settle it; status `NOT_FOUND` if it has expired.
            ValueError: An amount is wrong; no call was made.
            ClosedError: The client is closed.
        """
        return await self._client._run(self._client._core.commit(self._state, hits))

    async def release(self) -> Settlement:
        """Gives back all of it. Does nothing if nothing is reserved. Can be repeated.

        Raises:
            ServiceError: The service did not settle it; status `NOT_FOUND` if it has expired.
            ClosedError: The client is closed.
        """
        return await self._client._run(self._client._core.release(self._state))

    async def extend(self, expires: float) -> Settlement:
        """Moves the expiry. Does nothing if nothing is reserved.

        Args:
            expires: Seconds from now, 0.001 to 86,400.

        Raises:
            ServiceError: The service did not extend it; status `NOT_FOUND` if it has expired.
            ValueError: `expires` is out of bounds; no call was made.
            ClosedError: The client is closed.
        """
        return await self._client._run(self._client._core.extend(self._state, expires))

    async def __aenter__(self) -> Reservation:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client._run(self._client._core.end_scope(self._state))


class PendingReservation:
    """Reservation that is made by `await` or by `async with`."""

    def __init__(self, client: Client, flow: Flow[ReservationState]) -> None:
        self._client = client
        self._flow = flow
        self._reservation: Reservation | None = None

    async def _make(self) -> Reservation:
        return Reservation(self._client, await self._client._run(self._flow))

    def __await__(self) -> Generator[Any, None, Reservation]:
        return self._make().__await__()

    async def __aenter__(self) -> Reservation:
        self._reservation = await self._make()
        return self._reservation

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reservation is not None:
            await self._reservation.__aexit__(kind, error, traceback)


class _Channel:
    """Connection to one address, with the callables of its methods."""

    def __init__(
        self, options: Options, target: str, credentials: grpc.ChannelCredentials | None
    ) -> None:
        arguments = options.channel_arguments()
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(target, arguments)
        else:
            self.channel = grpc.aio.secure_channel(target, credentials, arguments)
        self.methods = {
            method: self.channel.unary_unary(method.path, method.serialize, method.parse)
            for method in wire.METHODS
        }


class _Channels:
    """Connections to all addresses. They open with `ready` or the first call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._closed = False
        self._channels: list[_Channel] = []
        self._rotation = Rotation(len(options.addresses))
        self._credentials = options.tls.credentials() if options.tls is not None else None

    async def answer(self, step: Rpc | Wait) -> Any:
        """Makes a call, or waits. Raises `grpc.RpcError` or `ClosedError`."""
        if isinstance(step, Wait):
            await asyncio.wait([asyncio.wrap_future(step.future)], timeout=step.timeout)
            return None
        if self._closed:
            raise ClosedError
        channels = self._channels or self._open()
        if len(channels) == 1:
            channel = channels[0]
        else:
            states = [one.channel.get_state(try_to_connect=True) for one in channels]
            channel = channels[self._rotation.next(states)]
        return await channel.methods[step.method](step.request, timeout=step.timeout)

    async def ready(self, timeout: float) -> bool:
        """Connects, and returns whether an address is connected in time."""
        if self._closed:
            raise ClosedError
        channels = self._channels or self._open()
        waits = [asyncio.ensure_future(one.channel.channel_ready()) for one in channels]
        try:
            connected, _ = await asyncio.wait(
                waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        return any(wait.exception() is None for wait in connected)

    def _open(self) -> list[_Channel]:
        self._channels = [
            _Channel(self._options, target, self._credentials) for target in self._options.targets()
        ]
        return self._channels

    async def close(self) -> None:
        self._closed = True
        channels, self._channels = self._channels, []
        for channel in channels:
            # A call that gRPC cancels would look like a cancelled task, so they end first.
            await channel.channel.close(grace=self._options.deadline)


class _Background:
    """Tasks of the event loop."""

    def __init__(
        self, options: Options, run: Callable[[Flow[None], Rpc | Wait], Coroutine[Any, Any, None]]
    ) -> None:
        self.core = Core(options, self)
        self._run = run
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, flow: Flow[None]) -> None:
        """Runs a flow in a task."""
        # It begins here, and is closed: a task that is cancelled before it begins runs nothing.
        try:
            step = next(flow)
        except StopIteration:
            return

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            flow.close()

        task = asyncio.get_running_loop().create_task(self._run(flow, step))
        self._tasks.add(task)
        task.add_done_callback(ended)

    def begin_rounds(self) -> None:
        """Makes rounds while there are leases."""
        LEASING.add(self)
        asyncio.get_running_loop().call_later(to_seconds(_leases.ROUND_TIME), self._round)

    def end(self) -> None:
        """Returns all hits at the end of the process, when there is no event loop."""
        channels = client.Channels(self.core.options)
        channels.run(self.core.close())
        channels.close()

    def _round(self) -> None:
        if self.core.round():
            asyncio.get_running_loop().call_later(to_seconds(_leases.ROUND_TIME), self._round)
