"""Server interceptor of `grpc.aio`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from ._answers import GrpcRefusal
from ._durations import to_duration
from ._middleware import CallOptions, Middleware
from .aio import Client
from .descriptors import RequestView
from .errors import ClosedError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CallOptions", "TollgateInterceptor"]

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class TollgateInterceptor(Middleware[Client], grpc.aio.ServerInterceptor):
    """Checks each call when it starts, and refuses those over a limit.

    A streaming call is checked once. Handlers must be `async`.

    Args:
        client: Client for asyncio. The interceptor does not close it.
        options: Those of `CallOptions`.
    """

    def __init__(self, client: Client, **options: Unpack[CallOptions]) -> None:
        super().__init__(client, CallOptions, options)
        self._hits: set[asyncio.Task[None]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Wraps the handler of a call."""
        handler = cast("Any", await continuation(handler_call_details))
        if handler is None:
            return None
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            function = getattr(handler, kind)
            if function is None:
                continue
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            return cast(
                "_Handler",
                make(
                    self._wrapped(handler_call_details, function),
                    request_deserializer=handler.request_deserializer,
                    response_serializer=handler.response_serializer,
                ),
            )
        return cast("_Handler", handler)

    def _wrapped(
        self, details: grpc.HandlerCallDetails, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(function):

            async def generate(request: Any, context: _Context) -> AsyncIterator[Any]:
                async with self._started(details, context) as allowed:
                    async with aclosing(function(request, allowed)) as responses:
                        async for response in responses:
                            await allowed.send_metadata()
                            yield response
                    await allowed.send_metadata()

            return generate
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"the handler of {details.method} must be async to be limited")

        async def answer(request: Any, context: _Context) -> Any:
            async with self._started(details, context) as allowed:
                response = await function(request, allowed)
                await allowed.send_metadata()
                return response

        return answer

    @asynccontextmanager
    async def _started(
        self, details: grpc.HandlerCallDetails, context: _Context
    ) -> AsyncIterator[_AllowedContext]:
        """Checks a call. Ends it if it is refused, else has the context of its handler."""
        request = _request(details, context)
        call = self._call_of(request)
        if call is None:
            yield _AllowedContext(context, [])
            return
        decision = await self._client._check_request(**call, dry_run=self._dry_run)
        self._answers.report(request, decision)
        refusal = self._answers.grpc_refusal(decision)
        if refusal is not None:
            await _refuse(context, refusal)
        failed = True
        try:
            yield _AllowedContext(context, self._answers.grpc_metadata(decision))
            failed = context.code() not in (None, 0, grpc.StatusCode.OK)
        finally:
            if self._counts(decision, failed=failed):
                hit = asyncio.get_running_loop().create_task(self._hit(call))
                self._hits.add(hit)
                hit.add_done_callback(self._hits.discard)

    async def _hit(self, call: dict[str, Any]) -> None:
        with suppress(ClosedError):
            await self._client.check(**call)


class _AllowedContext:
    """Context of an allowed call, which adds the rate limit headers to its initial metadata."""

    def __init__(self, context: _Context, metadata: list[tuple[str, str]]) -> None:
        self._context = context
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def send_metadata(self, metadata: Any = ()) -> None:
        """Sends the headers with the first metadata or message."""
        added, self._metadata = self._metadata, []
        if added or metadata:
            await self._context.send_initial_metadata((*metadata, *added))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        await self.send_metadata(tuple(initial_metadata))

    async def write(self, message: Any) -> None:
        await self.send_metadata()
        await self._context.write(message)

    async def abort(self, *arguments: Any, **options: Any) -> None:
        await self.send_metadata()
        await self._context.abort(*arguments, **options)

    async def abort_with_status(self, status: Any) -> None:
        await self.send_metadata()
        await cast("Any", self._context).abort_with_status(status)


def _request(details: grpc.HandlerCallDetails, context: _Context) -> RequestView:
    headers = [
        (key.lower(), value)
        for key, value in details.invocation_metadata or ()
        if isinstance(value, str)
    ]
    return RequestView("POST", details.method, headers, _peer(context.peer()), context)


def _peer(peer: str) -> str:
    """Address of gRPC's `ipv4:ADDRESS:PORT` or `ipv6:%5BADDRESS%5D:PORT`; empty for others."""
    family, _, address = peer.partition(":")
    return unquote(address) if family in ("ipv4", "ipv6") else ""


async def _refuse(context: _Context, refusal: GrpcRefusal) -> None:
    code = grpc.StatusCode[refusal.code]
    metadata: list[tuple[str, str | bytes]] = list(refusal.metadata)
    if refusal.retry_after is not None:
        metadata.append(("grpc-status-details-bin", _details(code, refusal)))
    await context.abort(code, refusal.message, tuple(metadata))


def _details(code: grpc.StatusCode, refusal: GrpcRefusal) -> bytes:
    detail = AnyMessage()
    retry = error_details_pb2.RetryInfo(retry_delay=to_duration(refusal.retry_after or 0.0))
    detail.Pack(retry)
    status = status_pb2.Status(code=code.value[0], message=refusal.message, details=[detail])
    return cast("bytes", status.SerializeToString())
