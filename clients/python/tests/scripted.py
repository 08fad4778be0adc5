"""A real gRPC server on loopback that answers by a script, and a clock that stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

Answer = Callable[[str, bytes, Any], bytes]
"""Answers a call: path, request and context to response."""


class Clock:
    """Nanoseconds that change only by `advance`."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms * 1_000_000


class ScriptedServer(grpc.GenericRpcHandler):
    """Counts calls, and answers them by `answer`."""

    def __init__(self, answer: Answer | None = None, threads: int = 64) -> None:
        self.answer = answer or self._unscripted
        self.calls: list[tuple[str, bytes]] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(threads), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    @staticmethod
    def _unscripted(path: str, request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the script has no answer")
        raise AssertionError

    def service(self, handler_call_details: Any) -> Any:
        path: str = handler_call_details.method

        def handle(request: bytes, context: Any) -> bytes:
            with self._lock:
                self.calls.append((path.rpartition("/")[2], request))
            return self.answer(path, request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def wait_for_calls(self, count: int) -> None:
        """Waits until so many calls have come, at most for a second."""
        ends = time.monotonic() + 1
        while len(self.calls) < count and time.monotonic() < ends:
            time.sleep(0.005)

    def hang(self, path: str, request: bytes, context: Any) -> bytes:
        """Does not answer until the caller leaves."""
        gone = threading.Event()
        if context.add_callback(gone.set):
            while not gone.wait(0.05) and not self.stopping.is_set():
                pass
        return b""

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the server and its connections."""
        self.stopping.set()
        self._server.stop(None).wait(5)
