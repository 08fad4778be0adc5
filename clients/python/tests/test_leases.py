"""Tests of leases beyond the vectors: concurrency, bounds, rounds, and the end of a process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.flavours import FLAVOURS, make_client
from tests.scripted import Clock, ScriptedServer
from tests.service import Tollgate, wait_for
from tollgate_limits import Client, Decision, _leases, aio
from tollgate_limits._proto import rate_limits_pb2 as api

ANN = [{"user": "ann"}]
SOURCE = Path(__file__).resolve().parents[1] / "src"


class Service:
    """Grants each lease so many hits, and allows checks. Calls wait for `gate`."""

    def __init__(self, granted: int, expires_ms: int = 60_000) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.returned: list[api.ReturnRequest] = []
        self._granted = granted
        self._expires_ms = expires_ms

    def __call__(self, path: str, request: bytes, context: Any) -> bytes:
        self.gate.wait(10)
        if path.endswith("/Lease"):
            answer = api.LeaseResponse(verdict=api.VERDICT_OK, lease="l", granted=self._granted)
            answer.expires.FromMilliseconds(self._expires_ms)
            return answer.SerializeToString()
        if path.endswith("/Batch"):
            calls = api.BatchRequest.FromString(request).calls
            self.returned += [call.give_back for call in calls]
            return b""
        return api.CheckResponse(verdict=api.VERDICT_OK).SerializeToString()


def methods(server: ScriptedServer) -> Counter[str]:
    return Counter(method for method, _ in server.calls)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_checks_wait_for_one_lease(flavour: str) -> None:
    service = Service(granted=30)
    options: dict[str, Any] = {"domain": "edge", "deadline": 10, "leases": True, "clock": Clock()}

    async def run_aio() -> list[Decision]:
        async with aio.Client(server.address, **options) as client:
            await client.check(ANN)
            service.gate.clear()
            calls = [asyncio.ensure_future(client.check(ANN)) for _ in range(50)]
            while methods(server)["Lease"] == 0:
                await asyncio.sleep(0.01)
            calls.pop().cancel()
            service.gate.set()
            return list(await asyncio.gather(*calls))

    with ScriptedServer(service) as server:
        if flavour == "asyncio":
            decisions = asyncio.run(asyncio.wait_for(run_aio(), 30))
        else:
            with Client(server.address, **options) as client, ThreadPoolExecutor(49) as pool:
                client.check(ANN)
                service.gate.clear()
                calls = [pool.submit(client.check, ANN) for _ in range(49)]
                wait_for(lambda: methods(server)["Lease"] == 1)
                service.gate.set()
                decisions = [call.result() for call in calls]
    sources = Counter(decision.source for decision in decisions)
    # Those that find no hit are sent. A late one may find those of the next lease.
    assert sources["lease"] >= 30
    assert sources["server"] == methods(server)["Check"] - 1
    assert sum(sources.values()) == 49


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_cancelled_lease_is_asked_for_again(has_begun: bool) -> None:
    service, clock = Service(granted=16), Clock()

    async def run_aio() -> None:
        options: dict[str, Any] = {"domain": "edge", "deadline": 5, "leases": True}
        async with aio.Client(server.address, clock=clock, **options) as client:
            await client.check(ANN)
            service.gate.clear()
            check = asyncio.ensure_future(client.check(ANN))
            while not client._background._tasks or (has_begun and methods(server)["Lease"] == 0):
                await asyncio.sleep(0)
            for task in [check, *client._background._tasks]:
                task.cancel()
            await asyncio.wait([check])
            service.gate.set()
            assert (await client.check(ANN)).source == "server"
            clock.advance(250)
            assert (await client.check(ANN)).source == "lease"

    with ScriptedServer(service) as server:
        asyncio.run(asyncio.wait_for(run_aio(), 10))


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_leases, "MAX_KEYS", 100)
    with (
        ScriptedServer(Service(granted=16)) as server,
        Client(server.address, domain="edge", deadline=5, leases=True, clock=Clock()) as client,
    ):
        for number in range(101):
            client.check([{"user": str(number)}])
        assert len(client._core.leases) == 100
        assert client.check([{"user": "100"}]).source == "server"
        assert client.check([{"user": "99"}]).source == "lease"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_rounds_give_back_and_end(flavour: str) -> None:
    service, clock = Service(granted=16), Clock()
    options: dict[str, Any] = {"domain": "edge", "deadline": 5, "leases": True, "clock": clock}

    async def run_aio() -> None:
        async with aio.Client(server.address, **options) as client:
            await client.check(ANN)
            assert (await client.check(ANN)).source == "lease"
            clock.advance(1000)
            while not service.returned or client._core.leases.has_rounds:
                await asyncio.sleep(0.01)

    with ScriptedServer(service) as server:
        if flavour == "asyncio":
            asyncio.run(asyncio.wait_for(run_aio(), 10))
        else:
            with Client(server.address, **options) as client:
                client.check(ANN)
                assert client.check(ANN).source == "lease"
                clock.advance(1000)
                wait_for(lambda: len(service.returned) == 1)
                wait_for(
                    lambda: "tollgate-leases" not in {one.name for one in threading.enumerate()}
                )
    [returned] = service.returned
    assert (returned.unused, returned.admitted) == (15, 1)


PROGRAMS = {
    "threads": """
import os, sys
from tollgate_limits import Client
client = Client(sys.argv[1], domain="edge", deadline=5, leases=True, clock=lambda: 0)
client.check([{"user": "ann"}])
assert client.check([{"user": "ann"}]).source == "lease"
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        os._exit(len(client._core.leases))
    assert os.waitpid(child, 0)[1] == 0
""",
    "asyncio": """
import asyncio, sys
from tollgate_limits.aio import Client
async def main():
    global client
    client = Client(sys.argv[1], domain="edge", deadline=5, leases=True, clock=lambda: 0)
    await client.check([{"user": "ann"}])
    assert (await client.check([{"user": "ann"}])).source == "lease"
asyncio.run(main())
""",
}


@pytest.mark.parametrize(
    ("flavour", "way"), [("threads", ""), ("threads", "fork"), ("asyncio", "")]
)
def test_the_end_of_a_process_gives_back(flavour: str, way: str) -> None:
    service = Service(granted=16)
    with ScriptedServer(service) as server:
        command = [sys.executable, "-c", PROGRAMS[flavour], server.address, way]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    [returned] = service.returned
    assert (returned.unused, returned.admitted) == (15, 1)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_clients_with_leases_are_exact(tmp_path: Path, flavour: str) -> None:
    hundred = [{"hundred": "x"}]
    options: dict[str, Any] = {"domain": "edge", "deadline": 10, "on_error": "deny"}

    def check(client: Any) -> list[Decision]:
        return [client.check(hundred) for _ in range(100)]

    with (
        # No lease ends before its hits are used or go back.
        Tollgate(tmp_path, "--lease-age-max-ms", "60000") as tollgate,
        make_client(flavour, tollgate.address, leases=True, clock=Clock(), **options) as one,
        make_client(flavour, tollgate.address, leases=True, clock=Clock(), **options) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        decisions = [one for some in pool.map(check, [one, other]) for one in some]
        one.close()
        other.close()
        allowed = Counter(decision.allowed for decision in decisions)[True]
        assert "lease" in {decision.source for decision in decisions}
        with Client(tollgate.address, **options) as client:
            assert client.peek(hundred).remaining == 100 - allowed
