"""What a limiter costs a service: latency and CPU of a request, in five languages.

Each language's `examples/bench` is one HTTP server with four routes that answer the same: without a limiter
(/bare), without one but with its three headers (/headers), with tollgate's middleware (/tollgate), and with a limiter
that is popular in that language (/peer). Other servers have batching or leases on. h2load sends to the routes one
after the other, many times over, so that all of them meet the same machine. The figures are medians over the rounds.

A second table has requests of 1,000 keys, which the servers draw at random: 12 of each, which are mostly the first ones of a key, and 100.

`make bench-clients` prints the tables; with BENCH=--write it also writes them into docs/clients.md.
"""

import argparse
import datetime
import os
import pathlib
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

PACKAGES = ROOT / "target" / "client-packages"
CLIENTS = ROOT / "clients"
PAGE = ROOT / "docs" / "clients.md"

# The route of each limiter, and the option that is on.
LEGS = {"none": ("bare", ""), "none, its headers": ("headers", ""), "tollgate": ("tollgate", ""), "tollgate, batching": ("tollgate", "BATCHING"),
        "tollgate, leases": ("tollgate", "LEASES"), "peer": ("peer", "")}
KEYS = 1000
# Of one leg: keys, connections, requests, and in which rounds it is sent: in one of so many. The last one is long, so it needs fewer rounds.
ONE, SHORT, LONG = (1, 1, 1500, 1), (KEYS, 16, 12 * KEYS, 1), (KEYS, 16, 100 * KEYS, 3)
# Requests of one key over 16 connections. A leg is several seconds in every language, so that most of it is the steady state: the first leases, and
# the second in which unused hits go back, are a small part of it.
SIXTEEN_REQUESTS = {"Go": 200000, "Java": 200000, "Node": 60000, "Python": 30000, "Rust": 200000}
# Until unused hits have gone back, which belongs to the cost of a leg with leases: a second without use, and a round of 250 ms.
RETURN_SECONDS = 1.5
BODY = "hello"

SERVERS = {
    "Go": ([str(PACKAGES / "go" / "bench")], "redis_rate with Redis"),
    "Java": (["java", "-XX:+UseSerialGC", "-Xmx256m", "-jar", str(PACKAGES / "java" / "bench" / "bench-0.1.0.jar")], "Bucket4j with Redis"),
    "Node": (["node", str(PACKAGES / "node" / "bench" / "bench.js")], "rate-limiter-flexible with Redis"),
    "Python": ([str(PACKAGES / "python" / "bench" / "bin" / "python"), str(CLIENTS / "python" / "examples" / "bench" / "main.py")], "limits with Redis"),
    "Rust": ([str(PACKAGES / "rust" / "bench")], "tower-governor, in memory"),
}

RULES = """domain: bench
descriptors:
  - key: key
    rate_limit: { unit: day, requests_per_unit: 1000000000 }
"""


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_http(port, path, child):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if child.poll() is not None:
            sys.exit(f"{child.args} ended with {child.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{child.args} did not answer {path} within 60 s")


def leg(port, route, connections, requests, pid, goes_back):
    """Latencies in microseconds and CPU of the server in microseconds a request."""
    with tempfile.NamedTemporaryFile() as log:
        before = cpu_seconds(pid)
        done = subprocess.run(
            ["h2load", "--h1", "-n", str(requests), "-c", str(connections), f"--log-file={log.name}", f"http://127.0.0.1:{port}/{route}"],
            capture_output=True, text=True, check=True, timeout=120,
        )
        if goes_back:
            time.sleep(RETURN_SECONDS)
        used = cpu_seconds(pid) - before
        # Not by status: h2load sees none in an answer without a reason phrase, as Tomcat sends it.
        if f" {requests} done" not in done.stdout or f"({requests * len(BODY)}) data" not in done.stdout:
            sys.exit(f"/{route} did not answer every request with {BODY!r}:\n{done.stdout}")
        latencies = sorted(int(line.split()[2]) for line in open(log.name))
    return latencies, used / requests * 1e6


