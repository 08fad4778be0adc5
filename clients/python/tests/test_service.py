"""Tests of both clients with a real tollgate."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flavours import FLAVOURS, make_client
from tests.service import Tollgate, wait_for
from tollgate_limits import (
    BreakerOptions,
    Client,
    Decision,
    Descriptor,
    LocalBucket,
    ServiceError,
    Tls,
    aio,
)

HUNDRED = [{"hundred": "x"}]


def run_many(flavour: str, addresses: list[str], count: int, **options: Any) -> list[Decision]:
    """Decisions of concurrent checks of the same descriptors."""
    if flavour == "threads":
        with Client(*addresses, **options) as client, ThreadPoolExecutor(32) as pool:
            return list(pool.map(lambda _: client.check(HUNDRED), range(count)))

    async def run() -> list[Decision]:
        async with aio.Client(*addresses, **options) as client:
            return await asyncio.gather(*(client.check(HUNDRED) for _ in range(count)))

    return asyncio.run(run())


@pytest.mark.parametrize("protocol", ["tollgate", "envoy"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_concurrent_checks_are_exact(tollgate: Tollgate, flavour: str, protocol: str) -> None:
    decisions = run_many(
        flavour,
        [tollgate.address],
        400,
        domain="edge",
        deadline=10,
        protocol=protocol,
        on_error="deny",
    )
    assert Counter(decision.allowed for decision in decisions) == {True: 100, False: 300}
    assert {decision.source for decision in decisions} <= {"server", "cache"}
    limit = decisions[-1].limits[0]
    assert (limit.requests_per_unit, limit.window) == (100, "1 day")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_unknown_domain_is_an_error_if_it_is_configured(
    tollgate: Tollgate, flavour: str
) -> None:
    with make_client(flavour, tollgate.address, domain="edge", deadline=10) as client:
        assert client.check(HUNDRED, domain="nowhere").no_limit == "unknown_domain"
    with make_client(
        flavour, tollgate.address, domain="edge", deadline=10, unknown_domain="error"
    ) as strict:
        with pytest.raises(ValueError, match='no rules have the domain "nowhere"'):
            strict.check(HUNDRED, domain="nowhere")
        assert strict.check(HUNDRED).no_limit is None


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_calls_rotate_over_connected_addresses(tmp_path: Path, flavour: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        Tollgate(tmp_path / "a") as first,
        Tollgate(tmp_path / "b") as second,
        make_client(
            flavour, first.address, second.address, domain="edge", deadline=2, denial_cache=0
        ) as client,
    ):

        def check_until_both_answer() -> bool:
            for _ in range(10):
                client.check([{"large": "x"}])
            return answered(first) and answered(second)

        wait_for(check_until_both_answer)
        second.kill()
        wait_for(lambda: all(client.check(HUNDRED).source == "server" for _ in range(10)))
        assert {client.check([{"large": "x"}]).source for _ in range(50)} == {"server"}
        second.start()
        wait_for(check_until_both_answer)


def answered(service: Tollgate) -> bool:
    with Client(service.address, domain="edge", deadline=2) as client:
        decision = client.peek([{"large": "x"}])
        assert decision.remaining is not None
        return decision.remaining < 1_000_000_000


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_reservations(tollgate: Tollgate, flavour: str) -> None:
    ann = [{"budget": "ann"}]
    with make_client(flavour, tollgate.address, domain="edge", deadline=5) as client:
        reservation = client.reserve(ann, hits=800, expires=300)
        assert reservation.allowed
        assert reservation.hits == 800
        assert reservation.expires == 300
        assert client.peek(ann).remaining == 9_200
        assert reservation.extend(600).expires == 600
        settled = reservation.commit(120)
        assert (settled.reserved, settled.committed, settled.repeated) == (800, 120, False)
        assert reservation.commit(120).repeated
        reservation.__exit__(None, None, None)
        assert client.peek(ann).remaining == 9_880

        scope = client.reserve(ann, hits=500, reservation="mine")
        assert scope.id == "mine"
        scope.__exit__(None, None, None)
        assert client.peek(ann).remaining == 9_880

        refused = client.reserve(ann, hits=20_000)
        assert not refused.allowed
        assert refused.id is None
        assert refused.commit(1).committed == 0

        unknown = client.reserve(ann, hits=1, expires=0.001)
        time.sleep(0.2)
        with pytest.raises(ServiceError) as error:
            unknown.commit(1)
        assert error.value.status == "NOT_FOUND"
        assert error.value.reason == "UNKNOWN_RESERVATION"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_commit_by_descriptor(tollgate: Tollgate, flavour: str) -> None:
    both = [Descriptor((("budget", "bob"),), 800), Descriptor((("team", "red"),), 8)]
    with make_client(flavour, tollgate.address, domain="edge", deadline=5) as client:
        client.reserve(both).commit([120, 3])
        assert client.peek([{"budget": "bob"}]).remaining == 9_880
        assert client.peek([{"team": "red"}]).remaining == 4_997


def test_scopes(tollgate: Tollgate) -> None:
    with Client(tollgate.address, domain="edge", deadline=5) as client:
        with client.reserve([{"budget": "carl"}], hits=800) as reservation:
            reservation.commit(120)
        with pytest.raises(KeyError), client.reserve([{"budget": "carl"}], hits=800):
            raise KeyError
        assert client.peek([{"budget": "carl"}]).remaining == 9_880

    async def scopes() -> int | None:
        async with aio.Client(tollgate.address, domain="edge", deadline=5) as client:
            async with client.reserve([{"budget": "carl"}], hits=800) as reservation:
                await reservation.commit(120)
            async with await client.reserve([{"budget": "carl"}], hits=800):
                pass
            return (await client.peek([{"budget": "carl"}])).remaining

    assert asyncio.run(scopes()) == 9_760


@pytest.mark.parametrize(
    ("on_error", "sources"),
    [
        ("allow", {(True, "server"), (True, "allow")}),
        ("deny", {(True, "server"), (False, "deny")}),
        ("local", {(True, "server"), (True, "local"), (False, "local")}),
    ],
)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_kill_under_load(
    tollgate: Tollgate, flavour: str, on_error: Any, sources: set[tuple[bool, str]]
) -> None:
    deadline = 0.2
    options: dict[str, Any] = {
        "domain": "edge",
        "deadline": deadline,
        "on_error": on_error,
        "local": LocalBucket(per_second=1, burst=5),
        "breaker": BreakerOptions(5, 0.2),
    }
    decisions: list[Decision] = []
    with load(flavour, tollgate.address, decisions, options):
        wait_for(lambda: any(one.source == "server" for one in decisions))
        tollgate.kill()
        killed = len(decisions)
        wait_for(lambda: {(d.allowed, d.source) for d in decisions[killed:]} >= sources - SERVER)
        tollgate.start()
        started = len(decisions)
        wait_for(lambda: any(one.source == "server" for one in decisions[started + 16 :]))
    assert {(one.allowed, one.source) for one in decisions} == sources
    assert all(one.error is not None for one in decisions if one.source != "server")
    assert [one.elapsed for one in decisions if one.elapsed > deadline + 1] == []


SERVER = {(True, "server")}


@contextmanager
def load(
    flavour: str, address: str, decisions: list[Decision], options: dict[str, Any]
) -> Iterator[None]:
    """Checks by 8 callers until the end of the scope."""
    ended = threading.Event()

    def check(client: Client) -> None:
        while not ended.is_set():
            decisions.append(client.check([{"large": "x"}]))
            time.sleep(0.002)

    async def check_aio(client: aio.Client) -> None:
        while not ended.is_set():
            decisions.append(await client.check([{"large": "x"}]))
            await asyncio.sleep(0.002)

    def run() -> None:
        if flavour == "threads":
            with Client(address, **options) as client, ThreadPoolExecutor(8) as pool:
                for one in [pool.submit(check, client) for _ in range(8)]:
                    one.result()
            return

        async def run_aio() -> None:
            async with aio.Client(address, **options) as client:
                await asyncio.gather(*(check_aio(client) for _ in range(8)))

        asyncio.run(run_aio())

    with ThreadPoolExecutor(1) as runner:
        future = runner.submit(run)
        try:
            yield
        finally:
            ended.set()
        future.result()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_stopped_service_is_left_at_the_deadline(tollgate: Tollgate, flavour: str) -> None:
    options: dict[str, Any] = {"domain": "edge", "deadline": 0.3, "on_error": "deny"}
    with (
        make_client(flavour, tollgate.address, **options) as client,
        make_client(flavour, tollgate.address, **options) as unconnected,
    ):
        wait_for(lambda: bool(client.check([{"large": "x"}]).source == "server"))
        tollgate.stop()
        try:
            for one in (client, unconnected):
                decision = one.check([{"large": "x"}])
                assert decision.source == "deny"
                assert decision.error.status == "DEADLINE_EXCEEDED"
                assert 0.25 < decision.elapsed < 1.3
        finally:
            tollgate.resume()
        wait_for(lambda: bool(client.check([{"large": "x"}]).source == "server"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and a certificate of `tollgate.test` and of a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem"),
        *("-subj", "/CN=test CA", "-days", "2"),
    )
    for name in ("server", "client"):
        openssl(
            *("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr"),
            *("-subj", f"/CN={name}"),
        )
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:tollgate.test\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )
    return folder


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls(tmp_path: Path, certificates: Path, flavour: str) -> None:
    flags = ["--grpc-server-use-tls", "true"]
    flags += ["--grpc-server-tls-cert", str(certificates / "server.pem")]
    flags += ["--grpc-server-tls-key", str(certificates / "server.key")]
    trusted = Tls(ca_file=certificates / "ca.pem", server_name="tollgate.test")
    with Tollgate(tmp_path, *flags) as service:
        assert source(flavour, service, trusted) == "server"
        assert source(flavour, service, Tls(server_name="tollgate.test")) == "deny"
        assert source(flavour, service, Tls(ca_file=certificates / "ca.pem")) == "deny"
        assert source(flavour, service, None) == "deny"
    mutual = Tls(
        ca_file=certificates / "ca.pem",
        cert_file=certificates / "client.pem",
        key_file=certificates / "client.key",
        server_name="tollgate.test",
    )
    flags += ["--grpc-client-tls-cacert", str(certificates / "ca.pem")]
    with Tollgate(tmp_path, *flags) as service:
        assert source(flavour, service, mutual) == "server"
        assert source(flavour, service, trusted) == "deny"


def source(flavour: str, service: Tollgate, tls: Tls | None) -> str:
    options: dict[str, Any] = {"domain": "edge", "deadline": 5, "on_error": "deny", "tls": tls}
    with make_client(flavour, service.address, **options) as client:
        decision: Decision = client.check([{"large": "x"}])
        return decision.source
