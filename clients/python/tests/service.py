"""Starts a real `tollgate serve`; the variable TOLLGATE_BIN names the binary."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: method
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: hundred
    rate_limit: { unit: day, requests_per_unit: 100 }
  - key: large
    rate_limit: { unit: day, requests_per_unit: 1000000000 }
  - key: budget
    rate_limit: { unit: day, requests_per_unit: 10000, algorithm: sliding_window }
  - key: team
    rate_limit: { unit: day, requests_per_unit: 5000, algorithm: sliding_window }
"""


class Tollgate:
    """A service on free ports of loopback. `kill` and `start` restart it on the same ports."""

    def __init__(self, folder: Path, *flags: str) -> None:
        binary = os.environ.get("TOLLGATE_BIN")
        assert binary, "set TOLLGATE_BIN to the tollgate binary"
        self._rules = folder / "rules.yaml"
        self._rules.write_text(RULES)
        self._binary = binary
        self._flags = flags
        self.port = self.http_port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [self._binary, "serve", str(self._rules)]
        command += ["--host", "127.0.0.1", "--port", str(self.http_port), "--debug-port", "0"]
        command += ["--grpc-host", "127.0.0.1", "--grpc-port", str(self.port), *self._flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        lines: list[str] = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r" listens: gRPC [^ ]*:(\d+), HTTP [^ ]*:(\d+)", line):
                self.port, self.http_port = int(found[1]), int(found[2])
                break
        else:
            raise AssertionError("tollgate did not start: " + "".join(lines))
        drain = threading.Thread(target=self.process.stderr.read, daemon=True)
        drain.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stops it with SIGSTOP, and waits until the kernel has done so."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.http_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as response:
            body: bytes = response.read()
        return body.decode()

    def __enter__(self) -> Tollgate:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        assert self.process.stderr is not None


def wait_for(condition: Callable[[], bool], limit: float = 10.0) -> None:
    """Waits until a condition holds; fails after `limit` seconds."""
    ends = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < ends, "the condition did not hold in time"
        time.sleep(0.01)
