"""Three real Envoys, two tollgates and one Redis share a limit of 300 a second.

Usage: replicas.py TOLLGATE ENVOY

Envoy a is connected to one tollgate, b and c to the other. Then the demand is swapped, Redis loses
its data, and the tollgate of a is killed, whose Envoy goes to the other. The program prints a table
as quota.py does, and fails if a change takes longer than its bound, or if any ten seconds admit more
than the limit and the stated burst.
"""

import sys
import tempfile

from phases import CONVERGED_SECONDS_MAX, RULES, TABLE_HEAD, TTL_SECONDS, Phases, metric
from stack import CutProxy, Stack, wait_for

# A replica asks Redis once a second, uses what it was promised after two more seconds, and others
# see its demand a second later.
LEASED_SECONDS = 5
# A lease of a replica that has ended is removed after its assignments and 7 s.
ENDED_SECONDS = TTL_SECONDS + 2 + 7
SHARED_SECONDS_MAX = CONVERGED_SECONDS_MAX + LEASED_SECONDS
# At the first start, and after Redis has lost its data, a lease does not grow for as long.
LEARNT_SECONDS_MAX = SHARED_SECONDS_MAX + ENDED_SECONDS


def main():
    with tempfile.TemporaryDirectory() as folder, Stack(*sys.argv[1:], folder) as stack:
        redis = stack.start_redis()
        settings = ["--quota-ttl-seconds", TTL_SECONDS, "--store", f"redis://127.0.0.1:{redis.port}"]
        one, two = (stack.start_tollgate(RULES, settings) for _ in range(2))
        to_one = CutProxy(one.grpc)
        envoys = {"a": stack.start_example("a", to_one.port)}
        envoys |= {name: stack.start_example(name, two.grpc) for name in ("b", "c")}
        phases = Phases(stack.folder)
        print(TABLE_HEAD, flush=True)
        offered, fair = {"a": 400, "b": 50, "c": 10}, {"a": 240, "b": 50, "c": 10}
        phases.run("Redis, tollgates and Envoys started", envoys, offered, fair, within_seconds=LEARNT_SECONDS_MAX)
        for tollgate, streams in ((one, 1), (two, 2)):
            if metric(tollgate, "tollgate_quota_streams") != streams:
                sys.exit(f"a tollgate has not {streams} streams")
        offered, fair = {"a": 10, "b": 50, "c": 400}, {"a": 10, "b": 50, "c": 240}
        phases.run("demand swapped", envoys, offered, fair, within_seconds=SHARED_SECONDS_MAX)

        def lose_data():
            redis.kill()
            stack.start_redis(redis.port)

        phases.run("Redis killed, and started without its data", envoys, offered, fair, lose_data, LEARNT_SECONDS_MAX)
        offered, fair = {"a": 400, "b": 50, "c": 400}, {"a": 120, "b": 50, "c": 120}
        phases.run("demand of a rises", envoys, offered, fair, within_seconds=LEARNT_SECONDS_MAX)

        def kill_one():
            to_one.target = two.grpc
            one.kill()

        phases.run("the tollgate of a killed", envoys, offered, fair, kill_one, SHARED_SECONDS_MAX + ENDED_SECONDS)
        wait_for("the streams of all", lambda: metric(two, "tollgate_quota_streams") == 3)
        phases.print_most()


if __name__ == "__main__":
    main()
