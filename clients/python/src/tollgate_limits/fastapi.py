"""Limits of single routes of FastAPI: a dependency, which is a decorator too."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ._answers import Answers, HeaderStyle
from .aio import Client
from .asgi import request_view
from .descriptors import Entry, RequestLimits, RequestView
from .model import Decision

__all__ = ["RateLimit"]


class RateLimit:
    """Checks the requests of the routes that depend on it, and refuses those over a limit.

    As a dependency, whose value is the decision::

        limit = RateLimit(client, descriptors=[[RemoteAddress("remote_address")]])

        @app.get("/search", dependencies=[Depends(limit)])

    As a decorator, between the route and the function, which may have several::

        @app.get("/search")
        @limit.route

    A refused request raises an `HTTPException` with the headers, and with `body` as its detail.
    The headers of an allowed one are added unless the function returns a `Response` of its own.

    Args:
        client: Client for asyncio. The dependency does not close it.
        descriptors: What to limit, see `tollgate_limits.descriptors`.
        domain: Domain of the rules; default: the client's.
        hits: Hits of a request, or a function of it.
        trusted_proxies: Addresses and CIDR blocks of proxies whose `X-Forwarded-For` is read.
        skip: Function of the request: if true, it passes without a call.
        shadow: The check is made, but the request always passes, and no headers are added.
        headers: Rate limit headers: any of `ratelimit`, `x-ratelimit`,
            `ratelimit-policy`.
        status: HTTP status of a refused request.
        body: Detail of a refused request.
        error_status: HTTP status of a request that `on_error="deny"` refuses.
        on_decision: Function of the request and the decision, after each check. If it fails, the
            failure is logged, and the request goes on.

    Raises:
        ValueError, TypeError: An option is wrong.
    """

    def __init__(
        self,
        client: Client,
        *,
        descriptors: Sequence[Sequence[Entry]],
        domain: str | None = None,
        hits: int | Callable[[RequestView], int] = 1,
        trusted_proxies: Sequence[str] = (),
        skip: Callable[[RequestView], bool] | None = None,
        shadow: bool = False,
        headers: Sequence[HeaderStyle] = ("ratelimit",),
        status: int = 429,
        body: str = "Too Many Requests",
        error_status: int = 503,
        on_decision: Callable[[RequestView, Decision], object] | None = None,
    ) -> None:
        self._client = client
        self._domain = domain
        self._limits = RequestLimits(
            descriptors=descriptors, hits=hits, trusted_proxies=trusted_proxies, skip=skip
        )
        self._answers = Answers(
            shadow=shadow,
            headers=headers,
            status=status,
            body=body,
            error_status=error_status,
            on_decision=on_decision,
        )

    async def __call__(self, request: Request, response: Response) -> Decision | None:
        """Checks a request. Returns the decision; None if it passes without a call."""
        view = request_view(request.scope)
        descriptors = self._limits.descriptors_of(view)
        if not descriptors:
            return None
        decision = await self._client.check(
            descriptors, hits=self._limits.hits_of(view), domain=self._domain
        )
        self._answers.report(view, decision)
        refusal = self._answers.http_refusal(decision)
        if refusal is not None:
            own = {"Content-Type", "Content-Length"}
            headers = {name: value for name, value in refusal.headers if name not in own}
            raise HTTPException(refusal.status, refusal.body.decode(), headers)
        response.headers.update(dict(self._answers.rate_limit_headers(decision)))
        return decision

    def route(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Decorates the function of a route. One without `async` runs in a thread."""
        # Its annotations are those of another module.
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
        parameters = [
            one.replace(annotation=hints.get(one.name, one.annotation))
            for one in signature.parameters.values()
        ]
        # FastAPI passes what the signature names, and passes one request and one response only.
        own = {kind: _parameter_of(kind, parameters) for kind in (Request, Response)}
        names = {kind: own[kind] or f"tollgate_{kind.__name__.lower()}" for kind in own}
        added = [kind for kind in own if own[kind] is None]
        is_async = inspect.iscoroutinefunction(function)

        @functools.wraps(function)
        async def limited(*arguments: Any, **named: Any) -> Any:
            await self(named[names[Request]], named[names[Response]])
            for kind in added:
                del named[names[kind]]
            if is_async:
                return await function(*arguments, **named)
            return await run_in_threadpool(function, *arguments, **named)

        parameters += [
            inspect.Parameter(names[kind], inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            for kind in added
        ]
        returned = hints.get("return", signature.return_annotation)
        made = signature.replace(parameters=parameters, return_annotation=returned)
        limited.__signature__ = made  # type: ignore[attr-defined]
        return limited


def _parameter_of(kind: type, parameters: Sequence[inspect.Parameter]) -> str | None:
    """The name of the parameter of a type, such as that of another limit of the route."""
    for one in parameters:
        if isinstance(one.annotation, type) and issubclass(one.annotation, kind):
            return one.name
    return None
