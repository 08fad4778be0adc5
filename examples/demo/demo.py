"""Ten services in five languages behind Envoy, which share one limit of 1,000 requests.

`make demo` builds the services and runs this program: it starts tollgate, the services (two a language) and Envoy,
sends 3,000 requests through Envoy, and prints how many each service admitted. The services lease hits, and decide most
of their requests without a call. With --check it also stops, kills and restarts tollgate under load, and fails unless

- exactly 1,000 requests are admitted, and every service admitted some of them,
- never more are admitted when tollgate restarts with a snapshot, is killed beside a Redis, or when a service is killed:
  at most the hits are lost that services held; a reset admits at most those in addition,
- a token bucket that all of them ask for more than it gives (for --bucket-minutes) admits at most its burst and what
  flows in while it is asked and while a lease is valid,
- each service answers as its `on_error` says while tollgate is away, and asks tollgate again when it is back,
- no decision takes longer than its deadline, by the services' own counts,
- no service ends, and none has more threads, open files or memory than before.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ROOT / "target" / "client-packages"
CLIENTS = ROOT / "clients"

# Where the search for ports begins: at random, because two demos may run beside each other.
PORTS = itertools.count(random.randrange(10_000, 25_000))
LIMIT = 1000
REQUESTS = 3000
CONNECTIONS = 16
DEADLINE_MS = 1000
ON_ERROR = ["allow", "deny", "local"]
# More than any start of a JVM on a busy machine with two cores.
PATIENCE_SECONDS = 120
# A service without requests asks for no lease after a second, and has a second for that call; a lease is valid for two.
LEASES_END_SECONDS = 5
LEASE_AGE_SECONDS = 2
BURST, RATE = 100, 20

# The command of each service, with further variables. There are two of each language.
SERVICES = {
    "go": [([str(PACKAGES / "go" / "service")], {}), ([str(PACKAGES / "go" / "service")], {})],
    "java": [(["java", "-XX:+UseSerialGC", "-Xmx96m", "-jar", str(PACKAGES / "java" / "service" / "service-0.1.0.jar")], {})] * 2,
    "node": [
        (["node", str(PACKAGES / "node" / "service" / "service.js")], {"FRAMEWORK": framework})
        for framework in ("express", "fastify")
    ],
    "python": [
        ([str(PACKAGES / "python" / "service" / "bin" / "python"), str(CLIENTS / "python" / "examples" / "service" / "main.py")], {"FRAMEWORK": framework})
        for framework in ("asgi", "wsgi")
    ],
    "rust": [([str(PACKAGES / "rust" / "service")], {})] * 2,
}


def is_built(commands):
    """Whether the files of the services' commands are there."""
    files = [word for command, _ in commands for word in command if word.startswith(str(PACKAGES))]
    return bool(files) and all(pathlib.Path(file).exists() for file in files)


class Failed(Exception):
    """The demo did not show what it promises."""


def free_ports(count):
    """Ports that nobody uses, from below those that the kernel gives to connections, so that none is taken before its process starts."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = []
    while len(ports) < count:
        port = next(PORTS)
        if port >= first:
            raise Failed(f"no port below {first} is free")
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


def wait_for(what, condition):
    """Polls the condition until it holds, and returns its value."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise Failed(f"{what} took longer than {PATIENCE_SECONDS} s")


