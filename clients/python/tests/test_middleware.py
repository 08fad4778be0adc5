"""Tests of each middleware with its real framework, on a real socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import fastapi
import flask
import grpc
import grpc.aio
import pytest
import uvicorn
import websockets.asyncio.client
import websockets.exceptions
import werkzeug.serving
from google.rpc import error_details_pb2, status_pb2

from tests.service import Tollgate, wait_for
from tollgate_limits import Client, Decision, aio, http_refusal
from tollgate_limits.asgi import TollgateMiddleware as AsgiMiddleware
from tollgate_limits.descriptors import (
    Function,
    RemoteAddress,
    RequestHeader,
    RequestPath,
    RequestView,
    Value,
)
from tollgate_limits.fastapi import RateLimit
from tollgate_limits.grpc_aio import TollgateInterceptor
from tollgate_limits.wsgi import TollgateMiddleware as WsgiMiddleware

FRAMEWORKS = ["asgi", "wsgi"]
BY_ADDRESS = [[RemoteAddress("remote_address")]]
NOTHING: Any = None


@contextmanager
def running_asgi(app: Any) -> Iterator[int]:
    """An application on uvicorn. The value is its port."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", proxy_headers=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def asgi_server(address: str, client_options: dict[str, Any], **options: Any) -> Iterator[int]:
    """FastAPI on uvicorn. The value is its port."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await client.close()

    client = aio.Client(address, domain="edge", deadline=5, **client_options)
    app = fastapi.FastAPI(lifespan=lifespan)
    app.add_middleware(AsgiMiddleware, client=client, **options)

    @app.get("/missing")
    async def missing() -> str:
        raise fastapi.HTTPException(404)

    @app.get("/broken")
    async def broken() -> str:
        raise RuntimeError("this failure is part of the test")

    @app.get("/handler")
    async def handler() -> fastapi.Response:
        decision = await client.check([{"remote_address": "handler"}], hits=6)
        refusal = http_refusal(decision, headers=["x-ratelimit"], body="slow down")
        assert refusal is not None
        return fastapi.Response(refusal.body, refusal.status, dict(refusal.headers))

    @app.get("/{rest:path}", response_class=fastapi.responses.PlainTextResponse)
    async def hello(rest: str) -> str:
        return "hello"

    @app.websocket("/socket")
    async def socket(one: fastapi.WebSocket) -> None:
        await one.accept()
        await one.send_text("hello")
        await one.close()

    with running_asgi(app) as port:
        yield port


@contextmanager
def fastapi_server(address: str, client_options: dict[str, Any], **options: Any) -> Iterator[int]:
    """FastAPI with a dependency at one route, and decorators at others. The value is its port."""
    client = aio.Client(address, domain="edge", deadline=5, **client_options)
    limit = RateLimit(client, **options)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await client.close()

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.get("/depends")
    async def depends(decision: Decision = fastapi.Depends(limit)) -> int | None:
        return decision.remaining

    @app.get("/decorated/{name}")
    @limit.route
    async def decorated(name: str, times: int = 1) -> str:
        return name * times

    @app.get("/twice")
    @limit.route
    @limit.route
    def twice(request: fastapi.Request) -> str:
        return request.url.path

    @app.get("/free")
    async def free() -> str:
        return "free"

    with running_asgi(app) as port:
        yield port


@contextmanager
def wsgi_server(address: str, client_options: dict[str, Any], **options: Any) -> Iterator[int]:
    """Flask on Werkzeug's server. The value is its port."""
    app = flask.Flask("test")

    @app.get("/missing")
    def missing() -> str:
        flask.abort(404)

    @app.get("/broken")
    def broken() -> str:
        raise RuntimeError("this failure is part of the test")

    @app.get("/handler")
    def handler() -> flask.Response:
        decision = client.check([{"remote_address": "handler"}], hits=6)
        refusal = http_refusal(decision, headers=["x-ratelimit"], body="slow down")
        assert refusal is not None
        return flask.Response(refusal.body, refusal.status, refusal.headers)

    @app.get("/<path:rest>")
    @app.get("/")
    def hello(rest: str = "") -> str:
        return "hello"

    with Client(address, domain="edge", deadline=5, **client_options) as client:
        limited = WsgiMiddleware(app.wsgi_app, client=client, **options)
        server = werkzeug.serving.make_server("127.0.0.1", 0, limited, threaded=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


@contextmanager
def serve(
    framework: str, address: str, client_options: dict[str, Any] | None = None, **options: Any
) -> Iterator[Callable[..., tuple[int, dict[str, str], str]]]:
    """A function that sends a request, and returns status, headers in lower case, and body."""
    make = {"asgi": asgi_server, "wsgi": wsgi_server, "fastapi": fastapi_server}[framework]
    with make(address, client_options or {}, **options) as port:

        def get(
            path: str = "/", method: str = "GET", headers: dict[str, str] | None = None
        ) -> tuple[int, dict[str, str], str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request(method, path, headers=headers or {})
                response = connection.getresponse()
                body = response.read().decode()
            finally:
                connection.close()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, body

        yield get


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_sixth_request_is_refused(tollgate: Tollgate, framework: str) -> None:
    with serve(framework, tollgate.address, descriptors=BY_ADDRESS) as get:
        for remaining in (4, 3, 2, 1, 0):
            status, headers, body = get()
            assert (status, body) == (200, "hello")
            assert headers["ratelimit-limit"] == "5"
            assert headers["ratelimit-remaining"] == str(remaining)
            assert 1 <= int(headers["ratelimit-reset"]) <= 60
            assert "retry-after" not in headers
        status, headers, body = get()
        assert (status, body) == (429, "Too Many Requests")
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert headers["ratelimit-remaining"] == "0"
        assert 1 <= int(headers["retry-after"]) <= 60
        status, headers, body = get(method="HEAD")
        assert (status, body) == (429, "")
        assert headers["content-length"] == "17"


def is_left(tollgate: Tollgate, hits: int) -> bool:
    """Whether so many hits remain for the clients of this machine."""
    with Client(tollgate.address, domain="edge", deadline=5) as client:
        return client.peek([{"remote_address": "127.0.0.1"}], hits=0).remaining == hits


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("count", ["failed", "successful"])
def test_only_failed_or_successful_requests_are_counted(
    tollgate: Tollgate, framework: str, count: str
) -> None:
    with serve(framework, tollgate.address, descriptors=BY_ADDRESS, count=count) as get:
        counted, free = ["/missing", "/broken"], ["/"]
        if count == "successful":
            counted, free = free, counted
        statuses = {"/": 200, "/missing": 404, "/broken": 500}
        for left in (4, 3, 2, 1, 0):
            for path in free * 3:
                assert get(path)[0] == statuses[path]
            path = counted[left % len(counted)]
            assert get(path)[0] == statuses[path]
            wait_for(partial(is_left, tollgate, left))
        for path in ("/", "/missing"):
            status, headers, _ = get(path)
            assert (status, headers["ratelimit-remaining"]) == (429, "0")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_handler_writes_the_refusal(tollgate: Tollgate, framework: str) -> None:
    with serve(framework, tollgate.address, descriptors=[[Value("large", "x")]]) as get:
        status, headers, body = get("/handler")
    assert (status, body, headers["content-type"]) == (
        429,
        "slow down",
        "text/plain; charset=utf-8",
    )
    assert headers["x-ratelimit-limit"] == "5"


@pytest.mark.parametrize(
    "make",
    [
        lambda options: AsgiMiddleware(NOTHING, client=NOTHING, **options),
        lambda options: WsgiMiddleware(NOTHING, client=NOTHING, **options),
        lambda options: RateLimit(NOTHING, **options),
        lambda options: TollgateInterceptor(NOTHING, **options),
    ],
)
def test_a_wrong_option_is_refused(make: Callable[[dict[str, Any]], object]) -> None:
    make({"descriptors": BY_ADDRESS})
    with pytest.raises(TypeError, match=r"unknown options \['stauts'\]"):
        make({"descriptors": BY_ADDRESS, "stauts": 403})
    with pytest.raises((TypeError, ValueError), match="count"):
        make({"descriptors": BY_ADDRESS, "count": "most"})


def test_fastapi_limits_single_routes(tollgate: Tollgate) -> None:
    by_path = [[RemoteAddress("remote_address")]]
    with serve("fastapi", tollgate.address, descriptors=by_path) as get:
        status, headers, body = get("/depends")
        assert (status, body, headers["ratelimit-remaining"]) == (200, "4", "4")
        status, headers, body = get("/decorated/ann?times=2")
        assert (status, body, headers["ratelimit-remaining"]) == (200, '"annann"', "3")
        assert get("/decorated/ann?times=many")[0] == 422
        status, headers, body = get("/twice")
        assert (status, body, headers["ratelimit-remaining"]) == (200, '"/twice"', "1")
        for _ in range(10):
            assert get("/free")[0] == 200
            get("/depends")
        for path in ("/depends", "/decorated/ann"):
            status, headers, body = get(path)
            assert (status, json.loads(body)) == (429, {"detail": "Too Many Requests"})
            assert headers["content-type"] == "application/json"
            assert headers["ratelimit-remaining"] == "0"
            assert 1 <= int(headers["retry-after"]) <= 60


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_trusted_proxies(tollgate: Tollgate, framework: str) -> None:
    with serve(
        framework, tollgate.address, descriptors=BY_ADDRESS, trusted_proxies=["127.0.0.0/8"]
    ) as get:
        for address, expected in (("192.0.2.1", 429), ("192.0.2.2", 200)):
            for _ in range(5):
                assert get(headers={"X-Forwarded-For": "x, 192.0.2.1"})[0] in (200, 429)
            assert get(headers={"X-Forwarded-For": f"x, {address}"})[0] == expected


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_request_is(tollgate: Tollgate, framework: str) -> None:
    seen: list[tuple[RequestView, Decision]] = []
    with serve(
        framework,
        tollgate.address,
        descriptors=[[RequestPath("large"), RequestHeader("tag", "X-Tag")], [Value("large", "x")]],
        hits=lambda request: 3 if request.header("x-tag") else 1,
        skip=lambda request: request.path == "/skipped",
        skip_paths=["/healthz", "/assets/{rest...}"],
        on_decision=lambda request, decision: seen.append((request, decision)),
        headers=["ratelimit", "x-ratelimit"],
    ) as get:
        for path in ("/skipped", "/healthz?full", "/assets/a/b"):
            status, headers, _ = get(path)
            assert status == 200
            assert "ratelimit-limit" not in headers
        _, headers, _ = get("/a%2Fb/%C3%BC?x=1", headers={"x-TAG": "t"})
        assert headers["x-ratelimit-remaining"] == headers["ratelimit-remaining"] == "999999997"
    [(request, decision)] = seen
    assert (request.method, request.path) == ("GET", "/a%2Fb/%C3%BC")
    assert request.header("x-tag") == "t"
    assert request.peer.startswith("127.0.0.1")
    assert decision.source == "server"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_shadow(tollgate: Tollgate, framework: str) -> None:
    seen: list[bool] = []
    with serve(
        framework,
        tollgate.address,
        descriptors=BY_ADDRESS,
        shadow=True,
        on_decision=lambda _, decision: seen.append(decision.allowed),
    ) as get:
        for _ in range(6):
            status, headers, _ = get()
            assert status == 200
            assert "ratelimit-limit" not in headers
    assert seen == [True] * 5 + [False]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_functions_that_fail(tollgate: Tollgate, framework: str) -> None:
    def fail(*_: Any) -> str:
        raise RuntimeError("this failure is part of the test")

    with serve(framework, tollgate.address, descriptors=BY_ADDRESS, on_decision=fail) as get:
        assert get()[0] == 200
    failing = [[Function("user", fail)]]
    with serve(framework, tollgate.address, descriptors=failing) as get:
        assert get()[0] == 500


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_error_deny(tollgate: Tollgate, framework: str) -> None:
    tollgate.kill()
    with serve(framework, tollgate.address, {"on_error": "deny"}, descriptors=BY_ADDRESS) as get:
        status, headers, body = get()
        assert (status, body, headers["retry-after"]) == (503, "Service Unavailable", "1")
        assert "ratelimit-limit" not in headers


def test_websockets(tollgate: Tollgate) -> None:
    async def connect(port: int) -> str:
        url = f"ws://127.0.0.1:{port}/socket"
        async with websockets.asyncio.client.connect(url) as socket:
            return str(await socket.recv())

    with asgi_server(tollgate.address, {}, descriptors=BY_ADDRESS) as port:
        for _ in range(5):
            assert asyncio.run(connect(port)) == "hello"
        with pytest.raises(websockets.exceptions.InvalidStatus) as error:
            asyncio.run(connect(port))
    assert error.value.response.status_code == 429
    assert error.value.response.headers["RateLimit-Limit"] == "5"


# --- grpc.aio


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


class Handlers(grpc.GenericRpcHandler):
    """Methods of all four kinds, and one of each way to send metadata."""

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]

        async def unary(request: Any, context: Any) -> Any:
            return ["hello"]

        async def own_metadata(request: Any, context: Any) -> Any:
            await context.send_initial_metadata((("own", "yes"),))
            return ["hello"]

        async def aborting(request: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.DATA_LOSS, "part of the test")

        async def generating(request: Any, context: Any) -> Any:
            for _ in range(3):
                yield ["hello"]

        async def writing(request: Any, context: Any) -> Any:
            await context.write(["hello"])
            await context.write(["hello"])

        async def consuming(requests: Any, context: Any) -> Any:
            return [request async for request in requests]

        async def echoing(requests: Any, context: Any) -> Any:
            async for request in requests:
                yield request

        def not_async(request: Any, context: Any) -> Any:
            return ["hello"]

        kinds: dict[str, tuple[Any, Any]] = {
            "unary": (grpc.unary_unary_rpc_method_handler, unary),
            "own_metadata": (grpc.unary_unary_rpc_method_handler, own_metadata),
            "aborting": (grpc.unary_unary_rpc_method_handler, aborting),
            "not_async": (grpc.unary_unary_rpc_method_handler, not_async),
            "generating": (grpc.unary_stream_rpc_method_handler, generating),
            "writing": (grpc.unary_stream_rpc_method_handler, writing),
            "consuming": (grpc.stream_unary_rpc_method_handler, consuming),
            "echoing": (grpc.stream_stream_rpc_method_handler, echoing),
        }
        if name not in kinds:
            return None
        make, function = kinds[name]
        options: dict[str, Any] = {
            "request_deserializer": json.loads,
            "response_serializer": encode,
        }
        return make(function, **options)


def run_grpc(
    test: Callable[[Any], Any], address: str, on_error: Any = "allow", **options: Any
) -> None:
    """Runs a test with a channel to a limited server."""

    async def run() -> None:
        async with aio.Client(address, domain="edge", deadline=5, on_error=on_error) as client:
            server = grpc.aio.server(interceptors=[TollgateInterceptor(client, **options)])
            server.add_generic_rpc_handlers((Handlers(),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    await test(channel)
            finally:
                await server.stop(None)

    asyncio.run(run())


def call(channel: Any, name: str, kind: str = "unary_unary", requests: Any = None) -> Any:
    make = getattr(channel, kind)(f"/test.Hello/{name}", encode, json.loads)
    return (
        make(["x"])
        if kind.startswith("unary")
        else make(iter([["a"], ["b"]] if requests is None else requests))
    )


def test_the_sixth_call_is_refused(tollgate: Tollgate) -> None:
    async def test(channel: Any) -> None:
        kinds = [
            ("unary", "unary_unary", ["hello"]),
            ("generating", "unary_stream", [["hello"]] * 3),
            ("writing", "unary_stream", [["hello"]] * 2),
            ("consuming", "stream_unary", [["a"], ["b"]]),
            ("echoing", "stream_stream", [["a"], ["b"]]),
        ]
        for position, (name, kind, expected) in enumerate(kinds):
            one = call(channel, name, kind)
            if kind.endswith("stream"):
                assert [message async for message in one] == expected
            else:
                assert await one == expected
            metadata = dict(await one.initial_metadata())
            assert metadata["ratelimit-limit"] == "5"
            assert metadata["ratelimit-remaining"] == str(4 - position)
        for name, kind, _ in kinds:
            # The client of grpc.aio can end with INTERNAL if it writes to a call that has ended.
            one = call(channel, name, kind, requests=[])
            with pytest.raises(grpc.aio.AioRpcError) as error:
                _ = [message async for message in one] if kind.endswith("stream") else await one
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.value.details() == "rate limited"
            trailers: Any = dict(error.value.trailing_metadata())
            assert trailers["ratelimit-remaining"] == "0"
            assert "ratelimit-limit" not in dict(error.value.initial_metadata())
            status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
            assert (status.code, status.message) == (8, "rate limited")
            retry = error_details_pb2.RetryInfo()
            assert status.details[0].Unpack(retry)
            assert 0 < retry.retry_delay.ToMilliseconds() <= 60_000

    run_grpc(test, tollgate.address, descriptors=BY_ADDRESS)


@pytest.mark.parametrize("count", ["failed", "successful"])
def test_only_failed_or_successful_calls_are_counted(tollgate: Tollgate, count: str) -> None:
    counted, free = ("aborting", "unary") if count == "failed" else ("unary", "aborting")

    async def status_of(channel: Any, name: str) -> grpc.StatusCode:
        one = call(channel, name)
        with suppress(grpc.aio.AioRpcError):
            await one
        code: grpc.StatusCode = await one.code()
        return code

    async def test(channel: Any) -> None:
        refused = grpc.StatusCode.RESOURCE_EXHAUSTED
        for left in (4, 3, 2, 1, 0):
            assert await status_of(channel, free) != refused
            assert await status_of(channel, counted) != refused
            await asyncio.to_thread(wait_for, partial(is_left, tollgate, left))
        assert await status_of(channel, free) == refused

    run_grpc(test, tollgate.address, descriptors=BY_ADDRESS, count=count)


def test_metadata_of_handlers(tollgate: Tollgate) -> None:
    async def test(channel: Any) -> None:
        one = call(channel, "own_metadata")
        assert await one == ["hello"]
        metadata = dict(await one.initial_metadata())
        assert (metadata["own"], metadata["ratelimit-limit"]) == ("yes", "1000000000")

        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, "aborting")
        assert error.value.code() is grpc.StatusCode.DATA_LOSS
        assert dict(error.value.initial_metadata())["ratelimit-limit"] == "1000000000"

        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, "not_async")
        assert error.value.code() is grpc.StatusCode.UNKNOWN

        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, "missing")
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED

    seen: list[RequestView] = []
    run_grpc(
        test,
        tollgate.address,
        descriptors=[[Value("large", "x")]],
        on_decision=lambda request, _: seen.append(request),
    )
    assert (seen[0].method, seen[0].path) == ("POST", "/test.Hello/own_metadata")
    assert seen[0].header("user-agent")


def test_grpc_on_error_deny(tollgate: Tollgate) -> None:
    tollgate.kill()

    async def test(channel: Any) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, "unary")
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error.value.details() == "rate limit service unavailable"
        trailers: Any = dict(error.value.trailing_metadata())
        status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 1_000

    run_grpc(test, tollgate.address, "deny", descriptors=BY_ADDRESS)
