"""WSGI middleware, for Flask, Django and other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ._middleware import HttpOptions, Middleware
from .client import Client
from .descriptors import RequestView
from .errors import ClosedError
from .model import Decision

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from typing_extensions import Unpack

__all__ = ["HttpOptions", "TollgateMiddleware"]

# Characters of a path that a request can have without encoding.
_PATH_CHARACTERS = "/~!$&'()*+,;=:@"


class TollgateMiddleware(Middleware[Client]):
    """Checks each request, and refuses those over a limit.

    Args:
        app: WSGI application.
        client: Client for threads. The middleware does not close it.
        options: Those of `HttpOptions`.
    """

    def __init__(
        self, app: WSGIApplication, *, client: Client, **options: Unpack[HttpOptions]
    ) -> None:
        super().__init__(client, HttpOptions, options)
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handles a request."""
        request = _request(environ)
        call = self._call_of(request)
        if call is None:
            return self._app(environ, start_response)
        decision = self._client._check_request(**call, dry_run=self._dry_run)
        self._answers.report(request, decision)
        refusal = self._answers.http_refusal(decision)
        if refusal is not None:
            start_response(refusal.status_line(), refusal.headers)
            return [] if request.method == "HEAD" else [refusal.body]
        added = self._answers.rate_limit_headers(decision)
        if not added and not self._dry_run:
            return self._app(environ, start_response)
        counted = _Counted(lambda failed: self._counted(call, decision, failed))

        def start_with_headers(
            status: str, headers: list[tuple[str, str]], *exc_info: Any
        ) -> Callable[[bytes], object]:
            counted.failed = status >= "4"
            return start_response(status, [*headers, *added], *exc_info)

        if not self._dry_run:
            return self._app(environ, start_with_headers)
        return counted.of(lambda: self._app(environ, start_with_headers))

    def _counted(self, call: dict[str, Any], decision: Decision, failed: bool) -> None:
        if self._counts(decision, failed=failed):
            with suppress(ClosedError):
                self._client.check(**call)


class _Counted:
    """Body of a response that reports at its end whether the request failed."""

    def __init__(self, end: Callable[[bool], None]) -> None:
        self.failed = True
        self._end = end
        self._body: Iterable[bytes] = ()

    def of(self, respond: Callable[[], Iterable[bytes]]) -> Iterable[bytes]:
        """Takes the response that a function returns."""
        try:
            self._body = respond()
        except Exception:
            self._end(True)
            raise
        return self

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except Exception:
            self.failed = True
            raise

    def close(self) -> None:
        """Ends the response. A server of WSGI calls it once, also after an error."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._end(self.failed)


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
