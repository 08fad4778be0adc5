"""Three real Envoys share a limit of 300 a second by the rate limit quota service.

Usage: quota.py TOLLGATE ENVOY

h2load offers each Envoy a rate. The table has the admitted rates before and after each change, and the time until they were
within 10 % of the fair shares. The program fails if a phase does not converge within a time to live, two reports and the
time of a plan, or if any ten seconds admit more than the limit and the stated burst (one second of the limit).
"""

import collections
import contextlib
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 300
TTL_SECONDS = 15
# An assignment counts 2 s longer than its time to live; Envoy reports every 5 s; the service plans twice a second.
CONVERGED_SECONDS_MAX = TTL_SECONDS + 2 + 2 * 5 + 1
RULES = f"""domain: edge
descriptors:
  - key: name
    value: api
    rate_limit: {{ unit: second, requests_per_unit: {LIMIT}, algorithm: token_bucket, rlqs: true }}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what, condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
    sys.exit(f"{what} took longer than 60 s")


def answers(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.status == 200


class Test:
    def __init__(self, tollgate, envoy, folder):
        self.tollgate, self.envoy, self.folder = tollgate, envoy, folder
        self.grpc, self.http = free_port(), free_port()
        (folder / "rules.yaml").write_text(RULES)
        self.children = []
        self.service = None
        self.ports = {}
        self.admitted = collections.Counter()

    def spawn(self, name, command):
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log)
        self.children.append(child)
        return child

    def start_tollgate(self):
        self.service = self.spawn("tollgate", [
            self.tollgate, "serve", str(self.folder / "rules.yaml"), "--grpc-host", "127.0.0.1", "--grpc-port", str(self.grpc),
            "--host", "127.0.0.1", "--port", str(self.http), "--debug-port", "0", "--quota-ttl-seconds", str(TTL_SECONDS)])
        wait_for("the start of tollgate", lambda: answers(self.http, "/readyz"))

    def start_envoy(self, name):
        words = {"admin": free_port(), "port": free_port(), "grpc": self.grpc}
        text = re.sub("@([a-z]+)@", lambda word: str(words[word[1]]), (HERE / "envoy.yaml").read_text())
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        child = self.spawn(name, [self.envoy, "-c", str(file), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"])
        wait_for(f"the start of {name}", lambda: answers(words["admin"], "/ready"))
        self.ports[name] = words["port"]
        return child

    def phase(self, title, offered, fair, seconds, within_seconds=CONVERGED_SECONDS_MAX):
        """Offers rates for a time, and finds when the admitted ones were fair."""
        loads = [(name, subprocess.Popen(
            ["h2load", "--h1", "-c", "1", "-D", str(seconds), "--rps", str(rate), f"--log-file={self.folder / name}.load",
             f"http://127.0.0.1:{self.ports[name]}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) for name, rate in offered.items()]
        began = int(time.time())
        for _, load in loads:
            load.wait()
        admitted = {name: collections.Counter() for name in offered}
        for name in offered:
            for line in (self.folder / f"{name}.load").read_text().splitlines():
                start_us, status, _ = line.split()
                if status == "200":
                    admitted[name][int(start_us) // 1_000_000] += 1
                    self.admitted[int(start_us) // 1_000_000] += 1
            (self.folder / f"{name}.load").unlink()

        def is_fair(at):
            return all(abs(admitted[name][at] - rate) <= max(rate * 0.1, 2) for name, rate in fair.items())

        # The last second that was not fair; the first and the last second are not whole.
        unfair = [at for at in range(began + 1, began + seconds - 1) if not is_fair(at)]
        converged = max(unfair) + 1 - began if unfair else 1
        rates = ", ".join(f"{name} {admitted[name][began + seconds - 3]}" for name in offered)
        print(f"| {title} | {', '.join(f'{name} {rate}' for name, rate in offered.items())} | {rates} | {converged} s |", flush=True)
        if converged > within_seconds:
            sys.exit(f"{title}: not fair within {within_seconds} s: {admitted}")

    def require_limit(self):
        most = max(sum(self.admitted[at + second] for second in range(10)) for at in list(self.admitted))
        print(f"most in any ten seconds: {most} of {10 * LIMIT} and a burst of {LIMIT}")
        if most > 11 * LIMIT:
            sys.exit("more than the limit and the burst was admitted")


def main():
    tollgate, envoy = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        test = Test(tollgate, envoy, pathlib.Path(folder))
        try:
            test.start_tollgate()
            envoys = {name: test.start_envoy(name) for name in ("a", "b", "c")}
            print("| change | offered a second | admitted a second at the end | fair after |\n| --- | --- | --- | --- |", flush=True)
            # After a start nothing is assigned for a time to live.
            test.phase("start", {"a": 400, "b": 50, "c": 10}, {"a": 240, "b": 50, "c": 10}, 40)
            test.phase("demand swapped", {"a": 10, "b": 50, "c": 400}, {"a": 10, "b": 50, "c": 240}, 40)
            envoys["c"].kill()
            envoys["c"].wait()
            test.start_envoy("d")
            test.phase("an Envoy killed, another started", {"a": 10, "b": 50, "d": 400}, {"a": 10, "b": 50, "d": 240}, 40)
            test.service.kill()
            test.service.wait()
            test.start_tollgate()
            # Envoys connect again at their next report, after the learning period.
            test.phase("tollgate killed and restarted", {"a": 10, "b": 50, "d": 400}, {"a": 10, "b": 50, "d": 240}, 50, 40)
            test.require_limit()
        finally:
            for child in test.children:
                child.kill()
                child.wait()


if __name__ == "__main__":
    main()
