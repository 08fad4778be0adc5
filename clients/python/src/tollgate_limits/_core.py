"""Behaviour of a client without input and output, for the sync and the asyncio client.

Each call is a generator. It yields the gRPC call to make, and gets its answer or its error. Or it
yields what to wait for. The clients run these generators; see `Flow`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, get_args

import grpc
from google.protobuf.message import Message

from . import _wire as wire
from ._breaker import FAILURES, Breaker
from ._denial_cache import MAX_KEY_BYTES, DenialCache
from ._durations import from_duration
from ._failure_log import FailureLog
from ._leases import LeaseCall, Leases
from ._local_buckets import LocalBuckets
from ._telemetry import Telemetry
from .errors import BreakerOpenError, ClosedError, NoAnswerError, ServiceError, service_error
from .model import (
    Decision,
    DescriptorLike,
    OnExpiry,
    Settlement,
    to_descriptors,
    validate_hits,
)
from .options import Options

T = TypeVar("T")

MAX_RESERVATION_BYTES = 256
MIN_EXPIRES, MAX_EXPIRES = 0.001, 86_400.0
MAX_BATCH = 100  # calls of a batch
BATCH_TIME = 1.0  # the least time of a batch, in seconds. No check waits for it.


@dataclass(frozen=True, slots=True)
class Rpc:
    """A gRPC call to make, within `timeout` seconds."""

    method: wire.Method
    request: Message
    timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a future, at most `timeout` seconds. Its result is not read."""

    future: Future[Any]
    timeout: float | None = None


Flow: TypeAlias = Generator[Rpc | Wait, Any, T]
"""Yields gRPC calls, gets their answers or a thrown `grpc.RpcError`, and returns the result."""


class Background(Protocol):
    """What a client does besides its calls."""

    def spawn(self, flow: Flow[None]) -> None:
        """Runs a flow, and does not wait for its end."""

    def begin_rounds(self) -> None:
        """Runs `Core.round` every `_leases.ROUND_TIME`, until that returns False."""


@dataclass(slots=True)
class ReservationState:
    """What a reservation knows of itself."""

    call: wire.Call
    decision: Decision
    id: str | None = None
    hits: int = 0
    expires: float | None = None
    settling: bool = False
    """Whether a commit or a release was sent, so that the end of the scope sends none."""


