"""Values that calls take and return. All times are seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeAlias

from .errors import NoAnswerError

MAX_HITS = 2**53 - 1
"""Most hits of a call or a descriptor."""

Source: TypeAlias = Literal["server", "lease", "cache", "local", "allow", "deny"]
"""What decided: the server, a lease of the client, the denial cache, the local bucket, or
`on_error`."""

OnError: TypeAlias = Literal["allow", "deny", "local"]
"""Decision about a check or a reservation without an answer."""

NoLimit: TypeAlias = Literal["unknown_domain", "no_rule", "unlimited"]
"""Why no limit applied: no rules have the domain, no rule with a limit matches, or one that matches
is unlimited."""

UnknownDomain: TypeAlias = Literal["allow", "error"]
"""What becomes of a call whose domain no rules have."""

OnExpiry: TypeAlias = Literal["charge", "release"]
"""What happens to the hits of a reservation that expires."""

Protocol: TypeAlias = Literal["tollgate", "envoy"]
"""`tollgate.v1`, or Envoy's rate limit protocol with check and peek only."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What to limit: keys and values, as in the rules."""

    entries: tuple[tuple[str, str], ...]
    """Pairs of a key and a value, in the order of the rules. At least one."""
    hits: int | None = None
    """Replaces the hits of the call for this descriptor, 0 to `MAX_HITS`."""

    def __post_init__(self) -> None:
        if not self.entries:
            raise ValueError("a descriptor needs at least one entry")
        for entry in self.entries:
            match entry:
                case (str(), str()):
                    pass
                case _:
                    raise TypeError(f"an entry is a pair of texts (key, value), not {entry!r}")
        validate_hits(self.hits)


DescriptorLike: TypeAlias = Descriptor | Mapping[str, str] | Iterable[tuple[str, str]]
"""A descriptor, a mapping of keys to values, or pairs of them."""


def to_descriptors(descriptors: Iterable[DescriptorLike]) -> tuple[Descriptor, ...]:
    """Converts the descriptors of a call. Raises `TypeError` or `ValueError` for other values."""
    # The check for a mapping is slow, and a middleware has a tuple.
    if type(descriptors) is not tuple and isinstance(descriptors, (str, Mapping, Descriptor)):
        raise TypeError("descriptors are a list; put the descriptor into one")
    return tuple(map(_to_descriptor, descriptors))


def _to_descriptor(value: DescriptorLike) -> Descriptor:
    if isinstance(value, Descriptor):
        return value
    if isinstance(value, Mapping):
        return Descriptor(tuple(value.items()))
    return Descriptor(tuple(value))


def validate_hits(hits: int | None) -> None:
    """Raises `ValueError` if hits are negative or above `MAX_HITS`."""
    if hits is not None and not 0 <= hits <= MAX_HITS:
        raise ValueError(f"hits must be from 0 to {MAX_HITS}, not {hits}")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that applies to a call."""

    descriptor: int
    """Position of its descriptor in the call."""
    name: str
    """Name of the rule; empty where it has none."""
    rule: str
    """Path of the rule; empty with the protocol `envoy`."""
    requests_per_unit: int
    """Number of the limit."""
    window: str
    """Window in words, such as `15 minutes`."""
    allowed: bool
    """Whether this limit lets the hits pass."""
    remaining: int
    """Hits that are left, after the rule's cost."""
    reset: float | None
    """Seconds until the limit is unused again."""
    retry_after: float | None
    """Seconds until the same hits would pass; None if they passed or never will."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request may pass, and why. It is true in a condition if it is allowed."""

    allowed: bool
    """Whether the request may pass."""
    source: Source
    """What decided."""
    remaining: int | None = None
    """Hits that the tightest limit has left; None if no limit applies."""
    reset: float | None = None
    """Seconds until the tightest limit is unused again; None if no limit applies."""
    retry_after: float | None = None
    """Seconds until the same hits would pass; None if never or not known."""
    limits: tuple[Limit, ...] = ()
    """Limits that apply."""
    no_limit: NoLimit | None = None
    """Why no limit applied; None if one did, without an answer, and with the protocol `envoy`,
    which does not say."""
    error: NoAnswerError | None = None
    """Why the server did not answer; with the sources `local`, `allow` and `deny` only."""
    elapsed: float = 0.0
    """Seconds that the call took, by the real clock."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def tightest(self) -> Limit | None:
        """The limit that `remaining` and `reset` belong to; None if no limit applies.

        Of an allowed decision, the one with the least remaining. Of a refused one, the first
        refused limit without a `retry_after`, else the one with the longest.
        """
        if self.allowed:
            return min(self.limits, key=attrgetter("remaining"), default=None)
        refused = [limit for limit in self.limits if not limit.allowed]
        for limit in refused:
            if limit.retry_after is None:
                return limit
        return max(refused, key=lambda limit: limit.retry_after or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Answer to a commit, a release or an extension of a reservation."""

    reserved: int = 0
    """Hits that were reserved; 0 if there was nothing to settle."""
    committed: int = 0
    """True amount; 0 for a release."""
    repeated: bool = False
    """Whether it was settled before. The amounts are those of the first time."""
    remaining: int | None = None
    """Hits that the tightest limit has left; None if no limit applies."""
    reset: float | None = None
    """Seconds until the tightest limit is unused again; None if no limit applies."""
    expires: float | None = None
    """Seconds until the reservation ends by itself; of an extension only."""
    limits: tuple[Limit, ...] = ()
    """Limits that apply."""
