"""A million tenants on three plans, three replicas on one Redis: every decision, and what the change of a plan costs.

The walk asks for all tenants four times over `/json`, each time on another replica. Meanwhile a plan is raised, one tenant
is overridden for five seconds, one blocked, and one penalised. A naive count says what each answer must be. While the plan
is raised, a replica goes over to the new limit once, and all answers of a request are by one limit. Any difference is
printed, and the exit code is 1.

Then h2load sends checks to all replicas, in legs that alternate: in every other leg the plan is changed every two seconds.
`make bench-tenants` runs this after `cost.py`, with which it shares its parts.
"""

import contextlib
import datetime
import http.client
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from cost import Service, bytes_at_start, load, parse_options, print_latencies, reserved_port, resident_bytes

RULES = """domain: d
plans:
  free: {{ unit: year, requests_per_unit: 1 }}
  pro: {{ unit: year, requests_per_unit: {}, penalty: {{ after: 5, within: 1d, block: 1d }} }}
  max: {{ unit: year, requests_per_unit: 1000000000 }}
descriptors:
  - key: tenant
    plan: free
    limits_from: tenants.csv
"""

# Requests a year of the plan `pro`, before and after it is raised.
BEFORE, RAISED = 2, 3

# Tenants that the walk treats differently: of `free`, of `pro` and of `max`.
OVERRIDDEN, PENALISED, BLOCKED = 0, 1, 2

# How many tenants one request asks for.
AT_ONCE = 250

OVERRIDE_SECONDS = 5

PATIENCE_SECONDS = 60


def name(number):
    return f"tenant-{number:08}"


def write_rules(path, limit):
    path.with_suffix(".next").write_text(RULES.format(limit))
    os.replace(path.with_suffix(".next"), path)


def send(connection, method, path, body):
    connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status not in (200, 429):
        raise SystemExit(f"{method} {path}: {response.status} {text.decode()}")
    return json.loads(text)


def statuses(connection, numbers, **more):
    """The answers for these tenants."""
    descriptors = [{"entries": [{"key": "tenant", "value": name(number)}], **more} for number in numbers]
    return send(connection, "POST", "/json", {"domain": "d", "descriptors": descriptors})["statuses"]


class Replica(Service):
    def connect(self, port=1):
        return http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=60)

    def change(self, method, path, number, **more):
        body = {"domain": "d", "descriptor": [{"key": "tenant", "value": name(number)}], **more}
        return send(self.connect(2), method, path, body)


def wait_for(replicas, metric, value):
    end = time.monotonic() + PATIENCE_SECONDS
    while any(replica.metric(metric) != value for replica in replicas):
        if time.monotonic() > end:
            raise SystemExit(f"{metric} is not {value} on every replica after {PATIENCE_SECONDS} s")
        time.sleep(0.01)


