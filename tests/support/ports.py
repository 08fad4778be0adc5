"""Ports for programs that do not support port 0, as `ports.rs` reserves them and for its reasons."""

import os
import socket

FIRST = 20_000
held = []


def reserved_port():
    """A port of 127.0.0.1 that no other test gets while this process runs, and that is not bound."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        count = int(file.read().split()[0]) - FIRST
    for step in range(count):
        port = FIRST + (os.getpid() * 31 + step) % count
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as one:
            try:
                name.bind(f"\0tollgate-test-port-{port}")
                one.bind(("127.0.0.1", port))
            except OSError:
                name.close()
                continue
        held.append(name)
        return port
    raise OSError(f"no port from {FIRST} on is left")
