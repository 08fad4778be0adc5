"""Tests of what is committed: generated code, pinned packages, and planted mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import tollgate_limits

PACKAGE = Path(__file__).resolve().parents[1]


def test_generated_code_is_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PACKAGE / "generate.py"), str(tmp_path)], check=True)
    generated = sorted(path.name for path in tmp_path.iterdir())
    assert generated == ["rate_limits_pb2.py", "rate_limits_pb2.pyi", "rls_pb2.py", "rls_pb2.pyi"]
    for name in generated:
        committed = PACKAGE / "src/tollgate_limits/_proto" / name
        assert committed.read_text() == (tmp_path / name).read_text(), "run generate.py"


def test_packages_are_pinned() -> None:
    lines = (PACKAGE / "requirements-dev.txt").read_text().splitlines()
    locked = [line for line in lines if line and not line.startswith("#")]
    assert locked
    assert all("==" in line for line in locked)


def test_the_version_is_one() -> None:
    assert f'version = "{tollgate_limits.__version__}"' in (PACKAGE / "pyproject.toml").read_text()


def test_planted_mistakes_can_be_made() -> None:
    planted = json.loads((PACKAGE / "planted.json").read_text())
    assert len(planted) >= 4
    for mistake in planted:
        text = (PACKAGE / mistake["file"]).read_text()
        assert text.count(mistake["find"]) == 1, mistake["find"]


def test_opentelemetry_and_frameworks_are_optional() -> None:
    program = """
import sys
for name in ("opentelemetry", "starlette", "flask", "fastapi"):
    sys.modules[name] = None
import tollgate_limits, tollgate_limits.asgi, tollgate_limits.wsgi, tollgate_limits.grpc_aio
with tollgate_limits.Client("localhost:1", domain="x") as client:
    assert client.check([{"a": "b"}]).source == "allow"
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PACKAGE / "src")
