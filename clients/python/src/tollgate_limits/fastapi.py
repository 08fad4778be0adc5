"""Limits of single routes of FastAPI: a dependency, which is a decorator too."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ._middleware import Middleware, RouteOptions
from .aio import Client
from .asgi import request_view
from .model import Decision

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RateLimit", "RouteOptions"]


class RateLimit(Middleware[Client]):
    """Checks the requests of the routes that depend on it, and refuses those over a limit.

    As a dependency, whose value is the decision::

        limit = RateLimit(client, descriptors=[[RemoteAddress("remote_address")]])

        @app.get("/search", dependencies=[Depends(limit)])

    As a decorator, between the route and the function, which may have several::

        @app.get("/search")
        @limit.route

    A refused request raises an `HTTPException` with the headers, and with `body` as its detail.
    The headers of an allowed one are added unless the function returns a `Response` of its own.

    Its limits are checked before the function runs, so it has no option `count`.

    Args:
        client: Client for asyncio. The dependency does not close it.
        options: Those of `RouteOptions`. The body is the detail of the exception.
    """

    def __init__(self, client: Client, **options: "Unpack[RouteOptions]") -> None:
        super().__init__(client, RouteOptions, options)

    async def __call__(self, request: Request, response: Response) -> Decision | None:
        """Checks a request. Returns the decision; None if it passes without a call."""
        view = request_view(request.scope)
        call = self._call_of(view)
        if call is None:
            return None
        decision = await self._client._check_request(**call)
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
