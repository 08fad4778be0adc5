"""Both clients behind one blocking interface, so that each test can run with both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tollgate_limits
from tollgate_limits import aio

FLAVOURS = ["threads", "asyncio"]


class AioReservation:
    """`aio.Reservation` for a caller that blocks."""

    def __init__(self, runner: AioClient, reservation: aio.Reservation) -> None:
        self._runner = runner
        self._reservation = reservation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reservation, name)

    def commit(self, hits: Any) -> Any:
        return self._runner.run(self._reservation.commit(hits))

    def release(self) -> Any:
        return self._runner.run(self._reservation.release())

    def extend(self, expires: float) -> Any:
        return self._runner.run(self._reservation.extend(expires))

    def __exit__(self, *exc: Any) -> None:
        self._runner.run(self._reservation.__aexit__(None, None, None))


class AioClient:
    """`aio.Client` for a caller that blocks."""

    def __init__(self, *addresses: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = aio.Client(*addresses, **options)
        self._core = self.client._core

    def run(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def check(self, *arguments: Any, **options: Any) -> Any:
        return self.run(self.client.check(*arguments, **options))

    def _check_request(self, *arguments: Any, **options: Any) -> Any:
        return self.run(self.client._check_request(*arguments, **options))

    def peek(self, *arguments: Any, **options: Any) -> Any:
        return self.run(self.client.peek(*arguments, **options))

    def reserve(self, *arguments: Any, **options: Any) -> Any:
        async def reserve() -> aio.Reservation:
            return await self.client.reserve(*arguments, **options)

        return AioReservation(self, self.run(reserve()))

    def ready(self, timeout: float) -> bool:
        connected: bool = self.run(self.client.ready(timeout))
        return connected

    def close(self) -> None:
        self.run(self.client.close())

    def end(self) -> None:
        self.close()
        self._loop.close()


class Background:
    """Waits for what a client does in the background. Rounds are made by `round` only."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._running = 0
        self._ended = threading.Condition()
        background = client._core._background
        self._spawn = background.spawn
        background.spawn = self._start
        background.begin_rounds = lambda: None

    def _start(self, flow: Any) -> None:
        def counted() -> Any:
            try:
                yield from flow
            finally:
                with self._ended:
                    self._running -= 1
                    self._ended.notify_all()

        self._running += 1
        self._spawn(counted())

    def wait(self) -> None:
        """Waits until nothing runs in the background."""
        if isinstance(self._client, AioClient):
            while tasks := self._client.client._background._tasks:
                self._client.run(asyncio.wait(tasks))
        with self._ended:
            assert self._ended.wait_for(lambda: self._running == 0, 10)

    def round(self) -> None:
        """Makes a round of leases."""

        async def make() -> None:
            self._client._core.round()

        if isinstance(self._client, AioClient):
            self._client.run(make())
        else:
            self._client._core.round()


@contextmanager
def make_client(flavour: str, *addresses: str, **options: Any) -> Iterator[Any]:
    """Client of a flavour, which is closed at the end."""
    if flavour == "threads":
        with tollgate_limits.Client(*addresses, **options) as client:
            yield client
    else:
        blocking = AioClient(*addresses, **options)
        try:
            yield blocking
        finally:
            blocking.end()
