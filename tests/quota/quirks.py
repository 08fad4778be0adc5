"""What the quota filter of Envoy 1.40 does, case by case, with a scripted service.

Usage: quirks.py TOLLGATE ENVOY

The program prints what it observed, and fails if Envoy does not do what docs/quotas.md says under
"What Envoy 1.40 does". tollgate only describes the messages here.
"""

import contextlib
import http.client
import signal
import sys
import tempfile
import threading
import time

import rlqs
from cases import ALLOWED, CASES, COUNTED, CRASH, OFFERED, STREAM, bootstrap
from stack import Stack, reserved_port, wait_for

SECONDS = 22
# How much sooner or later than a case says an answer may change: less than the 0.9 s that are
# cut off.
SOONER_SECONDS_MAX, LATER_SECONDS_MAX = 0.3, 0.8
WORDS = {200: "allowed", 429: "denied"}


class Requests(threading.Thread):
    """Sends requests of one case at a steady rate, and records when each was answered and how."""

    def __init__(self, name, port, seconds):
        super().__init__(daemon=True)
        self.case, self.port, self.seconds = name, port, seconds
        self.results = []
        self.start()

    def run(self):
        begun = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            for number in range(self.seconds * OFFERED):
                time.sleep(max(0, begun + number / OFFERED - time.monotonic()))
                at = time.monotonic()
                connection.request("GET", "/", headers={"x-case": self.case})
                with connection.getresponse() as answer:
                    answer.read()
                self.results.append((at, answer.status))

    def changes(self):
        """The seconds at which the answer was another than before, and the answer."""
        changes = []
        for at, status in self.results:
            if not changes or changes[-1][1] != status:
                changes.append((at - self.results[0][0], status))
        return changes

    def allowed(self):
        return sum(status == ALLOWED for _, status in self.results)


class Report:
    """The rows that are printed, and whether all were as expected."""

    def __init__(self):
        self.failed = []

    def row(self, case, observed, expected):
        print(f"| {case} | {observed} |", flush=True)
        if not expected:
            self.failed.append(case)


def start(stack, classes, cases, name):
    """A service and an Envoy with these cases."""
    service = rlqs.Service(classes, {case: actions for case, (_, actions, *_) in cases.items()})
    admin, port = reserved_port(), reserved_port()
    return service, stack.start_envoy(name, bootstrap(cases, admin, port, service.port), admin, port)


def is_as(changes, expected):
    return len(changes) == len(expected) and all(
        status == wanted and -SOONER_SECONDS_MAX <= at - second <= LATER_SECONDS_MAX
        for (at, status), (second, wanted) in zip(changes, expected))


def check_behaviours(report, requests):
    for case, (_, _, expected) in CASES.items():
        changes = requests[case].changes()
        text = ", ".join(f"{WORDS.get(status, status)} from {at:.1f} s" for at, status in changes[:8])
        report.row(case, text, is_as(changes, expected))
    for case, (_, _, (least, most)) in COUNTED.items():
        allowed = requests[case].allowed()
        report.row(case, f"{allowed} of {len(requests[case].results)} allowed", least <= allowed <= most)