class Core:
    """Decides what to call, and what the answers mean."""

    def __init__(self, options: Options, background: Background) -> None:
        self.options = options
        self.closed = False
        self.leases = Leases()
        self._leases_all = options.leases_checks(of_middleware=False)
        self._leases_middleware = options.leases_checks(of_middleware=True)
        self._background = background
        self.denials = DenialCache(options.denial_cache)
        self.local = LocalBuckets(options.local)
        self._failures = FailureLog(options)
        self._breaker = Breaker(options.breaker)
        self._clock = options.clock
        self._telemetry = Telemetry(options.tracer_provider, options.meter_provider)

    def check(
        self,
        descriptors: Iterable[DescriptorLike],
        hits: int | None,
        domain: str | None,
        dry_run: bool,
        *,
        of_middleware: bool = False,
    ) -> Decision | Flow[Decision]:
        """Takes hits, except in a dry run. Without an answer, `on_error` decides.

        Returns the decision itself if it takes no call.
        """
        began = time.perf_counter()
        call = self._call(descriptors, hits, domain)
        if dry_run and self.options.protocol == "envoy":
            raise ValueError("the protocol envoy has no dry run; use the protocol tollgate")
        key, now, lease, decision = call.key(), self._clock(), None, None
        may_lease = self._leases_middleware if of_middleware else self._leases_all
        lease_hits = call.lease_hits() if may_lease and not dry_run else 0
        if len(self.denials):
            decision = self.denials.get(key, call.hits_by_descriptor(), now)
        if decision is not None:
            decision = replace(decision, elapsed=time.perf_counter() - began)
            if lease_hits:
                self.leases.refused(key, lease_hits, now)
        elif lease_hits:
            renews = self._breaker.is_closed
            decision, lease, is_new = self.leases.decide(
                key, call, lease_hits, now, began, renews=renews
            )
            if lease is not None and is_new:
                self._background.spawn(self._lease(lease))
            if decision is None and self.leases.begin_rounds():
                self._background.begin_rounds()
        if decision is None:
            return self._check(call, dry_run, lease, lease_hits, began)
        self._telemetry.decided_alone(call.domain, decision)
        return decision

    def _check(
        self, call: wire.Call, dry_run: bool, lease: LeaseCall | None, hits: int, began: float
    ) -> Flow[Decision]:
        """A check that waits for the call for a lease, or for its own."""
        with self._telemetry.span("check", call.domain) as span:
            try:
                decision = yield from self._answer(call, dry_run, lease, hits)
            except NoAnswerError as error:
                decision = self._without_answer(call, error)
            else:
                is_refusal = decision.source == "server" and not decision.allowed
                if is_refusal and call.key_bytes() <= MAX_KEY_BYTES:
                    by_descriptor = call.hits_by_descriptor()
                    self.denials.put(call.key(), by_descriptor, decision, self._clock())
            self._validate_domain(call, decision)
            decision = replace(decision, elapsed=time.perf_counter() - began)
            span.decided(decision)
        self._telemetry.decided(decision, check=True)
        return decision

    def _answer(
        self, call: wire.Call, dry_run: bool, lease: LeaseCall | None, hits: int
    ) -> Flow[Decision]:
        ends = self._ends()
        if lease is not None:
            yield Wait(lease.done)
            outcome = lease.done.result()
            if isinstance(outcome, Exception):
                raise outcome
            decision = self.leases.take(lease, hits, self._clock())
            if decision is not None:
                return decision
            if outcome is not None and hits == 1:
                self.leases.refused(call.key(), hits, self._clock())
                return outcome
        return (yield from self._guarded(lambda: self._ask(call, ends, peek=dry_run)))

    def _lease(self, lease: LeaseCall) -> Flow[None]:
        """Makes a call for a lease in the background."""

        def attempt() -> Flow[wire.LeaseAnswer]:
            answer = yield from self._send(wire.LEASE, lease.request, self._ends(), again=False)
            return wire.lease_answer(answer)

        try:
            answer = yield from self._guarded(attempt)
        except BaseException as error:
            self.leases.failed(lease, error, self._clock())
            if not isinstance(error, Exception):
                raise
        else:
            self.leases.granted(lease, answer, self._clock())

    def _batches(
        self,
        leases: list[LeaseCall],
        returns: list[wire.ReturnRequest],
        ends: float | None = None,
    ) -> Flow[None]:
        """Makes calls for leases, and gives back hits. Errors of the latter are dropped."""
        while leases or returns:
            some, leases = leases[:MAX_BATCH], leases[MAX_BATCH:]
            free = MAX_BATCH - len(some)
            request = wire.batch_request([one.request for one in some], returns[:free])
            returns = returns[free:]
            until = ends or max(self._ends(), time.monotonic() + BATCH_TIME)
            attempt = partial(self._send, wire.BATCH, request, until, again=False)
            if not some:  # As other calls that settle, it does not ask the breaker.
                with suppress(Exception):
                    yield from attempt()
                continue
            try:
                answer = yield from self._guarded(attempt)
            except Exception as error:
                for lease in some:
                    self.leases.failed(lease, error, self._clock())
                continue
            except BaseException as error:
                for lease in some + leases:
                    self.leases.failed(lease, error, self._clock())
                raise
            for position, lease in enumerate(some):
                try:
                    granted = wire.lease_of_batch(answer, position)
                except ServiceError as error:
                    self.leases.failed(lease, error, self._clock())
                else:
                    self.leases.granted(lease, granted, self._clock())

    def round(self) -> bool:
        """Makes a round of leases. Returns whether another one is to be made."""
        leases, returns = self.leases.round(self._clock(), renews=self._breaker.is_closed)
        if leases or returns:
            self._background.spawn(self._batches(leases, returns))
        return self.leases.has_rounds and not self.closed

    def close(self) -> Flow[None]:
        """Ends the calls, and returns all hits, within the deadline of a call."""
        if self.closed:
            return
        self.closed = True
        ends = self._ends()
        for call in self.leases.end():
            yield Wait(call, max(0.0, ends - time.monotonic()))
        yield from self._batches([], self.leases.rest(self._clock()), ends)

    def peek(
        self, descriptors: Iterable[DescriptorLike], hits: int | None, domain: str | None
    ) -> Flow[Decision]:
        """Says what a check would answer. Raises `NoAnswerError`."""
        began = time.perf_counter()
        call = self._call(descriptors, hits, domain)
        with self._telemetry.span("peek", call.domain) as span:
            decision = yield from self._guarded(lambda: self._ask(call, self._ends(), peek=True))
            self._validate_domain(call, decision)
            decision = replace(decision, elapsed=time.perf_counter() - began)
            span.decided(decision)
        return decision

    def reserve(
        self,
        descriptors: Iterable[DescriptorLike],
        hits: int | None,
        domain: str | None,
        reservation: str | None,
        expires: float | None,
        on_expiry: OnExpiry | None,
    ) -> Flow[ReservationState]:
        """Takes hits until they are settled. Without an answer, `on_error` decides."""
        began = time.perf_counter()
        call = self._call(descriptors, hits, domain)
        if self.options.protocol == "envoy":
            raise ValueError("the protocol envoy has no reservations; use the protocol tollgate")
        if reservation is not None and len(reservation.encode()) > MAX_RESERVATION_BYTES:
            raise ValueError(f"a reservation has at most {MAX_RESERVATION_BYTES} bytes")
        if expires is not None:
            _validate_expires(expires)
        if on_expiry is not None and on_expiry not in get_args(OnExpiry):
            raise ValueError(f"on_expiry must be charge or release, not {on_expiry!r}")
        request = wire.reserve_request(call, reservation or "", expires, on_expiry)
        with self._telemetry.span("reserve", call.domain) as span:
            try:
                state = yield from self._guarded(lambda: self._reserve(call, request))
            except NoAnswerError as error:
                state = ReservationState(call, self._without_answer(call, error))
            self._validate_domain(call, state.decision)
            state.decision = replace(state.decision, elapsed=time.perf_counter() - began)
            span.decided(state.decision)
        self._telemetry.decided(state.decision, check=False)
        return state

    def commit(self, state: ReservationState, hits: int | Sequence[int]) -> Flow[Settlement]:
        """Settles by the true amount."""
        if not isinstance(hits, int):
            hits = list(hits)
            if len(hits) != len(state.call.descriptors):
                raise ValueError(
                    f"commit one amount for each of {len(state.call.descriptors)} descriptors, "
                    f"not {len(hits)}"
                )
        for amount in [hits] if isinstance(hits, int) else hits:
            validate_hits(amount)
        if state.id is None:
            return Settlement()
        request = wire.commit_request(state.call, state.id, hits)
        state.settling = True
        return (yield from self._settle("commit", state, wire.COMMIT, request))

    def release(self, state: ReservationState) -> Flow[Settlement]:
        """Gives back all of a reservation."""
        if state.id is None:
            return Settlement()
        request = wire.release_request(state.call, state.id)
        state.settling = True
        return (yield from self._settle("release", state, wire.RELEASE, request))

    def extend(self, state: ReservationState, expires: float) -> Flow[Settlement]:
        """Moves the expiry of a reservation."""
        _validate_expires(expires)
        if state.id is None:
            return Settlement()
        request = wire.extend_request(state.call, state.id, expires)
        return (yield from self._settle("extend", state, wire.EXTEND, request))

    def end_scope(self, state: ReservationState) -> Flow[None]:
        """Releases what was neither committed nor released. Errors are dropped."""
        if state.settling or self.closed:
            return
        try:
            yield from self.release(state)
        except (NoAnswerError, ClosedError):
            pass  # The reservation ends by its expiry.

    def _call(
        self, descriptors: Iterable[DescriptorLike], hits: int | None, domain: str | None
    ) -> wire.Call:
        if self.closed:
            raise ClosedError
        domain = domain or self.options.domain
        if not domain:
            raise ValueError("set the domain of the client or of the call")
        validate_hits(hits)
        return wire.Call(domain, to_descriptors(descriptors), hits)

    def _validate_domain(self, call: wire.Call, decision: Decision) -> None:
        """Raises `ValueError` if no rules have the domain, and that is an error."""
        if decision.no_limit == "unknown_domain" and self.options.unknown_domain == "error":
            raise ValueError(
                f'no rules have the domain "{call.domain}"; add rules for it, or correct the domain'
            )

    def _guarded(self, attempt: Callable[[], Flow[T]]) -> Flow[T]:
        """Runs a call behind the breaker."""
        permit = self._breaker.enter(self._clock())
        try:
            result = yield from attempt()
        except ServiceError as error:
            if error.status in FAILURES:
                self._breaker.failed(permit, self._clock(), error)
            else:
                self._breaker.succeeded(permit)
            raise
        except BaseException:
            self._breaker.abandoned(permit)
            raise
        self._breaker.succeeded(permit)
        return result

    def _ends(self) -> float:
        """When a call that begins now ends without an answer."""
        return time.monotonic() + self.options.deadline

    def _ask(self, call: wire.Call, ends: float, *, peek: bool) -> Flow[Decision]:
        if self.options.protocol == "envoy":
            request: Message = wire.envoy_request(call, peek=peek)
            answer = yield from self._send(wire.SHOULD_RATE_LIMIT, request, ends, again=peek)
            return wire.envoy_decision(answer)
        method = wire.PEEK if peek else wire.CHECK
        answer = yield from self._send(method, wire.check_request(call), ends, again=peek)
        return wire.decision(answer)

    def _reserve(self, call: wire.Call, request: Message) -> Flow[ReservationState]:
        answer = yield from self._send(wire.RESERVE, request, self._ends(), again=False)
        state = ReservationState(call, wire.decision(answer))
        if state.decision.allowed:
            state.id = answer.reservation or None
            state.hits = answer.hits
            if answer.HasField("expires"):
                state.expires = from_duration(answer.expires)
        return state

    def _settle(
        self, name: str, state: ReservationState, method: wire.Method, request: Message
    ) -> Flow[Settlement]:
        if self.closed:
            raise ClosedError
        with self._telemetry.span(name, state.call.domain):
            answer = yield from self._send(method, request, self._ends(), again=True)
            return wire.settlement(answer)

    def _send(
        self, method: wire.Method, request: Message, ends: float, *, again: bool
    ) -> Flow[Any]:
        """Makes a call, and once more after `UNAVAILABLE` if it may be sent again."""
        while True:
            try:
                return (yield Rpc(method, request, max(0.0, ends - time.monotonic())))
            except grpc.RpcError as error:
                failure = service_error(error)
                is_late = ends <= time.monotonic()
                if not again or failure.status != "UNAVAILABLE" or is_late:
                    raise failure from error
                again = False

    def _without_answer(self, call: wire.Call, error: NoAnswerError) -> Decision:
        cause = self._breaker.cause if isinstance(error, BreakerOpenError) else error
        if cause is not None and not self.closed:
            self._failures.decided(cause, self._clock())
        on_error = self.options.on_error
        if on_error != "local":
            return Decision(allowed=on_error == "allow", source=on_error, error=error)
        allowed, wait = self.local.take(call.key(), call.most_hits(), self._clock())
        return Decision(allowed=allowed, source="local", retry_after=wait, error=error)


def _validate_expires(expires: float) -> None:
    if not MIN_EXPIRES <= expires <= MAX_EXPIRES:
        raise ValueError(
            f"expires must be from {MIN_EXPIRES} to {MAX_EXPIRES:.0f} seconds, not {expires}"
        )
