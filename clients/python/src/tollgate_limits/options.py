"""Options of a client. All times are seconds."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, get_args

import grpc

from .model import OnError, Protocol, UnknownDomain

Clock: TypeAlias = Callable[[], int]
"""Source of time: nanoseconds that never go back, such as `time.monotonic_ns`."""


@dataclass(frozen=True, slots=True)
class LocalBucket:
    """Token bucket of `on_error="local"`, one for each list of descriptors."""

    per_second: float = 10
    """Tokens a second, above 0."""
    burst: int = 10
    """Most tokens, at least 1. A bucket starts full."""

    def __post_init__(self) -> None:
        if not (self.per_second > 0 and math.isfinite(self.per_second)):
            raise ValueError(f"per_second must be above 0, not {self.per_second}")
        if self.burst < 1:
            raise ValueError(f"burst must be at least 1, not {self.burst}")


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """Circuit breaker."""

    failures: int = 5
    """Failures in a row that open it, at least 1."""
    open_time: float = 1.0
    """Seconds until it lets one call through, above 0."""

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"failures must be at least 1, not {self.failures}")
        if not self.open_time > 0:
            raise ValueError(f"open_time must be above 0, not {self.open_time}")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Pings on a connection with calls in flight."""

    interval: float = 30.0
    """Seconds between pings."""
    timeout: float = 10.0
    """Seconds to wait for the answer before the connection is closed."""

    def __post_init__(self) -> None:
        if not (self.interval > 0 and self.timeout > 0):
            raise ValueError("interval and timeout must be above 0")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of the connection. Files are PEM and are read when the client is made."""

    ca_file: str | PathLike[str] | None = None
    """CA bundle; default: system roots."""
    cert_file: str | PathLike[str] | None = None
    """Client certificate with its chain; default: none."""
    key_file: str | PathLike[str] | None = None
    """Key of the client certificate."""
    server_name: str | None = None
    """Name that the server's certificate must have; default: the host of the address."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("set cert_file and key_file together")

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises `OSError` if one is not readable."""
        roots = Path(self.ca_file).read_bytes() if self.ca_file is not None else _system_roots()
        return grpc.ssl_channel_credentials(
            root_certificates=roots,
            private_key=Path(self.key_file).read_bytes() if self.key_file else None,
            certificate_chain=Path(self.cert_file).read_bytes() if self.cert_file else None,
        )


def _system_roots() -> bytes | None:
    roots = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, roots)).encode() or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated options of a client; `Client` documents them."""

    addresses: Sequence[str]
    domain: str | None
    protocol: Protocol
    deadline: float
    tls: Tls | None
    keepalive: Keepalive
    on_error: OnError
    local: LocalBucket
    breaker: BreakerOptions
    denial_cache: int
    leases: bool | None = None
    unknown_domain: UnknownDomain = "allow"
    http_proxy: bool = False
    clock: Clock = field(default=time.monotonic_ns)
    tracer_provider: Any = None
    meter_provider: Any = None

    def __post_init__(self) -> None:
        for name, (kinds, words) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                raise TypeError(f"{name} must be {words}, not {value!r}")
        if not self.addresses:
            raise ValueError("set at least one address")
        for address in self.addresses:
            if not _is_address(address):
                # What is before the last @ may be a password.
                masked = re.sub(r"(?s)\A.*@", "***@", address)
                raise ValueError(
                    f'address "{masked}" is invalid; write host:port, such as localhost:8081'
                )
        if self.domain == "":
            raise ValueError("domain must not be empty")
        if self.protocol not in get_args(Protocol):
            raise ValueError(f"protocol must be tollgate or envoy, not {self.protocol!r}")
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error must be allow, deny or local, not {self.on_error!r}")
        if self.unknown_domain not in get_args(UnknownDomain):
            raise ValueError(f"unknown_domain must be allow or error, not {self.unknown_domain!r}")
        if self.unknown_domain == "error" and self.protocol != "tollgate":
            raise ValueError("unknown_domain error needs the protocol tollgate")
        if not (self.deadline > 0 and math.isfinite(self.deadline)):
            raise ValueError(f"deadline must be above 0 seconds, not {self.deadline}")
        if self.denial_cache < 0:
            raise ValueError(f"denial_cache must be at least 0, not {self.denial_cache}")

    def leases_checks(self, *, of_middleware: bool) -> bool:
        """Whether checks take leased hits."""
        is_on = of_middleware if self.leases is None else self.leases
        return is_on and self.protocol == "tollgate"

    def targets(self) -> list[str]:
        """Addresses in the form of gRPC."""
        return [f"dns:///{address}" for address in self.addresses]

    def channel_arguments(self) -> list[tuple[str, str | int]]:
        """Settings of a gRPC channel."""
        arguments: list[tuple[str, str | int]] = [
            # A check may have been charged, so gRPC must not send it again.
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", int(self.http_proxy)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.min_reconnect_backoff_ms", 5_000),
            ("grpc.dns_min_time_between_resolutions_ms", 5_000),
            ("grpc.keepalive_time_ms", round(self.keepalive.interval * 1_000)),
            ("grpc.keepalive_timeout_ms", round(self.keepalive.timeout * 1_000)),
            ("grpc.keepalive_permit_without_calls", 0),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_receive_message_length", 16 * 1024 * 1024),
        ]
        if self.tls is not None and self.tls.server_name is not None:
            arguments.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return arguments


# Options whose wrong type would not be noticed, or would fail without their name.
_KINDS: dict[str, tuple[type | UnionType, str]] = {
    "deadline": (float | int, "a number of seconds"),
    "tls": (Tls | None, "a Tls or None"),
    "keepalive": (Keepalive, "a Keepalive"),
    "local": (LocalBucket, "a LocalBucket"),
    "breaker": (BreakerOptions, "a BreakerOptions"),
    "denial_cache": (int, "a number of entries"),
    "leases": (bool | None, "True, False or None"),
    "http_proxy": (bool, "True or False"),
}

# Groups: an IPv6 address and the port.
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|[0-9A-Za-z._-]+):([0-9]{1,5})")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 65536:
        return False
    try:
        return found[1] is None or bool(IPv6Address(found[1]))
    except ValueError:
        return False
