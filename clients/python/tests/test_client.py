"""Tests of both clients with a scripted server: bounds, concurrency, cancellation and `close`."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.flavours import FLAVOURS, make_client
from tests.scripted import Clock, ScriptedServer
from tests.service import wait_for
from tollgate_limits import (
    BreakerOptions,
    Client,
    ClosedError,
    Decision,
    Descriptor,
    Keepalive,
    LocalBucket,
    ServiceError,
    Tls,
    aio,
)
from tollgate_limits._breaker import Breaker
from tollgate_limits._channels import Rotation
from tollgate_limits._local_buckets import LocalBuckets
from tollgate_limits._proto import rate_limits_pb2 as api

ANN = [{"user": "ann"}]
OK = api.CheckResponse(verdict=api.VERDICT_OK).SerializeToString()
REFUSED = api.CheckResponse(verdict=api.VERDICT_OVER_LIMIT).SerializeToString()


def unavailable(path: str, request: bytes, context: Any) -> bytes:
    context.abort(grpc.StatusCode.UNAVAILABLE, "scripted")
    raise AssertionError


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_denial_cache_makes_no_call(flavour: str) -> None:
    with (
        ScriptedServer(lambda *_: REFUSED) as server,
        make_client(flavour, server.address, domain="edge", deadline=5, clock=Clock()) as client,
    ):
        assert not any(client.check(ANN).allowed for _ in range(1_000))
        assert len(server.calls) == 1


def test_the_denial_cache_is_bounded() -> None:
    with Client("localhost:1", domain="edge", denial_cache=500, clock=Clock()) as client:
        cache = client._core.denials
        for number in range(100_000):
            cache.put(("edge", number), (1,), Decision(False, "server"), 0)
        assert len(cache) == 500
        assert cache.get(("edge", 99_999), (1,), 0) is not None
        assert cache.get(("edge", 0), (1,), 0) is None


def test_local_buckets_are_bounded() -> None:
    buckets = LocalBuckets(LocalBucket(1, 1), bound=500)
    for number in range(100_000):
        assert buckets.take(number, 1, 0) == (True, None)
    assert len(buckets) == 500
    assert buckets.take(99_999, 1, 0) == (False, 1.0)


def test_a_local_bucket_passes_after_its_wait() -> None:
    buckets = LocalBuckets(LocalBucket(per_second=0.3, burst=1))
    assert buckets.take("x", 1, 0) == (True, None)
    passes, wait = buckets.take("x", 1, 0)
    assert (passes, wait) == (False, 3.333334)
    assert buckets.take("x", 1, 3_333_333_000)[0] is False
    assert buckets.take("x", 1, 3_333_334_000)[0] is True


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_call_probes_a_half_open_breaker(flavour: str) -> None:
    clock = Clock()
    options: dict[str, Any] = {
        "domain": "edge",
        "deadline": 10,
        "clock": clock,
        "breaker": BreakerOptions(1, 1.0),
    }
    release = threading.Event()

    def answer_later(path: str, request: bytes, context: Any) -> bytes:
        release.wait(10)
        return OK

    async def probe_aio(server: ScriptedServer) -> list[str]:
        async with aio.Client(server.address, **options) as client:
            await client.check(ANN)
            start()
            calls = [asyncio.ensure_future(client.check(ANN)) for _ in range(50)]
            while sum(call.done() for call in calls) < 49:
                await asyncio.sleep(0.01)
            release.set()
            return [(await call).source for call in calls]

    def start() -> None:
        server.calls.clear()
        server.answer = answer_later
        clock.advance(1_000)

    with ScriptedServer(unavailable) as server:
        if flavour == "asyncio":
            sources = asyncio.run(probe_aio(server))
        else:
            with Client(server.address, **options) as client, ThreadPoolExecutor(50) as pool:
                client.check(ANN)
                start()
                calls = [pool.submit(client.check, ANN) for _ in range(50)]
                wait_for(lambda: sum(call.done() for call in calls) == 49)
                release.set()
                sources = [call.result().source for call in calls]
        assert sorted(sources) == ["allow"] * 49 + ["server"]
        assert len(server.calls) == 1


def test_late_results_do_not_change_an_open_breaker() -> None:
    breaker = Breaker(BreakerOptions(1, 1.0))
    late, early = breaker.enter(0), breaker.enter(0)
    failure = ServiceError("UNAVAILABLE", "scripted")
    breaker.failed(early, 0, failure)
    breaker.succeeded(late)
    with pytest.raises(Exception, match="breaker is open"):
        breaker.enter(999_999_999)
    probe = breaker.enter(1_000_000_000)
    breaker.failed(late, 1_000_000_000, failure)
    with pytest.raises(Exception, match="breaker is open"):
        breaker.enter(1_000_000_000)
    breaker.succeeded(probe)
    breaker.enter(1_000_000_000)


def test_a_cancelled_call_is_no_decision() -> None:
    clock = Clock()

    async def run(server: ScriptedServer) -> None:
        client = aio.Client(
            server.address,
            domain="edge",
            deadline=30,
            clock=clock,
            breaker=BreakerOptions(1, 1.0),
        )
        async with client:
            server.answer = unavailable
            await client.check(ANN)
            clock.advance(1_000)
            server.answer = server.hang
            server.calls.clear()
            probe = asyncio.ensure_future(client.check(ANN))
            while not server.calls:
                await asyncio.sleep(0.01)
            assert (await client.check(ANN)).source == "allow"
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
            server.answer = lambda *_: OK
            assert (await client.check(ANN)).source == "server"
            assert len(server.calls) == 2

            server.answer = server.hang
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.check(ANN), 0.1)

    with ScriptedServer() as server:
        asyncio.run(run(server))


def test_an_interrupted_probe_gives_its_place_back() -> None:
    """A thread is cancelled by an exception such as KeyboardInterrupt."""
    clock = Clock()
    with ScriptedServer(unavailable) as server:
        options: dict[str, Any] = {"domain": "edge", "deadline": 5, "clock": clock}
        with Client(server.address, breaker=BreakerOptions(1, 1.0), **options) as client:
            client.check(ANN)
            clock.advance(1_000)
            answer = client._channels.answer

            def interrupt(rpc: Any) -> Any:
                raise KeyboardInterrupt

            client._channels.answer = interrupt  # type: ignore[method-assign, assignment]
            with pytest.raises(KeyboardInterrupt):
                client.check(ANN)
            client._channels.answer = answer  # type: ignore[method-assign]
            server.answer = lambda *_: OK
            assert client.check(ANN).source == "server"


@pytest.mark.parametrize("addresses", [1, 2])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_close_ends_every_thread(flavour: str, addresses: int) -> None:
    with ScriptedServer(lambda *_: OK) as server:
        before = set(threading.enumerate())
        with make_client(
            flavour, *[server.address] * addresses, domain="edge", deadline=5
        ) as client:
            assert client.check(ANN).source == "server"
            client.close()
            client.close()
            calls: list[Callable[[], object]] = [
                lambda: client.check(ANN),
                lambda: client.peek(ANN),
                lambda: client.reserve(ANN),
            ]
            for call in calls:
                with pytest.raises(ClosedError, match="closed"):
                    call()
        gc.collect()

        def only_old_threads() -> bool:
            pool = "ThreadPoolExecutor"  # the scripted server's
            return not [
                thread for thread in set(threading.enumerate()) - before if pool not in thread.name
            ]

        wait_for(only_old_threads)


def test_close_lets_asyncio_calls_end() -> None:
    is_closing = threading.Event()

    def answer(path: str, request: bytes, context: Any) -> bytes:
        is_closing.wait(30)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the answer")
        raise AssertionError

    async def run(server: ScriptedServer) -> None:
        client = aio.Client(server.address, domain="edge", deadline=30)
        call = asyncio.ensure_future(client.check(ANN))
        while not server.calls and not call.done():
            await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        is_closing.set()
        await closing
        decision = await call
        assert decision.error is not None
        assert decision.error.status == "FAILED_PRECONDITION"

    with ScriptedServer(answer) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_check_that_close_ends_logs_nothing(
    flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer() as server, make_client(flavour, server.address, domain="edge") as client:

        def answer(path: str, request: bytes, context: Any) -> bytes:
            client._core.closed = True
            context.abort(grpc.StatusCode.CANCELLED, "the end")
            raise AssertionError

        server.answer = answer
        assert client.check(ANN).error is not None
    assert caplog.records == []


def test_ready_of_a_client_that_is_closed_meanwhile() -> None:
    async def run() -> bool:
        client = aio.Client("127.0.0.1:1", domain="edge")
        ready = asyncio.ensure_future(client.ready(30))
        await asyncio.sleep(0)
        await client.close()
        return await ready

    assert asyncio.run(run()) is False


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_logger_that_fails_does_not_fail_a_check(flavour: str) -> None:
    logged = []

    def failing(record: logging.LogRecord) -> bool:
        logged.append(record)
        raise OSError("the disk is full")

    logger = logging.getLogger("tollgate_limits")
    logger.addFilter(failing)
    try:
        with make_client(flavour, "127.0.0.1:1", domain="edge", deadline=1) as client:
            assert client.check(ANN).source == "allow"
    finally:
        logger.removeFilter(failing)
    assert len(logged) == 1


def test_an_unused_client_can_be_closed() -> None:
    Client("localhost:8081", domain="edge").close()
    asyncio.run(aio.Client("localhost:8081", domain="edge").close())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_listens(flavour: str) -> None:
    with ScriptedServer() as server:
        address = server.address
    with make_client(flavour, address, domain="edge", deadline=1) as client:
        decision = client.check(ANN)
        assert decision.source == "allow"
        assert decision.error.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


@pytest.mark.parametrize(
    "options",
    [
        {"deadline": 0},
        {"deadline": float("inf")},
        {"domain": ""},
        {"protocol": "http"},
        {"on_error": "crash"},
        {"denial_cache": -1},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Client(**options)
    with pytest.raises(ValueError):  # noqa: PT011
        aio.Client(**options)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("deadline", "100ms", "a number of seconds"),
        ("tls", True, "a Tls or None"),
        ("keepalive", 30, "a Keepalive"),
        ("local", 10, "a LocalBucket"),
        ("breaker", 5, "a BreakerOptions"),
        ("denial_cache", "off", "a number of entries"),
        ("leases", "off", "True, False or None"),
        ("http_proxy", "no", "True or False"),
    ],
)
def test_options_of_a_wrong_type(name: str, value: object, words: str) -> None:
    options: dict[str, Any] = {name: value}
    for client in (Client, aio.Client):
        with pytest.raises(TypeError, match=f"^{name} must be {words}, not {value!r}$"):
            client(**options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Client("localhost"),
        lambda: Client("localhost:0"),
        lambda: Client(":8081"),
        lambda: LocalBucket(per_second=0),
        lambda: LocalBucket(burst=0),
        lambda: BreakerOptions(failures=0),
        lambda: BreakerOptions(open_time=0),
        lambda: Keepalive(interval=0),
        lambda: Tls(cert_file="client.pem"),
        lambda: Descriptor(()),
        lambda: Descriptor((("a", "b"),), -1),
    ],
)
def test_wrong_values(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        make()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_wrong_arguments(flavour: str) -> None:
    with make_client(flavour, "localhost:1") as client:
        with pytest.raises(ValueError, match="domain"):
            client.check(ANN)
        with pytest.raises(TypeError, match="pair"):
            client.check([("user", "ann")], domain="edge")
        # A set has no order of key and value.
        with pytest.raises(TypeError, match="pair"):
            client.check([[{"user", "ann"}]], domain="edge")
        with pytest.raises(TypeError, match="list"):
            client.check({"user": "ann"}, domain="edge")
        with pytest.raises(ValueError, match="hits"):
            client.check(ANN, hits=2**53, domain="edge")
        with pytest.raises(ValueError, match="expires"):
            client.reserve(ANN, expires=86_401, domain="edge")
        with pytest.raises(ValueError, match="256 bytes"):
            client.reserve(ANN, reservation="x" * 257, domain="edge")


def test_rotation() -> None:
    ready, failed = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
    idle = grpc.ChannelConnectivity.IDLE
    rotation = Rotation(3)
    assert {rotation.next([ready, idle, ready]) for _ in range(6)} == {0, 2}
    assert {rotation.next([failed, idle, failed]) for _ in range(6)} == {1}
    assert {rotation.next([failed, failed, failed]) for _ in range(6)} == {0, 1, 2}
