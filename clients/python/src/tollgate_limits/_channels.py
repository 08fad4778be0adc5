"""Choice between several addresses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import grpc


class Rotation:
    """Rotates over the addresses that are connected.

    If none is, it rotates over those that are not known to fail, else over all.
    """

    def __init__(self, count: int) -> None:
        self._indexes = range(count)
        self._turns = itertools.count()

    def next(self, states: Sequence[grpc.ChannelConnectivity]) -> int:
        """Index of the address for the next call."""
        candidates = [i for i in self._indexes if states[i] is grpc.ChannelConnectivity.READY]
        if not candidates:
            failed = grpc.ChannelConnectivity.TRANSIENT_FAILURE
            candidates = [i for i in self._indexes if states[i] is not failed]
        return (candidates or self._indexes)[next(self._turns) % len(candidates or self._indexes)]
