"""Fixtures: a service for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Tollgate


@pytest.fixture
def tollgate(tmp_path: Path) -> Iterator[Tollgate]:
    with Tollgate(tmp_path) as service:
        yield service