def measure(language, command, tollgate, redis, rounds):
    legs = {name: where for name, where in LEGS.items() if language != "Python" or where[1] != "BATCHING"}
    names = list(legs)
    sixteen = (1, 16, SIXTEEN_REQUESTS[language], 1)
    loads = (ONE, sixteen, SHORT, LONG)
    servers = {}
    with tempfile.TemporaryFile() as log:
        try:
            for option, keys in {(option, keys) for _, option in legs.values() for keys in (1, KEYS)}:
                port = reserved_port()
                environment = {**os.environ, "PORT": str(port), "TOLLGATE": f"127.0.0.1:{tollgate}", "REDIS": f"redis://127.0.0.1:{redis}",
                               "BATCHING": "0", "LEASES": "0", "KEYS": str(keys), "NODE_ENV": "production"}
                if option:
                    environment[option] = "1"
                servers[option, keys] = port, subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                wait_for_http(port, "/bare", servers[option, keys][1])

            def send(name, keys, connections, requests):
                route, option = legs[name]
                port, server = servers[option, keys]
                return leg(port, route, connections, requests, server.pid, option == "LEASES")

            # As many as a leg has: a JVM compiles meanwhile what it runs often.
            for name in names:
                for keys in (1, KEYS):
                    send(name, keys, 16, SIXTEEN_REQUESTS[language])
            figures = {(name, load): ([], [], []) for name in names for load in loads}
            for turn in range(rounds):
                first = turn % len(names)
                for load in loads:
                    keys, connections, requests, period = load
                    if turn % period:
                        continue
                    # Each round begins with another limiter.
                    for name in names[first:] + names[:first]:
                        latencies, cpu = send(name, keys, connections, requests)
                        half, last, used = figures[name, load]
                        half.append(latencies[len(latencies) // 2])
                        last.append(latencies[len(latencies) * 99 // 100])
                        used.append(cpu)
        finally:
            for _, server in servers.values():
                server.terminate()
                server.wait(20)
    medians = {key: tuple(statistics.median(part) for part in parts) for key, parts in figures.items()}
    return [(name, [medians[name, load] for load in loads]) for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write the table into docs/clients.md")
    parser.add_argument("--only", help="one language")
    parser.add_argument("--tollgate", default=str(ROOT / "target" / "dist" / "tollgate"))
    arguments = parser.parse_args()
    children = []
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.yaml"
        rules.write_text(RULES)
        grpc, web, redis = reserved_port(), reserved_port(), reserved_port()
        try:
            children.append(subprocess.Popen(
                [arguments.tollgate, "serve", str(rules), "--grpc-host", "127.0.0.1", "--grpc-port", str(grpc), "--host", "127.0.0.1",
                 "--port", str(web), "--debug-port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for_http(web, "/readyz", children[-1])
            children.append(subprocess.Popen(["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder], stdout=subprocess.DEVNULL))
            lines = ["| language | limiter | median µs, one connection | 99 %, one | median µs, 16 connections | 99 %, 16 | CPU µs a request |",
                     "| --- | --- | --- | --- | --- | --- | --- |"]
            keys = [f"| language | limiter, {KEYS:,} keys | median µs, 12 requests a key | 99 %, 12 | CPU µs a request, 12 | median µs, 100 requests a key | 99 %, 100 | CPU µs a request, 100 |",
                    "| --- | --- | --- | --- | --- | --- | --- | --- |"]
            for language, (command, peer) in SERVERS.items():
                if arguments.only not in (None, language):
                    continue
                figures = measure(language, command, grpc, redis, arguments.rounds)
                for name, (one, sixteen, short, long) in figures:
                    title = peer if name == "peer" else name
                    for rows, cells in ((lines, one[:2] + sixteen), (keys, short + long)):
                        rows.append(" | ".join([f"| {language}", title, *(f"{cell:,.0f}" for cell in cells)]) + " |")
                print("\n".join(lines[-len(figures):] + keys[-len(figures):]), flush=True)
        finally:
            for child in children:
                child.send_signal(signal.SIGTERM)
                child.wait(20)
    model = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    lines += ["", *keys, "", f"Measured on {datetime.date.today()} at {commit} by `make bench-clients`: {os.cpu_count()} cores of an {model}. Each figure is the median of "
              f"{arguments.rounds} rounds, which alternate between the limiters; with 100 requests a key, of every third. CPU with leases includes that of going back. The load generator and all servers share the cores."]
    table = "\n".join(lines)
    print(table)
    if arguments.write:
        text = PAGE.read_text()
        PAGE.write_text(re.sub(r"(<!-- client-cost -->\n).*?(<!-- /client-cost -->)", lambda found: found[1] + table + "\n" + found[2], text, flags=re.S))


if __name__ == "__main__":
    main()
