"""What the middleware of all frameworks share: options, and what is checked and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, get_args

from ._answers import Answers, HeaderStyle, StatusOptions
from .descriptors import Entry, RequestLimits, RequestView
from .model import Decision

C = TypeVar("C")

Count: TypeAlias = Literal["all", "failed", "successful"]
"""Which requests take hits."""


class _Descriptors(TypedDict):
    descriptors: Sequence[Sequence[Entry]]
    """What to limit, see `tollgate_limits.descriptors`."""


class CommonOptions(_Descriptors, total=False):
    """Options of every middleware."""

    domain: str | None
    """Domain of the rules; default: the client's."""
    hits: int | Callable[[RequestView], int]
    """Hits of a request, or a function of it; default: 1."""
    trusted_proxies: Sequence[str]
    """Addresses and CIDR blocks of proxies whose `X-Forwarded-For` is read; default: none."""
    skip: Callable[[RequestView], bool] | None
    """Function of the request: if true, it passes without a call."""
    shadow: bool
    """The check is made, but the request always passes, and no headers are added."""
    headers: Sequence[HeaderStyle]
    """Any of `ratelimit` (the default), `x-ratelimit`, `ratelimit-policy`."""
    on_decision: Callable[[RequestView, Decision], object] | None
    """Function of the request and the decision, after each check. A failure of it is logged."""


class RouteOptions(CommonOptions, StatusOptions):
    """Options of a route of FastAPI."""


class CallOptions(CommonOptions, total=False):
    """Options of calls of gRPC."""

    skip_paths: Sequence[str]
    """Path templates that pass without a call; default: none."""
    count: Count
    """Requests that take hits: `all` (the default), or those that have `failed` or were
    `successful`. The latter are peeked at first, and take hits once they have a status."""


class HttpOptions(CallOptions, StatusOptions, total=False):
    """Options of requests of HTTP."""

    content_type: str
    """Content type of the body; default: `text/plain; charset=utf-8`."""


class Middleware(Generic[C]):
    """Base of the middleware of a framework.

    Raises:
        ValueError, TypeError: An option is wrong.
    """

    def __init__(self, client: C, known: Any, options: Mapping[str, Any]) -> None:
        names = known.__required_keys__ | known.__optional_keys__
        if unknown := sorted(options.keys() - names):
            raise TypeError(f"unknown options {unknown}; known are {sorted(names)}")
        self._client = client
        self._domain: str | None = options.get("domain")
        self._count: Count = options.get("count", "all")
        if self._count not in get_args(Count):
            raise ValueError(f"count must be one of {get_args(Count)}, not {self._count!r}")
        # Whether the hits are taken after the request.
        self._dry_run = self._count != "all"
        self._limits = RequestLimits(**_fields_of(RequestLimits, options))
        self._answers = Answers(**_fields_of(Answers, options))

    def _call_of(self, request: RequestView) -> dict[str, Any] | None:
        """Arguments of the check of a request; None if it passes without a call."""
        descriptors = self._limits.descriptors_of(request)
        if not descriptors:
            return None
        hits = self._limits.hits_of(request)
        return {"descriptors": descriptors, "hits": hits, "domain": self._domain}

    def _counts(self, decision: Decision, *, failed: bool) -> bool:
        """Whether a request takes hits now that its status is known."""
        # Nothing is counted without the service.
        return self._dry_run and decision.error is None and failed == (self._count == "failed")


def _fields_of(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    return {one.name: options[one.name] for one in fields(kind) if one.name in options}
