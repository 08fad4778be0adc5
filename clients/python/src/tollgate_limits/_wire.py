"""Requests and answers of both protocols. Nothing here does input or output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import UInt64Value

from ._durations import from_duration, to_duration
from ._proto import rate_limits_pb2 as api
from ._proto import rls_pb2 as rls
from .errors import ServiceError, status_name
from .model import Decision, Descriptor, Limit, NoLimit, OnExpiry, Settlement


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A unary method of gRPC."""

    path: str
    serialize: Callable[[Any], bytes]
    parse: Callable[[bytes], Any]


def _method(name: str, request: type[Message], answer: type[Message]) -> Method:
    path = f"/tollgate.v1.RateLimits/{name}"
    return Method(path, request.SerializeToString, answer.FromString)


CHECK = _method("Check", api.CheckRequest, api.CheckResponse)
PEEK = _method("Peek", api.CheckRequest, api.CheckResponse)
RESERVE = _method("Reserve", api.ReserveRequest, api.ReserveResponse)
EXTEND = _method("Extend", api.ExtendRequest, api.SettleResponse)
COMMIT = _method("Commit", api.CommitRequest, api.SettleResponse)
RELEASE = _method("Release", api.ReleaseRequest, api.SettleResponse)
LEASE = _method("Lease", api.LeaseRequest, api.LeaseResponse)
BATCH = _method("Batch", api.BatchRequest, api.BatchResponse)
SHOULD_RATE_LIMIT = Method(
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    rls.RateLimitRequest.SerializeToString,
    rls.RateLimitResponse.FromString,
)
METHODS = (CHECK, PEEK, RESERVE, EXTEND, COMMIT, RELEASE, LEASE, BATCH, SHOULD_RATE_LIMIT)


LeaseRequest: TypeAlias = api.LeaseRequest
ReturnRequest: TypeAlias = api.ReturnRequest

MAX_LEASE_HITS = 1_000
"""Most hits that are wanted, and most hits of a check that takes leased ones."""

Key: TypeAlias = tuple[str, tuple[tuple[tuple[str, str], ...], ...]]
"""Domain and descriptors without hits."""


