"""Three real Envoys share a limit of 300 a second by the rate limit quota service.

Usage: quota.py TOLLGATE ENVOY

The rules and Envoy's bootstrap are those of examples/quotas. h2load offers each Envoy a rate. Then
the rates change, a stream is cut, a bucket is abandoned, and Envoy and tollgate are killed. The table
that is printed has, for each change, the time until the admitted rates of five seconds were within
10 % of the fair shares. The program fails if a change takes longer than a time to live, two reports,
the delivery and a plan, or if any ten seconds admit more than the limit and the stated burst (one
second of the limit). An Envoy that is cut off for some seconds may take another time to live.
"""

import sys
import tempfile
import time

from phases import CUT_OFF_CONVERGED_SECONDS_MAX, CUT_OFF_SECONDS, IDLE_SECONDS, RULES, TABLE_HEAD, TTL_SECONDS, Phases, metric
from stack import CutProxy, Stack, wait_for

SETTINGS = ["--quota-ttl-seconds", TTL_SECONDS, "--quota-idle-seconds", IDLE_SECONDS]


def require_abandoned(tollgate):
    line = 'tollgate_quota_actions_total{action="abandoned"}'
    wait_for("the end of the idle part", lambda: metric(tollgate, line) == 1 and metric(tollgate, "tollgate_quota_shares") == 2)


def main():
    with tempfile.TemporaryDirectory() as folder, Stack(*sys.argv[1:], folder) as stack:
        tollgate = stack.start_tollgate(RULES, SETTINGS)
        proxy = CutProxy(tollgate.grpc)
        envoys = {name: stack.start_example(name, tollgate.grpc) for name in ("a", "b", "c")}
        phases = Phases(stack.folder)
        print(TABLE_HEAD, flush=True)
        # After a start nothing is assigned for a time to live.
        phases.run("tollgate and Envoys started", envoys, {"a": 400, "b": 50, "c": 10}, {"a": 240, "b": 50, "c": 10})
        phases.run("demand swapped", envoys, {"a": 10, "b": 50, "c": 400}, {"a": 10, "b": 50, "c": 240})
        envoys["c"].kill()
        envoys["d"] = stack.start_example("d", proxy.port)
        offered, fair = {"a": 10, "b": 50, "d": 400}, {"a": 10, "b": 50, "d": 240}
        phases.run("Envoy c killed, d started", envoys, offered, fair)

        def cut():
            if proxy.cut() != 1:
                sys.exit("d had not exactly one connection to tollgate")

        phases.run("the stream of d cut", envoys, offered, fair, cut)

        def restart():
            tollgate.kill()
            stack.start_tollgate(RULES, SETTINGS, (tollgate.grpc, tollgate.http))

        phases.run("tollgate killed and restarted", envoys, offered, fair, restart)
        phases.run("no requests at d", envoys, {"a": 400, "b": 50}, {"a": 240, "b": 50})
        require_abandoned(tollgate)
        offered, fair = {"a": 400, "b": 50, "d": 400}, {"a": 120, "b": 50, "d": 120}
        phases.run("requests at d again, after its bucket was abandoned", envoys, offered, fair)

        def cut_off():
            """d keeps what it was assigned, and others want it."""
            proxy.refuses = True
            cut()
            time.sleep(CUT_OFF_SECONDS)
            proxy.refuses = False

        phases.run(f"d cut off from tollgate for {CUT_OFF_SECONDS} s", envoys, offered, fair, cut_off, CUT_OFF_CONVERGED_SECONDS_MAX)
        phases.print_most()


if __name__ == "__main__":
    main()
