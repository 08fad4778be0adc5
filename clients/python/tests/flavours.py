"""Both clients behind one blocking interface, so that each test can run with both."""

from __future__ import annotations

import asyncio
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