def check_reports(report, service, requests):
    """When reports come, what they measure, and which buckets they list."""
    whole = [entry for entry in service.reports if entry[3] > 1]
    gaps = [later[0] - earlier[0] for earlier, later in zip(whole, whole[1:])]
    for case in "reports-1s", "reports-20s":
        usages = service.of(case)
        between = [later.at - earlier.at for earlier, later in zip(usages, usages[1:])]
        report.row(case, "seconds between reports: " + ", ".join(f"{gap:.2f}" for gap in between),
                   len(between) >= 3 and between[0] < 5.5 and all(abs(gap - 5) < 0.5 for gap in between[1:]))
    report.row("all buckets in each report", f"{[entry[3] for entry in whole]} of {len(CASES) + len(COUNTED)}",
               len(gaps) >= 2 and all(entry[3] == len(CASES) + len(COUNTED) for entry in whole))
    report.row("domain", "in every report", all(entry[2] == "quirks" for entry in service.reports))
    usages = service.of("reports-1s")
    elapsed = [(usage.seconds, usage.nanos) for usage in usages]
    report.row("time_elapsed", elapsed, elapsed[0] == (0, 0) and all(nanos == 0 and 0 < seconds <= 5 for seconds, nanos in elapsed[1:]))
    counted = sum(usage.allowed + usage.denied for usage in usages)
    sent = sum(at <= usages[-1].at for at, _ in requests["reports-1s"].results)
    report.row("requests and reported", f"{sent} and {counted}", abs(sent - counted) <= 2)
    again = [usage for usage in service.of("abandoned") if usage.at - usages[0].at < 4.5]
    report.row("abandoned, reports in 4.5 s", [f"{usage.at - again[0].at:.1f} s" for usage in again], len(again) == 2)


def check_stream(report, stack, classes):
    """A stream that the service ends, and a service that is away while a report is due."""
    service, envoy = start(stack, classes, STREAM, "stream")
    requests = Requests("stream", envoy.port, 32)
    first = 0

    def reported(number):
        wait_for(f"report {number}", lambda: len(service.of("stream")) >= number)
        return service.of("stream")[number - 1]

    def reported_and_sent(after, until):
        usages = [usage for usage in service.of("stream") if after < usage.at <= until]
        return sum(usage.allowed + usage.denied for usage in usages), sum(after < at <= until for at, _ in requests.results)

    first = reported(2).at
    time.sleep(1)
    service.end_streams()
    ended = time.monotonic()
    again = reported(3)
    counted, sent = reported_and_sent(first, again.at)
    report.row("stream ended: opened again after", f"{again.at - ended:.1f} s, with {counted} of {sent} requests", again.stream == 2 and 2 < again.at - ended < 5.5)
    time.sleep(1)
    service.stop()
    # One report is due while nothing listens.
    time.sleep(6)
    service.start()
    back = reported(4)
    counted, sent = reported_and_sent(again.at, back.at)
    report.row("service away for 6 s: reported of the requests", f"{counted} of {sent}", 0.3 < counted / sent < 0.7)
    requests.join()
    denied = len(requests.results) - requests.allowed()
    report.row("service away: denied, of an assignment in force", denied, denied == 1)
    service.stop()


def check_crash(report, stack, classes):
    """A token bucket as no_assignment_behavior."""
    service, envoy = start(stack, classes, CRASH, "crash")
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
    answered = 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        for _ in range(20):
            connection.request("GET", "/", headers={"x-case": "unassigned-bucket"})
            connection.getresponse().read()
            answered += 1
            time.sleep(0.1)
    with contextlib.suppress(TimeoutError):
        wait_for("the end of Envoy", lambda: envoy.process.poll() is not None)
    code = envoy.process.returncode
    report.row("unassigned-bucket", f"Envoy ended by signal {-code} after {answered} answers", code in (-signal.SIGSEGV, -signal.SIGABRT))
    service.stop()


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder, Stack(*sys.argv[1:], folder) as stack:
        rules = stack.folder / "rules.yaml"
        rules.write_text("domain: quirks\ndescriptors:\n  - key: name\n")
        classes = rlqs.messages(stack.start_tollgate(rules).grpc)
        print("| case | observed |\n| --- | --- |")
        check_crash(report, stack, classes)
        service, envoy = start(stack, classes, CASES | COUNTED, "quirks")
        requests = {case: Requests(case, envoy.port, SECONDS) for case in CASES | COUNTED}
        for one in requests.values():
            one.join()
        check_behaviours(report, requests)
        check_reports(report, service, requests)
        service.stop()
        check_stream(report, stack, classes)
    if report.failed:
        sys.exit(f"Envoy does not do what docs/quotas.md says: {', '.join(report.failed)}")


if __name__ == "__main__":
    main()
