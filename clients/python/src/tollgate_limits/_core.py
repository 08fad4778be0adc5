"""Behaviour of a client without input and output, for the sync and the asyncio client.

Each call is a generator. It yields the gRPC call to make, and gets its answer or its error. The
clients run these generators; see `Flow`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, get_args

import grpc
from google.protobuf.message import Message

from . import _wire as wire
from ._breaker import FAILURES, Breaker
from ._denial_cache import MAX_KEY_BYTES, DenialCache
from ._durations import from_duration
from ._failure_log import FailureLog
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


@dataclass(frozen=True, slots=True)
class Rpc:
    """A gRPC call to make, within `timeout` seconds."""

    method: wire.Method
    request: Message
    timeout: float


Flow: TypeAlias = Generator[Rpc, Any, T]
"""Yields gRPC calls, gets their answers or a thrown `grpc.RpcError`, and returns the result."""


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

    def __init__(self, options: Options) -> None:
        self.options = options
        self.closed = False
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
    ) -> Flow[Decision]:
        """Takes hits, except in a dry run. Without an answer, `on_error` decides."""
        began = time.perf_counter()
        call = self._call(descriptors, hits, domain)
        if dry_run and self.options.protocol == "envoy":
            raise ValueError("the protocol envoy has no dry run; use the protocol tollgate")
        with self._telemetry.span("check", call.domain) as span:
            key, by_descriptor = call.key(), call.hits_by_descriptor()
            decision = self.denials.get(key, by_descriptor, self._clock())
            if decision is None:
                try:
                    decision = yield from self._guarded(lambda: self._ask(call, peek=dry_run))
                except NoAnswerError as error:
                    decision = self._without_answer(call, error)
                else:
                    if not decision.allowed and call.key_bytes() <= MAX_KEY_BYTES:
                        self.denials.put(key, by_descriptor, decision, self._clock())
            self._validate_domain(call, decision)
            decision = replace(decision, elapsed=time.perf_counter() - began)
            span.decided(decision)
        self._telemetry.decided(decision, check=True)
        return decision

    def peek(
        self, descriptors: Iterable[DescriptorLike], hits: int | None, domain: str | None
    ) -> Flow[Decision]:
        """Says what a check would answer. Raises `NoAnswerError`."""
        began = time.perf_counter()
        call = self._call(descriptors, hits, domain)
        with self._telemetry.span("peek", call.domain) as span:
            decision = yield from self._guarded(lambda: self._ask(call, peek=True))
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

    def _ask(self, call: wire.Call, *, peek: bool) -> Flow[Decision]:
        if self.options.protocol == "envoy":
            request: Message = wire.envoy_request(call, peek=peek)
            answer = yield from self._send(wire.SHOULD_RATE_LIMIT, request, again=peek)
            return wire.envoy_decision(answer)
        method = wire.PEEK if peek else wire.CHECK
        answer = yield from self._send(method, wire.check_request(call), again=peek)
        return wire.decision(answer)

    def _reserve(self, call: wire.Call, request: Message) -> Flow[ReservationState]:
        answer = yield from self._send(wire.RESERVE, request, again=False)
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
            answer = yield from self._send(method, request, again=True)
            return wire.settlement(answer)

    def _send(self, method: wire.Method, request: Message, *, again: bool) -> Flow[Any]:
        """Makes a call, and once more after `UNAVAILABLE` if it may be sent again."""
        timeout = self.options.deadline
        ends = time.monotonic() + timeout
        while True:
            try:
                return (yield Rpc(method, request, timeout))
            except grpc.RpcError as error:
                failure = service_error(error)
                timeout = ends - time.monotonic()
                if not again or failure.status != "UNAVAILABLE" or timeout <= 0:
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