@dataclass(slots=True)
class Call:
    """Arguments of a check, a peek or a reservation."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int | None

    def key(self) -> Key:
        """Domain and descriptors without hits."""
        return self.domain, tuple([descriptor.entries for descriptor in self.descriptors])

    def hits_by_descriptor(self) -> tuple[int, ...]:
        """Hits of each descriptor, 1 where none are given."""
        default = 1 if self.hits is None else self.hits
        return tuple(
            default if descriptor.hits is None else descriptor.hits
            for descriptor in self.descriptors
        )

    def most_hits(self) -> int:
        """Hits of the descriptor that has the most."""
        return max(self.hits_by_descriptor(), default=1 if self.hits is None else self.hits)

    def lease_hits(self) -> int:
        """Hits that a lease can admit; 0 if the check cannot be leased."""
        for descriptor in self.descriptors:
            if descriptor.hits is not None:
                return 0
        hits = 1 if self.hits is None else self.hits
        return hits if self.descriptors and hits <= MAX_LEASE_HITS else 0

    def key_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(
            len(key.encode()) + len(value.encode())
            for descriptor in self.descriptors
            for key, value in descriptor.entries
        )


def _descriptor(descriptor: Descriptor, hits: int | None) -> api.Descriptor:
    entries = [api.Entry(key=key, value=value) for key, value in descriptor.entries]
    return api.Descriptor(entries=entries, hits=hits)


def check_request(call: Call) -> api.CheckRequest:
    """Request of a check or a peek."""
    descriptors = [_descriptor(descriptor, descriptor.hits) for descriptor in call.descriptors]
    return api.CheckRequest(domain=call.domain, descriptors=descriptors, hits=call.hits)


_ON_EXPIRY: dict[OnExpiry | None, api.OnExpiry] = {
    None: api.ON_EXPIRY_UNSPECIFIED,
    "charge": api.ON_EXPIRY_CHARGE,
    "release": api.ON_EXPIRY_RELEASE,
}


def reserve_request(
    call: Call, reservation: str, expires: float | None, on_expiry: OnExpiry | None
) -> api.ReserveRequest:
    """Request of a reservation."""
    descriptors = [_descriptor(descriptor, descriptor.hits) for descriptor in call.descriptors]
    return api.ReserveRequest(
        domain=call.domain,
        descriptors=descriptors,
        hits=call.hits,
        reservation=reservation,
        expires=None if expires is None else to_duration(expires),
        on_expiry=_ON_EXPIRY[on_expiry],
    )


def commit_request(call: Call, reservation: str, hits: int | list[int]) -> api.CommitRequest:
    """Request of a commit: one amount for the call, or one for each descriptor."""
    if isinstance(hits, int):
        descriptors = [_descriptor(descriptor, None) for descriptor in call.descriptors]
        return api.CommitRequest(
            domain=call.domain, descriptors=descriptors, reservation=reservation, hits=hits
        )
    descriptors = list(map(_descriptor, call.descriptors, hits))
    return api.CommitRequest(domain=call.domain, descriptors=descriptors, reservation=reservation)


def release_request(call: Call, reservation: str) -> api.ReleaseRequest:
    """Request of a release."""
    descriptors = [_descriptor(descriptor, None) for descriptor in call.descriptors]
    return api.ReleaseRequest(domain=call.domain, descriptors=descriptors, reservation=reservation)


def extend_request(call: Call, reservation: str, expires: float) -> api.ExtendRequest:
    """Request of an extension."""
    descriptors = [_descriptor(descriptor, None) for descriptor in call.descriptors]
    return api.ExtendRequest(
        domain=call.domain,
        descriptors=descriptors,
        reservation=reservation,
        expires=to_duration(expires),
    )


def lease_request(
    call: Call, hits: int, last: str, admitted: int, refused: int
) -> api.LeaseRequest:
    """Request of a lease."""
    return api.LeaseRequest(
        domain=call.domain,
        descriptors=[_descriptor(descriptor, None) for descriptor in call.descriptors],
        hits=hits,
        lease=last,
        admitted=admitted or None,
        refused=refused or None,
    )


def return_request(
    call: Call, lease: str, unused: int, admitted: int = 0, refused: int = 0
) -> api.ReturnRequest:
    """Request of a return."""
    return api.ReturnRequest(
        domain=call.domain,
        descriptors=[_descriptor(descriptor, None) for descriptor in call.descriptors],
        lease=lease,
        unused=unused,
        admitted=admitted or None,
        refused=refused or None,
    )


def batch_request(
    leases: list[api.LeaseRequest], returns: list[api.ReturnRequest]
) -> api.BatchRequest:
    """Request of leases, and then of returns."""
    calls = [api.Call(lease=one) for one in leases]
    return api.BatchRequest(calls=calls + [api.Call(give_back=one) for one in returns])


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """Answer to a lease."""

    decision: Decision
    lease: str
    hits: int
    expires: float
    not_leased: str


def lease_answer(answer: api.LeaseResponse) -> LeaseAnswer:
    """Answer to a lease. Raises `ServiceError` if it has no verdict."""
    expires = from_duration(answer.expires)
    return LeaseAnswer(decision(answer), answer.lease, answer.granted, expires, answer.not_leased)


def lease_of_batch(answer: api.BatchResponse, position: int) -> LeaseAnswer:
    """Answer to one lease of a batch. Raises `ServiceError` if it has none."""
    one = answer.answers[position] if position < len(answer.answers) else api.Answer()
    if one.HasField("failure"):
        raise ServiceError(status_name(one.failure.code), one.failure.message)
    if not one.HasField("lease"):
        raise ServiceError("INTERNAL", "the answer is not one of a lease")
    return lease_answer(one.lease)


# A reason of a newer server is dropped.
_NO_LIMITS: dict[str, NoLimit] = {reason: reason for reason in get_args(NoLimit)}


def decision(answer: api.CheckResponse | api.ReserveResponse | api.LeaseResponse) -> Decision:
    """Decision of `tollgate.v1`. Raises `ServiceError` if the answer has no verdict."""
    return Decision(
        allowed=_verdict(answer.verdict),
        source="server",
        remaining=answer.remaining if answer.HasField("remaining") else None,
        reset=from_duration(answer.reset) if answer.HasField("reset") else None,
        retry_after=from_duration(answer.retry_after) if answer.HasField("retry_after") else None,
        limits=tuple(map(_limit, answer.limits)),
        no_limit=_NO_LIMITS.get(getattr(answer, "no_limit", "")),
    )


def settlement(answer: api.SettleResponse) -> Settlement:
    """Answer to a commit, a release or an extension."""
    return Settlement(
        reserved=answer.reserved,
        committed=answer.committed,
        repeated=answer.repeated,
        remaining=answer.remaining if answer.HasField("remaining") else None,
        reset=from_duration(answer.reset) if answer.HasField("reset") else None,
        expires=from_duration(answer.expires) if answer.HasField("expires") else None,
        limits=tuple(map(_limit, answer.limits)),
    )


def _verdict(verdict: int) -> bool:
    if verdict == api.VERDICT_OK:
        return True
    if verdict == api.VERDICT_OVER_LIMIT:
        return False
    raise ServiceError("INTERNAL", f"the answer has no known verdict: {verdict}")


def _limit(status: api.LimitStatus) -> Limit:
    return Limit(
        descriptor=status.descriptor,
        name=status.name,
        rule=status.rule,
        requests_per_unit=status.requests_per_unit,
        window=status.window,
        allowed=status.verdict != api.VERDICT_OVER_LIMIT,
        remaining=status.remaining,
        reset=from_duration(status.reset) if status.HasField("reset") else None,
        retry_after=from_duration(status.retry_after) if status.HasField("retry_after") else None,
    )


def envoy_request(call: Call, *, peek: bool) -> rls.RateLimitRequest:
    """Request of Envoy's protocol. Hits of 1 are its default and not sent."""
    descriptors = []
    for descriptor, hits in zip(call.descriptors, call.hits_by_descriptor(), strict=True):
        hits = 0 if peek else hits
        descriptors.append(
            rls.RateLimitDescriptor(
                entries=[
                    rls.RateLimitDescriptor.Entry(key=key, value=value)
                    for key, value in descriptor.entries
                ],
                hits_addend=None if hits == 1 else UInt64Value(value=hits),
            )
        )
    return rls.RateLimitRequest(domain=call.domain, descriptors=descriptors)


