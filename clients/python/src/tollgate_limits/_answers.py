"""Answers of the middleware: headers and refusals that follow from a decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args

from ._durations import whole_seconds
from .descriptors import RequestView
from .model import Decision, Limit

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("tollgate_limits")

HeaderStyle: TypeAlias = Literal["ratelimit", "x-ratelimit", "ratelimit-policy"]
"""Prefix of the rate limit headers, or the two headers of the IETF draft."""

Headers: TypeAlias = list[tuple[str, str]]

# Seconds of the units of a window whose length is fixed.
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_NAMES: dict[HeaderStyle, tuple[str, str, str]] = {
    "ratelimit": ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"),
    "x-ratelimit": ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
}


class StatusOptions(TypedDict, total=False):
    """Options of the response to a refused request."""

    status: int
    """HTTP status of a refused request; default: 429."""
    body: str
    """Body of a refused request; default: `Too Many Requests`."""
    error_status: int
    """HTTP status of a request that `on_error="deny"` refuses; default: 503."""


class RefusalOptions(StatusOptions, total=False):
    """Options of `http_refusal`."""

    headers: Sequence[HeaderStyle]
    """Any of `ratelimit` (the default), `x-ratelimit`, `ratelimit-policy`."""
    content_type: str
    """Content type of the body; default: `text/plain; charset=utf-8`."""


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """Response to a refused request."""

    status: int
    headers: Headers
    """With the content type and length, `Retry-After` and the rate limit headers."""
    body: bytes

    def status_line(self) -> str:
        """Status and its phrase, as WSGI wants them."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"{self.status} Refused"


@dataclass(frozen=True, slots=True)
class GrpcRefusal:
    """Status of a refused call."""

    code: str
    message: str
    retry_after: float | None
    metadata: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a middleware answers."""

    shadow: bool = False
    headers: Sequence[HeaderStyle] = ("ratelimit",)
    status: int = 429
    body: str = "Too Many Requests"
    content_type: str = "text/plain; charset=utf-8"
    error_status: int = 503
    on_decision: Callable[[RequestView, Decision], object] | None = None

    def __post_init__(self) -> None:
        for style in self.headers:
            if style not in get_args(HeaderStyle):
                raise ValueError(f"headers must be of {get_args(HeaderStyle)}, not {style!r}")
        for status in (self.status, self.error_status):
            if not 200 <= status <= 599:
                raise ValueError(f"status must be from 200 to 599, not {status}")

    def rate_limit_headers(self, decision: Decision) -> Headers:
        """Headers of the tightest limit; none in shadow mode."""
        limit = decision.tightest
        if limit is None or self.shadow:
            return []
        remaining, reset = limit.remaining, limit.reset
        if decision.source == "lease" and decision.remaining is not None:
            # The limit is as it was when the hits were leased.
            remaining, reset = decision.remaining, decision.reset
        headers: Headers = []
        for style in self.headers:
            if style == "ratelimit-policy":
                headers += _policy_headers(limit, remaining, reset)
                continue
            for_limit, for_remaining, for_reset = _NAMES[style]
            headers.append((for_limit, str(limit.requests_per_unit)))
            headers.append((for_remaining, str(remaining)))
            headers.append((for_reset, str(whole_seconds(reset or 0.0))))
        return headers

    def http_refusal(self, decision: Decision) -> HttpRefusal | None:
        """Response to a refused request; None if it passes."""
        if decision.allowed or self.shadow:
            return None
        if decision.source == "deny":
            body = b"Service Unavailable"
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", "1")]
            status = self.error_status
        else:
            body = self.body.encode()
            headers = [("Content-Type", self.content_type), *self.rate_limit_headers(decision)]
            if decision.retry_after is not None:
                seconds = max(1, whole_seconds(decision.retry_after))
                headers.append(("Retry-After", str(seconds)))
            status = self.status
        headers.append(("Content-Length", str(len(body))))
        return HttpRefusal(status, headers, body)

    def grpc_refusal(self, decision: Decision) -> GrpcRefusal | None:
        """Status of a refused call; None if it passes."""
        if decision.allowed or self.shadow:
            return None
        if decision.source == "deny":
            return GrpcRefusal("UNAVAILABLE", "rate limit service unavailable", 1.0, [])
        metadata = self.grpc_metadata(decision)
        return GrpcRefusal("RESOURCE_EXHAUSTED", "rate limited", decision.retry_after, metadata)

    def grpc_metadata(self, decision: Decision) -> Headers:
        """The rate limit headers in lower case."""
        return [(name.lower(), value) for name, value in self.rate_limit_headers(decision)]

    def report(self, request: RequestView, decision: Decision) -> None:
        """Calls `on_decision`. If it fails, the request goes on."""
        if self.on_decision is None:
            return
        try:
            self.on_decision(request, decision)
        except Exception:
            logger.exception("on_decision failed")


def http_refusal(decision: Decision, **options: Unpack[RefusalOptions]) -> HttpRefusal | None:
    """Response to a request that a decision refuses, as the middleware sends it; None if it passes.

    For handlers that call `check` themselves. With Starlette and FastAPI the response is
    `Response(refusal.body, refusal.status, dict(refusal.headers))`, with Flask
    `Response(refusal.body, refusal.status, refusal.headers)`.

    Raises:
        ValueError, TypeError: An option is wrong.
    """
    return Answers(**options).http_refusal(decision)


def _policy_headers(limit: Limit, remaining: int, reset: float | None) -> Headers:
    """Headers of draft-ietf-httpapi-ratelimit-headers-10."""
    # A string of structured fields is printable ASCII.
    known = limit.name if limit.name.isascii() and limit.name.isprintable() else ""
    name = (known or "default").replace("\\", "\\\\").replace('"', '\\"')
    count, _, unit = limit.window.partition(" ")
    seconds = _UNITS.get(unit.removesuffix("s"))
    window = f";w={int(count) * seconds}" if seconds and count.isdecimal() else ""
    ends = "" if reset is None else f";t={whole_seconds(reset)}"
    return [
        ("RateLimit-Policy", f'"{name}";q={limit.requests_per_unit}{window}'),
        ("RateLimit", f'"{name}";r={remaining}{ends}'),
    ]
