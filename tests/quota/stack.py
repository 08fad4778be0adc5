"""Processes of the quota tests: tollgate, Envoy, Redis, and a TCP proxy that cuts connections.

Each process has free ports, and its output is in the test's folder. `Stack` ends all of them.
It deliberately does not send requests (`load`), and knows no rules.
"""

import contextlib
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from ports import reserved_port  # noqa: E402

EXAMPLE = ROOT / "examples" / "quotas"
START_SECONDS_MAX = 60


def answers(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.status == 200


def wait_for(what, condition):
    """Polls until the condition holds. An answer that cannot be had yet counts as no."""
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
    sys.exit(f"{what} took longer than {START_SECONDS_MAX} s")


class Tollgate:
    """A tollgate. `Stack.start_tollgate` with its ports starts a replacement."""

    def __init__(self, process, grpc, http):
        self.process, self.grpc, self.http = process, grpc, http

    def kill(self):
        self.process.kill()
        self.process.wait()


class Envoy:
    """An Envoy. `admin` and `port` are its ports."""

    def __init__(self, process, admin, port):
        self.process, self.admin, self.port = process, admin, port

    def kill(self):
        self.process.kill()
        self.process.wait()


class Redis:
    """A Redis. `Stack.start_redis` with its port starts a replacement."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def kill(self):
        self.process.kill()
        self.process.wait()


class CutProxy:
    """Forwards TCP connections. `cut` closes them; with `refuses`, new ones are closed at once."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        # Pairs of sockets, client and server.
        self.open = set()
        self.refuses = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = None if self.refuses else socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            pair = (client, server)
            self.open.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.forward, args=(source, sink, pair), daemon=True).start()

    def forward(self, source, sink, pair):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self.open.discard(pair)
        for one in pair:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Closes every connection, and returns how many there were."""
        pairs = list(self.open)
        for one in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return len(pairs)


class Stack(contextlib.AbstractContextManager):
    """Starts processes, and ends them all at its end."""

    def __init__(self, tollgate, envoy, folder):
        self.tollgate, self.envoy, self.folder = tollgate, envoy, pathlib.Path(folder)
        self.children = []

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()

    def spawn(self, name, command):
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.children.append(child)
        return child

    def start_tollgate(self, rules, extra_args=(), ports=None):
        grpc, http = ports or (reserved_port(), reserved_port())
        process = self.spawn("tollgate", [
            self.tollgate, "serve", rules, "--grpc-host", "127.0.0.1", "--grpc-port", grpc,
            "--host", "127.0.0.1", "--port", http, "--debug-port", 0, *extra_args])
        wait_for("the start of tollgate", lambda: answers(http, "/readyz"))
        return Tollgate(process, grpc, http)

    def start_envoy(self, name, bootstrap, admin, port, concurrency=1):
        """An Envoy with this text as its configuration."""
        file = self.folder / f"{name}.yaml"
        file.write_text(bootstrap)
        process = self.spawn(name, [
            self.envoy, "-c", file, "--use-dynamic-base-id", "--concurrency", concurrency, "--log-level", "warn"])
        wait_for(f"the start of {name}", lambda: answers(admin, "/ready"))
        return Envoy(process, admin, port)

    def start_example(self, name, grpc):
        """An Envoy with the bootstrap of the guide, and its tollgate at this port."""
        admin, port = reserved_port(), reserved_port()
        text = (EXAMPLE / "envoy.yaml").read_text()
        for written, used in ((9901, admin), (10000, port), (8081, grpc)):
            if text.count(f"port_value: {written} ") != 1:
                sys.exit(f"{EXAMPLE}/envoy.yaml has not exactly one port {written}")
            text = text.replace(f"port_value: {written} ", f"port_value: {used} ")
        return self.start_envoy(name, text, admin, port)

    def start_redis(self, port=None):
        """A Redis without persistence, at this port or a free one."""
        port = port or reserved_port()
        process = self.spawn("redis", [
            "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder])

        def listens():
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True

        wait_for("the start of Redis", listens)
        return Redis(process, port)
