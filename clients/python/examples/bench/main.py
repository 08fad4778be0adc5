"""HTTP server that compares tollgate's middleware with limits on Redis, and with no limiter.

`/bare`, `/headers`, `/tollgate` and `/peer` all answer `hello`, by FastAPI on uvicorn. `/headers`
has no limiter, and the headers of one.

Variables:
    PORT: port to listen on; default: 8000
    LEASES: 1 turns leases on
    KEYS: number of keys, of which a request has one at random; default: 1
    TOLLGATE: host:port of tollgate; default: localhost:8081
    REDIS: redis://host:port; default: redis://127.0.0.1:6379
"""

from __future__ import annotations

import os
import random
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse
from limits import parse
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter

from tollgate_limits import aio
from tollgate_limits.asgi import TollgateMiddleware
from tollgate_limits.descriptors import Function

PORT = int(os.environ.get("PORT", "8000"))
TOLLGATE = os.environ.get("TOLLGATE", "localhost:8081")
REDIS = os.environ.get("REDIS", "redis://127.0.0.1:6379")
LEASES = os.environ.get("LEASES") == "1"
KEYS = [str(key) for key in range(int(os.environ.get("KEYS", "1")))]
LIMIT = parse("1000000000/day")


def make_app(path: str) -> FastAPI:
    app = FastAPI()

    @app.get(path, response_class=PlainTextResponse)
    async def hello() -> str:
        return "hello"

    return app


def make_peer() -> FastAPI:
    app = FastAPI()
    limiter = FixedWindowRateLimiter(RedisStorage(f"async+{REDIS}", implementation="redispy"))

    @app.get("/peer", response_class=PlainTextResponse)
    async def hello() -> str:
        if not await limiter.hit(LIMIT, random.choice(KEYS)):
            raise HTTPException(429)
        return "hello"

    return app


class ConstantHeaders:
    """Sends the headers of tollgate's middleware, and limits nothing."""

    _HEADERS = tuple(
        (f"ratelimit-{name}".encode(), b"1000000000") for name in ("limit", "remaining", "reset")
    )

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Bench:
    """Chooses an application by its path, so that no route has the middleware of another."""

    def __init__(self) -> None:
        self._client = aio.Client(TOLLGATE, domain="bench", denial_cache=0, leases=LEASES)
        limited = make_app("/tollgate")
        limited.add_middleware(
            TollgateMiddleware,
            client=self._client,
            descriptors=[[Function("key", lambda _: random.choice(KEYS))]],
        )
        headers = make_app("/headers")
        headers.add_middleware(ConstantHeaders)
        self._apps = {"/headers": headers, "/tollgate": limited, "/peer": make_peer()}
        self._bare = make_app("/bare")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._client.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self._apps.get(scope["path"], self._bare)(scope, receive, send)


class AnnouncingServer(uvicorn.Server):
    """Says when it listens."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"listening on 127.0.0.1:{port}", flush=True)


if __name__ == "__main__":
    config = uvicorn.Config(
        Bench(), host="127.0.0.1", port=PORT, log_level="warning", access_log=False, lifespan="on"
    )
    AnnouncingServer(config).run()
