"""What becomes of leases at the end of the process and in a forked one."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from ._core import Core


class Leasing(Protocol):
    """A client that has had leases."""

    core: Core

    def end(self) -> None:
        """Returns all hits. Waits for the answers."""


LEASING: weakref.WeakSet[Leasing] = weakref.WeakSet()
"""Clients whose hits go back at the end of the process."""


def _end() -> None:
    for client in list(LEASING):
        client.end()


def _forget() -> None:
    """The hits of the parent are not also those of its child."""
    for client in list(LEASING):
        client.core.leases.forget()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