def get(port, path="/", timeout=30):
    """Status and body of one request on a connection of its own; status 0 if there was no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


class Process:
    """A child whose output goes to a file, and which ends with the demo."""

    def __init__(self, name, command, folder, environment=None):
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})

    def text(self):
        return self.log.read_text(errors="replace")

    def require_running(self):
        if self.child.poll() is not None:
            raise Failed(f"{self.name} ended with {self.child.returncode}:\n{self.text()[-2000:]}")
        return True

    def usage(self):
        """Threads, open files, and resident memory in KiB."""
        folder = pathlib.Path("/proc") / str(self.child.pid)
        status = (folder / "status").read_text()
        number = lambda name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M).group(1))  # noqa: E731
        return {"threads": number("Threads"), "files": len(list((folder / "fd").iterdir())), "memory": number("VmRSS")}

    def send(self, which):
        self.child.send_signal(which)
        if which == signal.SIGSTOP:
            stat = pathlib.Path("/proc") / str(self.child.pid) / "stat"
            wait_for(f"the stop of {self.name}", lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")

    def end(self, which=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.send_signal(which)
        try:
            return self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            return None


class Demo:
    def __init__(self, binary, envoy, folder, policies):
        self.binary = binary
        self.envoy = envoy
        self.folder = folder
        self.policies = policies
        self.services = []
        self.others = []
        self.tollgate = None
        self.rules = HERE / "rules.yaml"
        self.flags = []
        self.grpc, self.http, self.admin = free_ports(3)

    def start_tollgate(self):
        self.tollgate = Process(
            "tollgate",
            [self.binary, "serve", str(self.rules), "--grpc-host", "127.0.0.1", "--grpc-port", str(self.grpc),
             "--host", "127.0.0.1", "--port", str(self.http), "--debug-host", "127.0.0.1", "--debug-port", str(self.admin), *self.flags],
            self.folder,
        )
        wait_for("the start of tollgate", lambda: self.tollgate.require_running() and get(self.http, "/readyz")[0] == 200)

    def start(self):
        self.start_tollgate()
        number = 0
        for language, commands in SERVICES.items():
            for command, variables in commands:
                (port,) = free_ports(1)
                policy = self.policies[number % len(self.policies)]
                service = Process(
                    f"{language}-{number % 2 + 1}", command, self.folder,
                    {"PORT": str(port), "TOLLGATE": f"127.0.0.1:{self.grpc}", "ON_ERROR": policy, "DEADLINE_MS": str(DEADLINE_MS), **variables},
                )
                service.port, service.language, service.policy = port, language, policy
                self.services.append(service)
                number += 1
        for service in self.services:
            wait_for(f"the start of {service.name}", lambda: service.require_running() and get(service.port, "/healthz")[0] == 200)
        self.edge, admin = free_ports(2)
        endpoints = "".join(
            f"              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {service.port} }} }} }}\n"
            for service in self.services
        )
        words = {"admin": admin, "edge": self.edge, "services": endpoints.rstrip("\n"), "tollgate": self.grpc}
        bootstrap = re.sub("@([a-z]+)@", lambda word: str(words[word[1]]), (HERE / "envoy.yaml").read_text())
        (self.folder / "envoy.yaml").write_text(bootstrap)
        envoy = Process(
            "envoy", [self.envoy, "-c", str(self.folder / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"], self.folder
        )
        self.others.append(envoy)
        wait_for("the start of Envoy", lambda: envoy.require_running() and get(admin, "/ready")[0] == 200)

    def stop(self):
        """Ends every process; the names of services that SIGTERM did not end."""
        stuck = [process.name for process in self.services if process.end() is None]
        for process in [*self.others, *([self.tollgate] if self.tollgate else [])]:
            process.end()
        return stuck

    def stats_of(self, service):
        """Decisions of a service by their source."""
        return json.loads(get(service.port, "/stats")[1])["sources"]

    def stats(self):
        return {service.name: json.loads(get(service.port, "/stats")[1]) for service in self.services}

    def share(self, requests=REQUESTS):
        """Sends requests through Envoy, and counts admitted requests by the text of the answer."""
        admitted, refused, other = collections.Counter(), 0, collections.Counter()
        lock = threading.Lock()

        def send(first):
            nonlocal refused
            connection = http.client.HTTPConnection("127.0.0.1", self.edge, timeout=60)
            for number in range(first, requests, CONNECTIONS):
                # One in eleven is limited by Envoy, as if it were the eleventh service.
                connection.request("GET", "/envoy" if number % 11 == 0 else "/")
                answer = connection.getresponse()
                body = answer.read().decode().strip()
                with lock:
                    if answer.status == 200:
                        admitted["envoy" if number % 11 == 0 else body.removeprefix("hello from ")] += 1
                    elif answer.status == 429:
                        refused += 1
                    else:
                        other[answer.status] += 1
            connection.close()

        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as threads:
            for done in [threads.submit(send, first) for first in range(CONNECTIONS)]:
                done.result()
        return admitted, refused, other

    def post(self, port, path, body):
        """The JSON of tollgate's answer."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            return json.loads(connection.getresponse().read())

    def remaining(self):
        entry = {"key": "generic_key", "value": "demo"}
        return self.post(self.http, "/v1/peek", {"domain": "demo", "descriptors": [{"entries": [entry]}]})["remaining"]

    def held(self):
        """Hits that services hold, or have used and not told."""
        metrics = get(self.admin, "/metrics")[1]
        hits = dict(re.findall(r'^tollgate_caller_lease_hits_total\{hits="(\w+)"\} (\d+)$', metrics, re.M))
        return int(hits["granted"]) - int(hits["returned"]) - int(hits["admitted"])

    def wake(self):
        """Waits until tollgate decides at every service. Each admits one request."""
        for service in self.services:
            wait_for(f"{service.name} to ask tollgate", lambda: get(service.port)[0] == 200)
        return len(self.services)

    def leases(self):
        """The limit holds while those that hold leases, or count them, end. The policy of all services is deny."""

        def again(which):
            self.tollgate.end(which)
            self.start_tollgate()

        def kill():
            self.services.pop().end(signal.SIGKILL)

        def reset():
            self.post(self.admin, "/reset", {"domain": "demo", "descriptor": [{"key": "generic_key", "value": "demo"}]})

        (port,) = free_ports(1)
        redis = Process("redis", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""], self.folder)
        self.others.append(redis)
        for what, flags, act in [
            ("tollgate restarts with a snapshot", ["--snapshot", str(self.folder / "buckets")], lambda: again(signal.SIGTERM)),
            ("tollgate is killed beside Redis", ["--store", f"redis://127.0.0.1:{port}"], lambda: again(signal.SIGKILL)),
            ("the limit is reset", [], reset),
            ("a service is killed", [], kill),
        ]:
            time.sleep(LEASES_END_SECONDS)
            self.flags = flags
            again(signal.SIGTERM)
            admitted = self.wake() + self.share(LIMIT // 2)[0].total()
            act()
            if act is reset:
                most = LIMIT + self.held()
            else:
                admitted += self.wake()
                most = LIMIT - admitted
            left = self.remaining()
            rest = self.share()[0].total()
            print(f"{what}: {admitted} admitted, {LIMIT - left} taken; then {rest} of {most} admitted")
            if not left <= rest <= most:
                raise Failed(f"{what}: {rest} admitted, not {left} to {most}")

    def bucket(self, minutes):
        """All services and Envoy ask a token bucket for more than it gives, for so long."""
        self.limit_by(f"unit: second, requests_per_unit: {RATE}, algorithm: token_bucket, burst: {BURST}")
        time.sleep(LEASES_END_SECONDS)
        began = time.monotonic()
        self.tollgate.end()
        self.start_tollgate()
        admitted = self.wake()
        counts = collections.defaultdict(collections.Counter)
        asked = lambda: sum(of.total() for of in list(counts.values()))  # noqa: E731
        most = lambda: BURST + RATE * (time.monotonic() - began + LEASE_AGE_SECONDS)  # noqa: E731
        with self.load(counts):
            time.sleep(60 * minutes)
            wait_for("more requests than the bucket gives", lambda: asked() > most())
        admitted += sum(of[200] for of in counts.values())
        result = f"a token bucket: {admitted} of {asked()} admitted, at most {most():.0f}"
        print(result)
        if admitted > most():
            raise Failed(result)

    def limit_by(self, limit):
        """The limit of the demo is this one when tollgate starts again."""
        text = re.sub("rate_limit: {.*}", f"rate_limit: {{ {limit} }}", self.rules.read_text())
        self.rules = self.folder / "rules.yaml"
        self.rules.write_text(text)

    @contextlib.contextmanager
    def load(self, counts):
        """Sends requests to every service, and to Envoy, until the block ends, with counts of statuses by name."""
        ending = threading.Event()

        def send(name, port, path):
            while not ending.is_set():
                status, _ = get(port, path)
                counts[name][status] += 1
                ending.wait(0.01)

        targets = [("envoy", self.edge, "/envoy"), *((service.name, service.port, "/") for service in self.services)]
        with concurrent.futures.ThreadPoolExecutor(len(targets)) as threads:
            running = [threads.submit(send, *target) for target in targets]
            try:
                yield
            finally:
                ending.set()
            for one in running:
                one.result()

    def away(self, counts, answers):
        """Sends to every service until it has given so many answers more."""
        before = {name: sum(of.values()) for name, of in counts.items()}
        wait_for("the answers of every service",
                 lambda: all(sum(counts[service.name].values()) - before.get(service.name, 0) >= answers for service in self.services))

    def require_back(self):
        """Every service asks tollgate again, within a few seconds."""
        def asked(service):
            answers = []
            for _ in range(2):
                sources = self.stats_of(service)
                answers.append(sources["server"] + sources["lease"])
                get(service.port)
            return answers[1] > answers[0]

        for service in self.services:
            wait_for(f"{service.name} to ask tollgate again", lambda: asked(service))

    def faults(self):
        """Kills and stops tollgate under load, three times each."""
        # A limit that refuses nothing: refusals would come from the services' denial caches while tollgate is away.
        self.limit_by("unit: day, requests_per_unit: 1000000")
        self.tollgate.end()
        self.start_tollgate()
        self.require_back()
        usage = {}
        for turn in range(3):
            counts = collections.defaultdict(collections.Counter)
            with self.load(counts):
                self.away(counts, 20)
                alone = {name: of["sources"] for name, of in self.stats().items()}
                self.tollgate.end(signal.SIGKILL)
                # Leased hits are used first.
                for service in self.services:
                    wait_for(f"{service.name} to decide alone", lambda: self.stats_of(service)[service.policy] > alone[service.name][service.policy])
                gone = collections.defaultdict(collections.Counter)
                before = self.stats()
                for service in self.services:
                    for _ in range(30):
                        gone[service.name][get(service.port)[0]] += 1
                self.require_policies(gone, before)
                self.start_tollgate()
                self.require_back()
                self.tollgate.send(signal.SIGSTOP)
                self.away(counts, 12)
                self.tollgate.send(signal.SIGCONT)
                self.require_back()
            for service in self.services:
                service.require_running()
                strange = set(counts[service.name]) - {200, 429, 503}
                if strange:
                    raise Failed(f"{service.name} answered {dict(counts[service.name])}")
            # The first turn opens what a service opens once.
            now = {service.name: service.usage() for service in self.services}
            if turn == 0:
                usage = now
        for name, stats in self.stats().items():
            if stats["late"]:
                raise Failed(f"{name}: {stats['late']} of {stats['checks']} decisions came later than the deadline: {stats}")
        for name, before in usage.items():
            after = now[name]
            # A runtime may start a thread, or grow its heap, at any time; a leak grows with each of thousands of calls.
            if after["threads"] > before["threads"] + 8 or after["files"] > before["files"] + 8 or after["memory"] > before["memory"] * 1.5 + 32 * 1024:
                raise Failed(f"{name} grew from {before} to {after}")
        return {name: (usage[name], now[name]) for name in usage}

    def require_policies(self, gone, before):
        """While tollgate is away each service answers as its policy says."""
        after = self.stats()
        for service in self.services:
            statuses = gone[service.name]
            sources = {name: after[service.name]["sources"][name] - before[service.name]["sources"][name] for name in after[service.name]["sources"]}
            good = {
                "allow": set(statuses) == {200} and sources["allow"] >= 30,
                "deny": set(statuses) == {503} and sources["deny"] >= 30,
                "local": set(statuses) <= {200, 429} and sources["local"] >= 30,
            }[service.policy]
            if not good:
                raise Failed(f"{service.name} has on_error {service.policy} and answered {dict(statuses)} from {sources}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="kill and stop tollgate under load, and fail unless all is as promised")
    parser.add_argument("--bucket-minutes", type=float, default=0.5, help="with --check: how long a token bucket is asked")
    parser.add_argument("--tollgate", default=os.environ.get("TOLLGATE_BIN", str(ROOT / "target" / "debug" / "tollgate")))
    parser.add_argument("--envoy", default=str(ROOT / "target" / "venv" / "bin" / "envoy"))
    arguments = parser.parse_args()
    for language in [language for language, commands in SERVICES.items() if not is_built(commands)]:
        print(f"the service in {language} is left out: `make clients` did not build it", file=sys.stderr)
        if os.environ.get("CI"):
            return 1
        del SERVICES[language]
    demos = [(ON_ERROR, share)]
    if arguments.check:
        demos = [(ON_ERROR, share_and_faults), (["deny"], lambda demo: leases(demo, arguments.bucket_minutes))]
    for policies, walk in demos:
        with tempfile.TemporaryDirectory() as folder:
            demo = Demo(arguments.tollgate, arguments.envoy, pathlib.Path(folder), policies)
            try:
                demo.start()
                walk(demo)
            except Failed as failure:
                print(f"failed: {failure}", file=sys.stderr)
                return 1
            finally:
                stuck = demo.stop()
            if stuck:
                print(f"failed: SIGTERM did not end {', '.join(stuck)}", file=sys.stderr)
                return 1
    print("the demo passed")
    return 0


def share(demo):
    admitted, refused, other = demo.share()
    for name, count in sorted(admitted.items()):
        print(f"{name:8} {count:5} admitted")
    print(f"{'all':8} {admitted.total():5} admitted, {refused} refused, other answers: {dict(other) or 'none'}")
    if admitted.total() != LIMIT or other or refused != REQUESTS - LIMIT:
        raise Failed(f"not exactly {LIMIT} of {REQUESTS} requests were admitted")
    if set(admitted) != {*SERVICES, "envoy"}:
        raise Failed(f"admitted by {sorted(admitted)} only")


def leases(demo, bucket_minutes):
    demo.bucket(bucket_minutes)
    demo.limit_by(f"unit: day, requests_per_unit: {LIMIT}")
    demo.leases()


def share_and_faults(demo):
    share(demo)
    for name, (before, after) in demo.faults().items():
        print(f"{name:8} threads {before['threads']} -> {after['threads']}, files {before['files']} -> {after['files']}, "
              f"KiB {before['memory']} -> {after['memory']}")


if __name__ == "__main__":
    sys.exit(main())
