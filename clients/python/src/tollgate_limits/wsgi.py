"""WSGI middleware, for Flask, Django and other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ._answers import Answers, HeaderStyle
from .client import Client
from .descriptors import Entry, RequestLimits, RequestView
from .model import Decision

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["TollgateMiddleware"]

# Characters of a path that a request can have without encoding.
_PATH_CHARACTERS = "/~!$&'()*+,;=:@"


class TollgateMiddleware:
    """Checks each request, and refuses those over a limit.

    Args:
        app: WSGI application.
        client: Client for threads. The middleware does not close it.
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
        app: WSGIApplication,
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

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handles a request."""
        request = _request(environ)
        descriptors = self._limits.descriptors_of(request)
        if not descriptors:
            return self._app(environ, start_response)
        decision = self._client.check(
            descriptors, hits=self._limits.hits_of(request), domain=self._domain
        )
        self._answers.report(request, decision)
        refusal = self._answers.http_refusal(decision)
        if refusal is not None:
            start_response(refusal.status_line(), refusal.headers)
            return [] if request.method == "HEAD" else [refusal.body]
        added = self._answers.rate_limit_headers(decision)
        if not added:
            return self._app(environ, start_response)

        def start_with_headers(
            status: str, headers: list[tuple[str, str]], *exc_info: Any
        ) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *added], *exc_info)

        return self._app(environ, start_with_headers)


def _request(environ: WSGIEnvironment) -> RequestView:
    headers = [
        (name[5:].replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    headers.append(("content-type", environ.get("CONTENT_TYPE", "")))
    headers.append(("content-length", environ.get("CONTENT_LENGTH", "")))
    return RequestView(
        method=environ["REQUEST_METHOD"],
        path=_path(environ),
        headers=headers,
        peer=environ.get("REMOTE_ADDR") or "",
        native=environ,
    )


def _path(environ: WSGIEnvironment) -> str:
    """Path as sent, if the server keeps it; else the decoded one, encoded again."""
    for name in ("RAW_URI", "REQUEST_URI"):
        raw: str | None = environ.get(name)
        if raw:
            path = raw if raw.startswith("/") else urlsplit(raw).path
            return path.partition("?")[0].partition("#")[0] or "/"
    decoded = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(decoded.encode("latin-1"), safe=_PATH_CHARACTERS)
