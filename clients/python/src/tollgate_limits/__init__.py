"""Client and middleware for tollgate, a rate limit service.

`Client` is for threads, `tollgate_limits.aio.Client` for asyncio. Middleware is in
`tollgate_limits.asgi`, `tollgate_limits.wsgi` and `tollgate_limits.grpc_aio`.
"""

from ._answers import HttpRefusal, http_refusal
from ._version import __version__
from .client import Client, Reservation
from .errors import BreakerOpenError, ClosedError, NoAnswerError, ServiceError, TollgateError
from .model import (
    MAX_HITS,
    Decision,
    Descriptor,
    DescriptorLike,
    Limit,
    NoLimit,
    OnError,
    OnExpiry,
    Protocol,
    Settlement,
    Source,
    UnknownDomain,
)
from .options import BreakerOptions, Clock, Keepalive, LocalBucket, Tls

__all__ = [
    "MAX_HITS",
    "BreakerOpenError",
    "BreakerOptions",
    "Client",
    "Clock",
    "ClosedError",
    "Decision",
    "Descriptor",
    "DescriptorLike",
    "HttpRefusal",
    "Keepalive",
    "Limit",
    "LocalBucket",
    "NoAnswerError",
    "NoLimit",
    "OnError",
    "OnExpiry",
    "Protocol",
    "Reservation",
    "ServiceError",
    "Settlement",
    "Source",
    "Tls",
    "TollgateError",
    "UnknownDomain",
    "__version__",
    "http_refusal",
]
