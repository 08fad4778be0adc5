"""Runs the programs of the README and of `examples` with the built wheel, in an empty folder."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.service import Tollgate, wait_for

PACKAGE = Path(__file__).resolve().parents[1]
# With a deadline that busy cores do not miss: a check that misses its deadline passes.
PROGRAMS = {
    name: program.replace('domain="edge")', 'domain="edge", deadline=30)')
    for name, program in re.findall(
        r"<!-- run: (\S+) -->\n```python\n(.*?)```",
        (PACKAGE / "README.md").read_text(),
        re.DOTALL,
    )
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(PACKAGE)], check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    assert built.name == "tollgate_limits-0.1.0-py3-none-any.whl"
    shutil.unpack_archive(built, folder / "installed", "zip")
    return folder / "installed"


def environment(wheel: Path, tollgate: Tollgate, **variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(wheel), "TOLLGATE": tollgate.address, **variables}


def test_the_readme_has_every_program() -> None:
    names = ["client", "aio", "asgi", "fastapi", "wsgi", "grpc"]
    assert list(PROGRAMS) == [f"{name}_example.py" for name in names]
    assert all("deadline=30" in program for program in PROGRAMS.values())


@pytest.mark.parametrize("name", ["client_example.py", "aio_example.py"])
def test_client_programs(wheel: Path, tollgate: Tollgate, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PROGRAMS[name])
    ended = subprocess.run(
        [sys.executable, name],
        cwd=tmp_path,
        env=environment(wheel, tollgate),
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.stdout == "allowed\ncommitted 120\n"


@contextmanager
def running(program: Path, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(program)], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def get(port: int, path: str = "/") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("asgi_example.py", "Too Many Requests"),
        ("fastapi_example.py", '{"detail":"Too Many Requests"}'),
        ("wsgi_example.py", "Too Many Requests"),
    ],
)
def test_http_programs(
    wheel: Path, tollgate: Tollgate, tmp_path: Path, name: str, refused: str
) -> None:
    (tmp_path / name).write_text(PROGRAMS[name])
    port = free_port()
    with running(tmp_path / name, tmp_path, environment(wheel, tollgate, PORT=str(port))):
        wait_for(lambda: listens(port), 30)
        answers = [get(port) for _ in range(6)]
    assert answers == [(200, "hello")] * 5 + [(429, refused)]


def test_the_grpc_program(wheel: Path, tollgate: Tollgate, tmp_path: Path) -> None:
    name = "grpc_example.py"
    (tmp_path / name).write_text(PROGRAMS[name])
    port = free_port()
    env = environment(wheel, tollgate, PORT=str(port))
    with (
        running(tmp_path / name, tmp_path, env),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        wait_for(lambda: listens(port), 30)
        hello: Any = channel.unary_unary("/edge.Greeter/Hello")
        assert [hello(b"", timeout=10, wait_for_ready=True) for _ in range(5)] == [b"hello"] * 5
        with pytest.raises(grpc.RpcError) as error:
            hello(b"", timeout=10)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def announced(process: subprocess.Popen[str]) -> int:
    """Port that a program says it listens on."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0], "the program did not start"
    line = process.stdout.readline()
    assert line.startswith("listening on 127.0.0.1:"), line
    return int(line.rpartition(":")[2])


@pytest.mark.parametrize("framework", ["asgi", "wsgi"])
def test_the_example_service(
    wheel: Path, tollgate: Tollgate, tmp_path: Path, framework: str
) -> None:
    variables = {"PORT": "0", "FRAMEWORK": framework, "ON_ERROR": "deny", "DEADLINE_MS": "2000"}
    env = environment(wheel, tollgate, **variables)
    with running(PACKAGE / "examples/service/main.py", tmp_path, env) as process:
        port = announced(process)
        assert [get(port) for _ in range(3)] == [(200, "hello from python")] * 3
        assert get(port, "/healthz")[0] == 200
        tollgate.kill()
        assert get(port)[0] == 503
        stats = json.loads(get(port, "/stats")[1])
        assert stats.pop("threads") > 0
        assert stats == {
            "checks": 4,
            "late": 0,
            "sources": {"server": 3, "lease": 0, "cache": 0, "local": 0, "allow": 0, "deny": 1},
        }
        idle = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        idle.request("GET", "/healthz")
        idle.getresponse().read()
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        idle.close()
