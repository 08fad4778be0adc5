"""What a file of a million limits costs: time to load, bytes a value, and latency of checks while it is reloaded.

The service runs with the file. h2load sends checks at a steady rate, in legs that alternate: in every other leg the
file is replaced by one of which a thousandth differs, and is in use before the leg ends. So all legs meet the same
machine. `make bench-tenants` prints the table; nothing is asserted.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from ports import reserved_port  # noqa: E402

RULES = """domain: d
descriptors:
  - key: tenant
    limits_from: tenants.csv
    rate_limit: {unit: second, requests_per_unit: 10}
"""


def write_table(path, lines, changed):
    """Writes the file, with the limits of `changed` lines at random places one higher."""
    higher = set(random.sample(range(lines), changed))
    with open(path, "w", encoding="ascii") as file:
        file.write("value,unit,requests_per_unit,algorithm\n")
        for line in range(lines):
            file.write(f"tenant-{line:08},second,{1_000_000 + line + (line in higher)},token_bucket\n")


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def check(value):
    """A gRPC message of ShouldRateLimit for this tenant."""
    entry = field(1, b"tenant") + field(2, value.encode())
    message = field(1, b"d") + field(2, field(1, entry))
    return b"\0" + len(message).to_bytes(4, "big") + message


def resident_bytes(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


class Service:
    def __init__(self, binary, folder, arguments=(), log="log"):
        self.ports = [reserved_port() for _ in range(3)]
        self.log = open(folder / log, "w+", encoding="utf-8")
        grpc, http, admin = self.ports
        addresses = {"GRPC_PORT": grpc, "PORT": http, "DEBUG_PORT": admin}
        environment = {"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1", "LOG_LEVEL": "info"}
        environment |= {name: str(port) for name, port in addresses.items()}
        self.started = time.monotonic()
        command = [binary, "serve", folder / "rules.yaml", *arguments]
        self.process = subprocess.Popen(command, env=os.environ | environment, stderr=self.log)
        while not self.is_ready():
            time.sleep(0.01)
        self.start_seconds = time.monotonic() - self.started

    def get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(pathlib.Path(self.log.name).read_text(encoding="utf-8"))
        try:
            return "OK" in self.get(self.ports[1], "/healthcheck")
        except OSError:
            return False

    def metric(self, name):
        return int(re.search(rf"^{name} (\d+)", self.get(self.ports[2], "/metrics"), re.M)[1])

    def generation(self):
        return self.metric("tollgate_rules_generation")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.log.close()


def bytes_at_start(options, folder, arguments=()):
    """The resident memory of a service that has just started."""
    service = Service(options.binary, folder, arguments)
    time.sleep(1)
    resident = resident_bytes(service.process.pid)
    service.stop()
    return resident


def load(services, folder, options, during=None):
    """Sends checks for a while. Gives their latencies in microseconds, and what `during` gave."""
    # A tenant of the third plan in `plans.py`.
    (folder / "body").write_bytes(check(f"tenant-{options.lines // 6 * 3 + 2:08}"))
    connections = 8
    senders = []
    for number, service in enumerate(services):
        log = folder / f"latencies-{number}"
        log.unlink(missing_ok=True)
        command = ["h2load", "-D", str(options.seconds), "-c", str(connections), "-m", "1", "-t", "1"]
        command += ["--rps", str(options.rate // len(services) // connections), "-d", str(folder / "body"), "--log-file", str(log)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        sender = subprocess.Popen([*command, f"http://127.0.0.1:{service.ports[0]}{path}"], stdout=subprocess.PIPE)
        senders.append((sender, log))
    result = during() if during else None
    rows = []
    for sender, log in senders:
        sender.communicate()
        rows += [line.split() for line in log.read_text().splitlines()]
    failed = [row for row in rows if row[1] != "200"]
    if failed:
        raise SystemExit(f"{len(failed)} checks failed")
    return sorted(int(row[2]) for row in rows), result


def percentile(sorted_numbers, share):
    return sorted_numbers[min(len(sorted_numbers) - 1, int(len(sorted_numbers) * share))]


def print_latencies(options, legs):
    print(f"checks at {options.rate} a second, microseconds (medians of {options.rounds} legs):")
    for name, all_legs in legs.items():
        shares = [statistics.median(percentile(leg, share) for leg in all_legs) for share in (0.5, 0.99, 0.999)]
        print(f"  {name:10} p50 {shares[0]:6.0f}  p99 {shares[1]:6.0f}  p99.9 {shares[2]:6.0f}  checks {sum(map(len, all_legs)):,}")


def parse_options(description, add=lambda parser: None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", default=str(ROOT / "target" / "dist" / "tollgate"))
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--settle", type=int, default=20)
    parser.add_argument("--rate", type=int, default=2_000)
    add(parser)
    return parser.parse_args()


def main():
    options = parse_options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules.yaml").write_text(RULES)
        write_table(folder / "tenants.csv", 1, 0)
        bytes_without = bytes_at_start(options, folder)
        write_table(folder / "tenants.csv", options.lines, 0)
        checks = []
        for _ in range(3):
            begin = time.monotonic()
            subprocess.run([options.binary, "check", folder / "rules.yaml"], check=True, stdout=subprocess.DEVNULL)
            checks.append(time.monotonic() - begin)
        service = Service(options.binary, folder)
        # The allocator returns pages some seconds after they were freed.
        time.sleep(options.settle)
        text = options.lines * len("tenant-00000000")
        more = resident_bytes(service.process.pid) - bytes_without
        reloads = []

        def reload():
            before = service.generation()
            write_table(folder / "next", options.lines, options.lines // 1000)
            begin = time.monotonic()
            os.replace(folder / "next", folder / "tenants.csv")
            while service.generation() == before:
                time.sleep(0.01)
            reloads.append(time.monotonic() - begin)

        legs = {"no reload": [], "reload": []}
        load([service], folder, options)
        for _ in range(options.rounds):
            # Both legs write a file of that size, so that only the reload differs.
            quiet = lambda: write_table(folder / "unused", options.lines, options.lines // 1000)
            legs["no reload"].append(load([service], folder, options, quiet)[0])
            legs["reload"].append(load([service], folder, options, reload)[0])
        time.sleep(options.settle)
        after = resident_bytes(service.process.pid) - bytes_without
        service.stop()
        log = (folder / "log").read_text(encoding="utf-8")
    size = f"{options.lines:,} values of 15 bytes, all limits different"
    print(size)
    print(f"check, from start to end:      {min(checks):.2f} s (best of {len(checks)})")
    print(f"serve, from start to ready:    {service.start_seconds:.2f} s")
    print(f"replaced file in use after:    {statistics.median(reloads):.2f} s (median of {len(reloads)}; two polls are 0.4 s of it)")
    print(f"memory a value besides text:   {(more - text) / options.lines:.0f} bytes resident after the load")
    print(f"                               {(after - text) / options.lines:.0f} bytes resident after {len(reloads)} reloads")
    print_latencies(options, legs)
    last = [line for line in log.splitlines() if "limits by value loaded" in line]
    print(f"log of the last reload: {last[-1] if last else log[-300:]}")


if __name__ == "__main__":
    main()