def envoy_decision(answer: rls.RateLimitResponse) -> Decision:
    """Decision of Envoy's protocol. Raises `ServiceError` if the code is unknown."""
    refusal = rls.RateLimitResponse.OVER_LIMIT
    if answer.overall_code not in (rls.RateLimitResponse.OK, refusal):
        raise ServiceError("INTERNAL", f"the answer has no known code: {answer.overall_code}")
    waits = [
        from_duration(status.duration_until_reset)
        for status in answer.statuses
        if status.code == refusal and status.HasField("duration_until_reset")
    ]
    allowed = answer.overall_code != refusal
    unlimited = Decision(
        allowed=allowed,
        source="server",
        retry_after=None if allowed else max(waits, default=None),
        limits=tuple(
            _envoy_limit(position, status)
            for position, status in enumerate(answer.statuses)
            if status.HasField("current_limit")
        ),
    )
    tightest = unlimited.tightest
    if tightest is None:
        return unlimited
    return Decision(
        allowed=allowed,
        source="server",
        remaining=tightest.remaining,
        reset=tightest.reset,
        retry_after=unlimited.retry_after,
        limits=unlimited.limits,
    )


_UNITS = {
    rls.RateLimitResponse.RateLimit.SECOND: "second",
    rls.RateLimitResponse.RateLimit.MINUTE: "minute",
    rls.RateLimitResponse.RateLimit.HOUR: "hour",
    rls.RateLimitResponse.RateLimit.DAY: "day",
    rls.RateLimitResponse.RateLimit.WEEK: "week",
    rls.RateLimitResponse.RateLimit.MONTH: "month",
    rls.RateLimitResponse.RateLimit.YEAR: "year",
}


def _envoy_limit(position: int, status: rls.RateLimitResponse.DescriptorStatus) -> Limit:
    limit = status.current_limit
    count = max(1, limit.unit_multiplier.value)
    unit = _UNITS.get(limit.unit, "unknown unit")
    reset = None
    if status.HasField("duration_until_reset"):
        reset = from_duration(status.duration_until_reset)
    allowed = status.code != rls.RateLimitResponse.OVER_LIMIT
    return Limit(
        descriptor=position,
        name=limit.name,
        rule="",
        requests_per_unit=limit.requests_per_unit,
        window=f"{count} {unit}" if count == 1 else f"{count} {unit}s",
        allowed=allowed,
        remaining=status.limit_remaining,
        reset=reset,
        retry_after=None if allowed else reset,
    )
