"""Errors of the client. Wrong arguments raise `ValueError` or `TypeError` instead."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2


class TollgateError(Exception):
    """Base of all errors of this package."""


class NoAnswerError(TollgateError):
    """A call got no answer. `status` says why."""

    status: str
    """gRPC status name such as `UNAVAILABLE`, or `breaker` if no call was made."""


class ServiceError(NoAnswerError):
    """A gRPC call ended with another status than OK."""

    def __init__(self, status: str, message: str, reason: str | None = None) -> None:
        super().__init__(f"{status}: {message}" if message else status)
        self.status = status
        """gRPC status name such as `UNAVAILABLE`."""
        self.message = message
        """Message of the gRPC status."""
        self.reason = reason
        """Reason of the status's `ErrorInfo`, such as `UNKNOWN_RESERVATION`; None without one."""


class BreakerOpenError(NoAnswerError):
    """The circuit breaker is open, so no call was made."""

    def __init__(self) -> None:
        super().__init__("circuit breaker is open after repeated failures; no call was made")
        self.status = "breaker"


class ClosedError(TollgateError):
    """The client is closed."""

    def __init__(self) -> None:
        super().__init__("client is closed; make a new one")


def service_error(error: grpc.RpcError) -> ServiceError:
    """Converts the error of grpcio, sync or asyncio."""
    code = error.code()
    status = code.name if code is not None else "UNKNOWN"
    return ServiceError(status, error.details() or "", _reason(error))


def status_name(code: int) -> str:
    """Name of the number of a gRPC status."""
    names = {status.value[0]: status.name for status in grpc.StatusCode}
    return names.get(code, "UNKNOWN")


def _reason(error: grpc.RpcError) -> str | None:
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return _reason_of_details(value)
    return None


def _reason_of_details(encoded: bytes) -> str | None:
    info = error_details_pb2.ErrorInfo()
    try:
        for detail in status_pb2.Status.FromString(encoded).details:
            if detail.Unpack(info):
                return str(info.reason)
    except ValueError:  # protobuf's DecodeError
        pass
    return None