class Walk:
    """Asks for tenants and counts what each may have."""

    def __init__(self, replicas, tenants):
        self.replicas = replicas
        self.used = bytearray(tenants)
        self.refused = set()  # whatever is left of their limit
        self.asked = 0
        self.differences = []

    def ask(self, connection, numbers, limits):
        """Asks for these once. Of `limits` of `pro`, those that no longer decide are removed."""
        answers = list(zip(numbers, statuses(connection, numbers), strict=True))
        shown = [answer["currentLimit"]["requestsPerUnit"] for number, answer in answers if number % 3 == 1]
        if len(limits) > 1 and shown and shown[0] == limits[1]:
            limits.pop(0)
        if any(limit != limits[0] for limit in shown):
            self.differences.append(f"limits of {name(numbers[0])} and the next: {shown}, expected {limits}")
        for number, answer in answers:
            limit = (1, limits[0], 10**9)[number % 3]
            passes = self.used[number] < limit and number not in self.refused
            self.used[number] += passes
            if passes != (answer["code"] == "OK"):
                self.differences.append(f"{name(number)}: {answer}, used {self.used[number]} of {limit}")
        self.asked += len(answers)

    def ask_one(self, number, times, limit):
        for replica in itertools.islice(itertools.cycle(self.replicas), times):
            self.ask(replica.connect(), [number], [limit])

    def round(self, shift, *limits):
        """Asks for all once, a third on each replica."""
        tenants = range(OVERRIDDEN + 1, len(self.used))
        third = -(-len(tenants) // 3)

        def part(number):
            connection = self.replicas[(number + shift) % 3].connect()
            left = list(limits)
            mine = tenants[number * third : (number + 1) * third]
            for first in range(0, len(mine), AT_ONCE):
                self.ask(connection, mine[first : first + AT_ONCE], left)
            if left != [limits[-1]]:
                self.differences.append(f"part {number} of a round ended with the limits {left}")

        with ThreadPoolExecutor() as pool:
            list(pool.map(part, range(3)))

    def override_for_a_while(self):
        """A tenant that has nothing left has no limit for some seconds: on each replica it is refused, passes, and is
        refused. Gives in how many seconds each began and ended to let it pass."""
        connections = [replica.connect() for replica in self.replicas]
        verdicts = [[] for _ in connections]

        def watch(seconds):
            end = time.time() + seconds
            while time.time() < end:
                for connection, seen in zip(connections, verdicts):
                    before = time.time()
                    passes = statuses(connection, [OVERRIDDEN])[0]["code"] == "OK"
                    seen.append((passes, before, time.time()))
                    self.asked += 1
                time.sleep(0.02)

        statuses(connections[0], [OVERRIDDEN])
        watch(1)
        done = self.replicas[0].change("PUT", "/overrides", OVERRIDDEN, unlimited=True, for_seconds=OVERRIDE_SECONDS)
        begin = time.time()
        until = datetime.datetime.fromisoformat(done["override"]["until"]).timestamp()
        watch(OVERRIDE_SECONDS + 2)
        times = []
        for number, seen in enumerate(verdicts):
            order = [passes for passes, _ in itertools.groupby(passes for passes, _, _ in seen)]
            passed = [(before, after) for passes, before, after in seen if passes]
            times.append((passed[0][1] - begin, passed[-1][0] - until) if passed else (9, 9))
            if order != [False, True, False] or times[-1][0] > 2 or times[-1][1] > 1:
                self.differences.append(f"overridden, replica {number}: {order}, from and after its time: {times[-1]}")
        return times


def walk(replicas, folder, options):
    """The walk. Gives it, and the times of the override."""
    walk = Walk(replicas, options.lines)
    walk.round(0, BEFORE)
    walk.round(1, BEFORE)
    walk.ask_one(PENALISED, 5, BEFORE)
    walk.refused |= {PENALISED, BLOCKED}
    replicas[1].change("PUT", "/overrides", BLOCKED, blocked=True, for_seconds=86_400)
    wait_for(replicas, "tollgate_overrides", 1)
    with ThreadPoolExecutor() as pool:
        overridden = pool.submit(walk.override_for_a_while)
        third = pool.submit(walk.round, 2, BEFORE, RAISED)
        time.sleep(options.raise_after)
        write_rules(folder / "rules.yaml", RAISED)
        third.result()
        times = overridden.result()
    walk.round(3, RAISED)
    replicas[2].change("DELETE", "/overrides", BLOCKED)
    wait_for(replicas, "tollgate_overrides", 0)
    walk.refused.clear()
    walk.ask_one(BLOCKED, 3, RAISED)
    time.sleep(1)  # The denial cache repeats a refusal for at most a second.
    replicas[0].change("POST", "/reset", PENALISED)
    walk.used[PENALISED] = 0
    walk.ask_one(PENALISED, RAISED + 1, RAISED)
    return walk, times


def watch_plan(replicas, folder, options, path):
    """Writes rules with other limits of `pro` to this path every two seconds, and peeks meanwhile. Gives after how many
    seconds each was in use on all replicas."""
    connections = [replica.connect() for replica in replicas]
    taken = []
    for change in range(options.seconds // 2):
        begin = time.monotonic()
        limit = 10 + change + options.seconds * int(begin)
        write_rules(folder / path, limit)
        pending = set(range(3))
        while time.monotonic() < begin + 2:
            for number, connection in enumerate(connections):
                (answer,) = statuses(connection, [4], hitsAddend="0")
                if number in pending and answer["currentLimit"]["requestsPerUnit"] == limit:
                    pending.remove(number)
                    if not pending:
                        taken.append(time.monotonic() - begin)
            time.sleep(0.01)
    return taken


def main():
    options = parse_options(__doc__, lambda parser: parser.add_argument("--raise-after", type=float, default=3))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as at_end:
        folder = pathlib.Path(folder)
        port = reserved_port()
        command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]
        at_end.callback(subprocess.Popen(command, stdout=subprocess.DEVNULL).kill)
        arguments = ["--store", f"redis://127.0.0.1:{port}", "--store-deadline-ms", "20000"]
        write_rules(folder / "rules.yaml", BEFORE)
        (folder / "tenants.csv").write_text(f"value,plan\n{name(0)},free\n")
        bytes_without = bytes_at_start(options, folder, arguments)
        lines = (f"{name(number)},{('free', 'pro', 'max')[number % 3]}\n" for number in range(options.lines))
        (folder / "tenants.csv").write_text("value,plan\n" + "".join(lines))
        replicas = [Replica(options.binary, folder, arguments, f"log-{number}") for number in range(3)]
        for replica in replicas:
            at_end.callback(replica.process.kill)
        wait_for(replicas, "tollgate_store_up", 1)
        time.sleep(options.settle)
        more = resident_bytes(replicas[0].process.pid) - bytes_without
        begin = time.monotonic()
        walked, times = walk(replicas, folder, options)
        walk_seconds = time.monotonic() - begin
        legs, taken = {"no change": [], "change": []}, []
        load(replicas, folder, options)
        for _ in range(options.rounds):
            for leg, path in (("no change", "unused.yaml"), ("change", "rules.yaml")):
                during = lambda: watch_plan(replicas, folder, options, path)
                latencies, in_use = load(replicas, folder, options, during)
                legs[leg].append(latencies)
                taken += in_use
    starts = statistics.median(replica.start_seconds for replica in replicas)
    print(f"{options.lines:,} tenants of 15 bytes on three plans, three replicas on one Redis")
    print(f"serve, from start to ready:    {starts:.2f} s (median of 3)")
    print(f"memory a tenant besides text:  {more / options.lines - len(name(0)):.0f} bytes resident after the load")
    print(f"walk:                          {walked.asked:,} decisions in {walk_seconds:.0f} s, {len(walked.differences)} differ")
    first, last = zip(*times)
    print(f"override of {OVERRIDE_SECONDS} s:               in force on every replica after {max(first):.2f} s")
    print(f"                               last let one pass {min(last):+.2f} to {max(last):+.2f} s from its end")
    print(f"changed plan, on all replicas: {statistics.median(taken):.2f} s (median of {len(taken)}), at most {max(taken):.2f} s")
    print_latencies(options, legs)
    if walked.differences:
        raise SystemExit("\n".join(walked.differences[:20]))


if __name__ == "__main__":
    main()
