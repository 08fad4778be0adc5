"""Descriptors of a request: where the middleware takes keys and values from.

A list of descriptors is a list of lists of entries::

    [[RemoteAddress("remote_address")], [RequestHeader("user", "x-user"), RequestMethod("method")]]
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .model import Descriptor

__all__ = [
    "Entry",
    "Function",
    "RequestHeader",
    "RequestMethod",
    "RequestPath",
    "PathTemplates",
    "RemoteAddress",
    "RequestView",
    "RequestLimits",
    "Value",
]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a source can read of a request."""

    method: str
    """HTTP method; `POST` in gRPC."""
    path: str
    """Path without the query, as sent; `/package.Service/Method` in gRPC."""
    headers: Sequence[tuple[str, str]]
    """Names in lower case, and values, in the order of the request."""
    peer: str
    """Address of the connection, with or without a port; empty for a Unix socket."""
    native: Any = None
    """ASGI scope, WSGI environ, or the `ServicerContext` of gRPC."""

    def header(self, name: str) -> str | None:
        """Values of a header, joined by `,`; None if empty. `name` is in lower case."""
        return ",".join(value for key, value in self.headers if key == name) or None


@dataclass(frozen=True, slots=True)
class Value:
    """A fixed text."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """Values of a header, joined by `,`. Missing if empty."""

    key: str
    name: str
    default: str | None = None
    """Value if the source is missing. Without it, the descriptor is left out."""


@dataclass(frozen=True, slots=True)
class RequestMethod:
    """HTTP method; `POST` in gRPC."""

    key: str


@dataclass(frozen=True, slots=True)
class RequestPath:
    """Path without the query, as sent; `/package.Service/Method` in gRPC."""

    key: str


@dataclass(frozen=True, slots=True)
class PathTemplates:
    """First template that matches the path, such as `/users/{id}` or `/static/{rest...}`.

    `{name}` matches one segment that is not empty. `{name...}` at the end matches the rest, which
    may be empty. Everything else matches as it is written.
    """

    key: str
    templates: Sequence[str]
    default: str | None = None
    """Value if the source is missing. Without it, the descriptor is left out."""


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """Address of the client, behind trusted proxies. Missing for a Unix socket."""

    key: str
    default: str | None = None
    """Value if the source is missing. Without it, the descriptor is left out."""


@dataclass(frozen=True, slots=True)
class Function:
    """Text that a function returns. None or an empty text is missing."""

    key: str
    function: Callable[[RequestView], str | None]
    default: str | None = None
    """Value if the source is missing. Without it, the descriptor is left out."""


Entry: TypeAlias = (
    Value | RequestHeader | RequestMethod | RequestPath | PathTemplates | RemoteAddress | Function
)
"""Key of a descriptor, and the source of its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What a middleware limits of a request."""

    descriptors: Sequence[Sequence[Entry]]
    """Descriptors, each a list of entries."""
    hits: int | Callable[[RequestView], int] = 1
    """Hits of a request, or a function of it."""
    trusted_proxies: Sequence[str] = ()
    """Addresses and CIDR blocks of proxies whose `X-Forwarded-For` is read."""
    skip_paths: Sequence[str] = ()
    """Path templates that pass without a call."""
    skip: Callable[[RequestView], bool] | None = None
    """Function of the request: if true, it passes without a call."""
    _networks: tuple[_Network, ...] = field(init=False, repr=False)
    _skip_patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False)
    _sources: tuple[tuple[tuple[str, _Source], ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        networks = tuple(ipaddress.ip_network(block) for block in self.trusted_proxies)
        object.__setattr__(self, "_networks", networks)
        object.__setattr__(self, "_skip_patterns", tuple(map(_pattern, self.skip_paths)))
        sources = tuple(
            tuple((entry.key, self._source(entry)) for entry in descriptor)
            for descriptor in self.descriptors
        )
        if not all(sources):
            raise ValueError("a descriptor needs at least one entry")
        object.__setattr__(self, "_sources", sources)

    def descriptors_of(self, request: RequestView) -> tuple[Descriptor, ...]:
        """Descriptors to check; none if the request passes without a call."""
        for pattern in self._skip_patterns:
            if pattern.fullmatch(request.path):
                return ()
        if self.skip is not None and self.skip(request):
            return ()
        descriptors = []
        for sources in self._sources:
            entries = []
            for key, source in sources:
                value = source(request)
                if value is None:
                    break
                entries.append((key, value))
            else:
                descriptors.append(Descriptor(tuple(entries)))
        return tuple(descriptors)

    def hits_of(self, request: RequestView) -> int | None:
        """Hits of the check; None for 1, the service's default."""
        hits = self.hits(request) if callable(self.hits) else self.hits
        return None if hits == 1 else hits

    def _source(self, entry: Entry) -> _Source:
        match entry:
            case Value(_, value):
                return lambda _: value
            case RequestMethod():
                return lambda request: request.method
            case RequestPath():
                return lambda request: request.path
            case RequestHeader(_, name, default):
                lower = name.lower()
                return _with_default(lambda request: request.header(lower), default)
            case PathTemplates(_, templates, default):
                patterns = [(_pattern(template), template) for template in templates]
                return _with_default(lambda request: _first_match(patterns, request), default)
            case RemoteAddress(_, default):
                return _with_default(
                    lambda request: remote_address(request, self._networks), default
                )
            case Function(_, function, default):
                return _with_default(lambda request: function(request) or None, default)
            case _:
                raise TypeError(f"not a source of an entry: {entry!r}")


_Source: TypeAlias = Callable[[RequestView], str | None]


def _with_default(source: _Source, default: str | None) -> _Source:
    if default is None:
        return source

    def value(request: RequestView) -> str | None:
        found = source(request)
        return default if found is None else found

    return value


def _first_match(patterns: list[tuple[re.Pattern[str], str]], request: RequestView) -> str | None:
    for pattern, template in patterns:
        if pattern.fullmatch(request.path):
            return template
    return None


def _pattern(template: str) -> re.Pattern[str]:
    """Pattern of a path template."""
    expression = ""
    segments = template.split("/")
    for position, segment in enumerate(segments):
        expression += "/" if position else ""
        if not re.fullmatch(r"\{[^{}]+\}", segment):
            expression += re.escape(segment)
        elif not segment.endswith("...}"):
            expression += "[^/]+"
        elif position + 1 == len(segments):
            expression += ".*"
        else:
            raise ValueError(f"{segment} must be at the end of the path template {template!r}")
    return re.compile(expression, re.DOTALL)


def remote_address(request: RequestView, trusted: Iterable[_Network]) -> str | None:
    """Address of the client, behind trusted proxies; None for a Unix socket."""
    address = _parse_address(request.peer)
    if address is None:
        return None
    networks = tuple(trusted)
    forwarded = request.header("x-forwarded-for")
    elements = [] if forwarded is None else forwarded.split(",")
    while elements and any(address in network for network in networks):
        previous = _parse_address(elements.pop().strip(" \t"))
        if previous is None:
            break
        address = previous
    return str(address)


def _parse_address(text: str) -> _Address | None:
    """Address without its port and zone. An IPv4-mapped one is IPv4."""
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or not re.fullmatch(r"(:[0-9]*)?", port):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not re.fullmatch(r"[0-9]*", port):
            return None
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
