"""Phases of load on Envoys that share a limit of 300 a second, and what they admitted.

It deliberately does not start processes (`stack`).
"""

import collections
import subprocess
import sys
import time
import urllib.request

from stack import EXAMPLE

RULES = EXAMPLE / "rules.yaml"
LIMIT = 300
TTL_SECONDS = 15
IDLE_SECONDS = 20
# An assignment counts 2 s longer than its time to live; Envoy reports every 5 s; the service plans
# twice a second. After a start two reports arrive while nothing is assigned.
CONVERGED_SECONDS_MAX = TTL_SECONDS + 2 + 2 * 5 + 1
# If the second report of an Envoy that was cut off comes after its old share expired, then others
# have that share, and it moves back.
CUT_OFF_SECONDS = 8
CUT_OFF_CONVERGED_SECONDS_MAX = CONVERGED_SECONDS_MAX + TTL_SECONDS + 2
# Rates are measured over so many seconds: h2load does not get the processor in every moment.
WINDOW_SECONDS = 5
# Requests a second of one connection.
CONNECTION_RATE = 10
# Load of a phase, beyond the time in which it must converge: seconds that must stay fair.
FAIR_SECONDS = 2 * WINDOW_SECONDS + 2
# In a phase with an event, the load begins so much earlier.
EVENT_AFTER_SECONDS = 5
TABLE_HEAD = """| change | offered a second | admitted a second at the end | fair after | all admitted in a second, at least |
| --- | --- | --- | --- | --- |"""


def metric(tollgate, line):
    """The value of a metric, or None."""
    with urllib.request.urlopen(f"http://127.0.0.1:{tollgate.http}/metrics", timeout=5) as answer:
        values = [float(words[1]) for words in map(str.split, answer.read().decode().splitlines()) if words[0] == line]
    return values[0] if values else None


class Phases:
    """Offers rates to Envoys, phase after phase, and keeps what all admitted in each second."""

    def __init__(self, folder):
        self.folder = folder
        self.admitted = collections.Counter()

    def load(self, name, port, rate, seconds):
        # A connection has one request in flight: with few requests a second it keeps its rate on a
        # machine that is busy.
        connections = max(1, rate // CONNECTION_RATE)
        log = self.folder / f"{name}.load"
        return log, subprocess.Popen(
            ["h2load", "--h1", "-c", str(connections), "-D", str(seconds), "--rps", str(rate / connections), f"--log-file={log}",
             f"http://127.0.0.1:{port}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(self, title, envoys, offered, fair, event=None, within_seconds=CONVERGED_SECONDS_MAX):
        """Offers a rate to each of the named Envoys, and finds when the admitted ones were fair.

        An event happens while the load runs; then the time counts from it.
        """
        seconds = within_seconds + FAIR_SECONDS + (EVENT_AFTER_SECONDS if event else 0)
        loads = {name: self.load(name, envoys[name].port, rate, seconds) for name, rate in offered.items()}
        began = changed = int(time.time())
        if event:
            time.sleep(EVENT_AFTER_SECONDS)
            changed = int(time.time())
            event()
        for _, load in loads.values():
            load.wait()
        admitted = {name: self.read(log, offered[name] * seconds) for name, (log, _) in loads.items()}

        def rate_from(name, at):
            return sum(admitted[name][at + second] for second in range(WINDOW_SECONDS)) / WINDOW_SECONDS

        def is_fair(at):
            return all(abs(rate_from(name, at) - rate) <= rate * 0.1 for name, rate in fair.items())

        # The first and the last second are not whole.
        measured = range(changed + 1, began + seconds - WINDOW_SECONDS)
        unfair = [at for at in measured if not is_fair(at)]
        converged = max(unfair) + 1 - changed if unfair else 1
        row = [title, ", ".join(f"{name} {rate}" for name, rate in offered.items()),
               ", ".join(f"{name} {rate_from(name, measured[-1]):.0f}" for name in offered), f"{converged} s",
               str(min(sum(counts[at] for counts in admitted.values()) for at in measured))]
        print(f"| {' | '.join(row)} |", flush=True)
        if converged > within_seconds:
            sys.exit(f"{title}: not fair within {within_seconds} s: {admitted}")
        if self.most_in_ten_seconds() > 11 * LIMIT:
            sys.exit(f"{title}: {self.most_in_ten_seconds()} in ten seconds are more than the limit and the burst")

    def read(self, log, offered):
        """Responses 200 by second. All responses must be as many as were offered."""
        admitted = collections.Counter()
        lines = log.read_text().splitlines()
        if len(lines) < 0.95 * offered:
            sys.exit(f"h2load sent {len(lines)} of {offered} requests: the machine is too busy")
        for line in lines:
            start_us, status, _ = line.split()
            if status == "200":
                admitted[int(start_us) // 1_000_000] += 1
        log.unlink()
        self.admitted += admitted
        return admitted

    def most_in_ten_seconds(self):
        return max(sum(self.admitted[at + second] for second in range(10)) for at in list(self.admitted))

    def print_most(self):
        print(f"\nMost in any ten seconds: {self.most_in_ten_seconds()}, of {10 * LIMIT} and a burst of {LIMIT}.")
