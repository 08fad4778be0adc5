"""ASGI middleware, for Starlette, FastAPI and other frameworks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from ._answers import Answers, HeaderStyle, HttpRefusal
from .aio import Client
from .descriptors import Entry, RequestLimits, RequestView
from .model import Decision

__all__ = ["TollgateMiddleware"]

_Message: TypeAlias = MutableMapping[str, Any]
_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

# Characters of a path that a request can have without encoding.
_PATH_CHARACTERS = "/~!$&'()*+,;=:@"


class TollgateMiddleware:
    """Checks each HTTP request and each WebSocket handshake, and refuses those over a limit.

    Args:
        app: ASGI application.
        client: Client for asyncio. The middleware does not close it.
        descriptors: What to limit, see `tollgate_limits.descriptors`.
        domain: Domain of the rules; default: the client's.
        hits: Hits of a request, or a function of it.
        trusted_proxies: Addresses and CIDR blocks of proxies whose `X-Forwarded-For` is read.
        skip_paths: Path templates that pass without a call.
        skip: Function of the request: if true, it passes without a call.
        shadow: The check is made, but the request always passes, and no headers are added.
        headers: Rate limit headers: any of `ratelimit`, `x-ratelimit`,
            `ratelimit-policy`.
        status: HTTP status of a refused request.
        body: Body of a refused request.
        content_type: Content type of that body.
        error_status: HTTP status of a request that `on_error="deny"` refuses.
        on_decision: Function of the request and the decision, after each check. If it fails, the
            failure is logged, and the request goes on.

    Raises:
        ValueError, TypeError: An option is wrong.
    """

    def __init__(
        self,
        app: _App,
        *,
        client: Client,
        descriptors: Sequence[Sequence[Entry]],
        domain: str | None = None,
        hits: int | Callable[[RequestView], int] = 1,
        trusted_proxies: Sequence[str] = (),
        skip_paths: Sequence[str] = (),
        skip: Callable[[RequestView], bool] | None = None,
        shadow: bool = False,
        headers: Sequence[HeaderStyle] = ("ratelimit",),
        status: int = 429,
        body: str = "Too Many Requests",
        content_type: str = "text/plain; charset=utf-8",
        error_status: int = 503,
        on_decision: Callable[[RequestView, Decision], object] | None = None,
    ) -> None:
        self._app = app
        self._client = client
        self._domain = domain
        self._limits = RequestLimits(
            descriptors=descriptors,
            hits=hits,
            trusted_proxies=trusted_proxies,
            skip_paths=skip_paths,
            skip=skip,
        )
        self._answers = Answers(
            shadow=shadow,
            headers=headers,
            status=status,
            body=body,
            content_type=content_type,
            error_status=error_status,
            on_decision=on_decision,
        )

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Handles a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = request_view(scope)
        descriptors = self._limits.descriptors_of(request)
        if not descriptors:
            await self._app(scope, receive, send)
            return
        decision = await self._client.check(
            descriptors, hits=self._limits.hits_of(request), domain=self._domain
        )
        self._answers.report(request, decision)
        refusal = self._answers.http_refusal(decision)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        added = _encode(self._answers.rate_limit_headers(decision))
        if not added:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: _Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)


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


def _encode(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


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
