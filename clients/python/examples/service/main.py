"""HTTP service for a demonstration behind Envoy, limited by tollgate.

Variables:
    PORT: port to listen on; default: 8000
    TOLLGATE: host:port of tollgate; default: localhost:8081
    ON_ERROR: allow, deny or local; default: allow
    DEADLINE_MS: longest wait for a decision; default: 100
    FRAMEWORK: asgi or wsgi; default: asgi
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from typing import Any

import uvicorn
import waitress.server

from tollgate_limits import Client, Decision, aio
from tollgate_limits.asgi import TollgateMiddleware as AsgiMiddleware
from tollgate_limits.descriptors import RequestView, Value
from tollgate_limits.wsgi import TollgateMiddleware as WsgiMiddleware

PORT = int(os.environ.get("PORT", "8000"))
DEADLINE = int(os.environ.get("DEADLINE_MS", "100")) / 1_000
SOURCES = ("server", "lease", "cache", "local", "allow", "deny")
PAGES = {"/": b"hello from python", "/healthz": b"ok"}


class Stats:
    """Counts decisions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: Counter[str] = Counter()
        self._late = 0

    def count(self, _: RequestView, decision: Decision) -> None:
        with self._lock:
            self._sources[decision.source] += 1
            self._late += decision.elapsed > DEADLINE + 0.1

    def encoded(self) -> bytes:
        with self._lock:
            stats = {
                "checks": sum(self._sources.values()),
                "late": self._late,
                "sources": {source: self._sources[source] for source in SOURCES},
                "threads": threading.active_count(),
            }
        return json.dumps(stats).encode()


STATS = Stats()


def page(path: str) -> tuple[int, str, bytes]:
    """Status, content type and body of a page."""
    if path == "/stats":
        return 200, "application/json", STATS.encoded()
    if path in PAGES:
        return 200, "text/plain; charset=utf-8", PAGES[path]
    return 404, "text/plain; charset=utf-8", b"not found"


def client_options() -> dict[str, Any]:
    return {
        "domain": "demo",
        "deadline": DEADLINE,
        "on_error": os.environ.get("ON_ERROR", "allow"),
    }


def middleware_options() -> dict[str, Any]:
    return {
        "descriptors": [[Value("generic_key", "demo")]],
        "skip_paths": ["/healthz", "/stats"],
        "on_decision": STATS.count,
    }


def announce(port: int) -> None:
    print(f"listening on 127.0.0.1:{port}", flush=True)


class AnnouncingServer(uvicorn.Server):
    """Says when it listens."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        announce(self.servers[0].sockets[0].getsockname()[1])


def run_asgi(address: str) -> None:
    client = aio.Client(address, **client_options())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await client.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        status, content_type, body = page(scope["path"])
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    limited = AsgiMiddleware(app, client=client, **middleware_options())
    config = uvicorn.Config(
        limited,
        host="127.0.0.1",
        port=PORT,
        log_level="warning",
        access_log=False,
        lifespan="on",
        # The middleware reads X-Forwarded-For itself, from trusted proxies only.
        proxy_headers=False,
        timeout_graceful_shutdown=0,
    )
    AnnouncingServer(config).run()


def run_wsgi(address: str) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        status, content_type, body = page(environ["PATH_INFO"])
        line = "200 OK" if status == 200 else "404 Not Found"
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        start_response(line, headers)
        return [body]

    def end(*_: object) -> None:
        raise SystemExit

    with Client(address, **client_options()) as client:
        limited = WsgiMiddleware(app, client=client, **middleware_options())
        server: Any = waitress.server.create_server(
            limited, host="127.0.0.1", port=PORT, threads=32
        )
        signal.signal(signal.SIGTERM, end)
        announce(server.effective_port)
        server.run()


if __name__ == "__main__":
    run = {"asgi": run_asgi, "wsgi": run_wsgi}[os.environ.get("FRAMEWORK", "asgi")]
    run(os.environ.get("TOLLGATE", "localhost:8081"))
