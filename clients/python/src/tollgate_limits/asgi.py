"""ASGI middleware, for Starlette, FastAPI and other frameworks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from ._answers import HttpRefusal
from ._middleware import HttpOptions, Middleware
from .aio import Client
from .descriptors import RequestView
from .errors import ClosedError
from .model import Decision

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["HttpOptions", "TollgateMiddleware"]

_Message: TypeAlias = MutableMapping[str, Any]
_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

# Characters of a path that a request can have without encoding.
_PATH_CHARACTERS = "/~!$&'()*+,;=:@"


class TollgateMiddleware(Middleware[Client]):
    """Checks each HTTP request and each WebSocket handshake, and refuses those over a limit.

    Args:
        app: ASGI application.
        client: Client for asyncio. The middleware does not close it.
        options: Those of `HttpOptions`.
    """

    def __init__(self, app: _App, *, client: Client, **options: Unpack[HttpOptions]) -> None:
        super().__init__(client, HttpOptions, options)
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Handles a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = request_view(scope)
        call = self._call_of(request)
        if call is None:
            await self._app(scope, receive, send)
            return
        # As `_check_request`, without its coroutine: a decision of a lease waits for nothing.
        step = self._client._core.check(**call, dry_run=self._dry_run, of_middleware=True)
        decision = step if isinstance(step, Decision) else await self._client._run(step)
        self._answers.report(request, decision)
        refusal = self._answers.http_refusal(decision)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        added = _encode(self._answers.rate_limit_headers(decision))
        if not added and not self._dry_run:
            await self._app(scope, receive, send)
            return
        status = 500

        def send_with_headers(message: _Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.accept"):
                status = message.get("status", 101)
                message["headers"] = [*message.get("headers", ()), *added]
            return send(message)

        if not self._dry_run:
            await self._app(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            status = 500
            raise
        finally:
            if self._counts(decision, failed=status >= 400):
                with suppress(ClosedError):
                    await self._client.check(**call)


def request_view(scope: _Scope) -> RequestView:
    raw_path: bytes | None = scope.get("raw_path")
    if raw_path is None:
        path = quote(scope["path"], safe=_PATH_CHARACTERS)
    else:
        path = raw_path.decode("latin-1").partition("?")[0]
    peer = scope.get("client")
    return RequestView(
        method=scope.get("method", "GET"),
        path=path,
        headers=[
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ],
        peer=peer[0] or "" if peer else "",
        native=scope,
    )


@lru_cache(maxsize=64)
def _encode_name(name: str) -> bytes:
    return name.lower().encode()


def _encode(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(_encode_name(name), value.encode("latin-1")) for name, value in headers]


async def _refuse(scope: _Scope, receive: _Receive, send: _Send, refusal: HttpRefusal) -> None:
    prefix = "http.response"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        prefix = "websocket.http.response"
    headers = _encode(refusal.headers)
    await send({"type": f"{prefix}.start", "status": refusal.status, "headers": headers})
    body = b"" if scope.get("method") == "HEAD" else refusal.body
    await send({"type": f"{prefix}.body", "body": body})
