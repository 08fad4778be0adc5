"""What Envoy saves by quotas: latency and CPU of a request without a limit, with RLS, with RLQS.

One Envoy has three listeners in front of one backend: without a limit, with the filter of RLS (a call
for each request), and with that of RLQS. Both filters use one tollgate. h2load sends to the listeners
one after the other, many times over, so that all meet the same machine: at a fixed rate, where latency
is comparable, and as fast as it can.

`make bench-quotas` prints the table; with BENCH=--write it also writes it into docs/quotas.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "quota"))

from stack import Stack, reserved_port, wait_for  # noqa: E402

PAGE = ROOT / "docs" / "quotas.md"
CONNECTIONS = 8
LEGS = ["none", "RLS", "RLQS"]
RULES = """domain: bench
descriptors:
  - key: generic_key
    value: bench
    rate_limit: { unit: day, requests_per_unit: 1000000000 }
  - key: name
    value: bench
    rate_limit: { unit: second, requests_per_unit: 1000000, algorithm: token_bucket, rlqs: true }
"""
TYPE = "type.googleapis.com/envoy.extensions."


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name, port, http2=False):
    result = {"name": name, "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}]}}
    if http2:
        result["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": TYPE + "upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}}
    return result


def listener(port, route, filters=()):
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}}
    manager = {"@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": f"port{port}",
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **route}]}]},
               "http_filters": [*filters, router]}
    return {"address": address(port), "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}


def bootstrap(admin, listeners, clusters=()):
    return json.dumps({"admin": {"address": address(admin)}, "static_resources": {"listeners": list(listeners), "clusters": list(clusters)}})


def limited(ports, backend, grpc, admin):
    """The configuration of the Envoy that is measured."""
    call = {"envoy_grpc": {"cluster_name": "tollgate"}}
    rls = {"name": "envoy.filters.http.ratelimit", "typed_config": {
        "@type": TYPE + "filters.http.ratelimit.v3.RateLimit", "domain": "bench", "timeout": "1s", "failure_mode_deny": True,
        "rate_limit_service": {"transport_api_version": "V3", "grpc_service": call}}}
    path = {"name": "path", "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": ":path"}}
    settings = {"@type": TYPE + "filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings", "reporting_interval": "5s",
                "bucket_id_builder": {"bucket_id_builder": {"name": {"string_value": "bench"}}},
                "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": "DENY_ALL"}}}
    rlqs = {"name": "envoy.filters.http.rate_limit_quota", "typed_config": {
        "@type": TYPE + "filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig", "domain": "bench", "rlqs_server": call,
        "bucket_matchers": {"matcher_list": {"matchers": [{
            "predicate": {"single_predicate": {"input": path, "value_match": {"prefix": "/"}}},
            "on_match": {"action": {"name": "quota", "typed_config": settings}}}]}}}}
    plain = {"route": {"cluster": "backend"}}
    checked = {"route": {"cluster": "backend", "rate_limits": [{"actions": [{"generic_key": {"descriptor_value": "bench"}}]}]}}
    return bootstrap(admin, [listener(ports["none"], plain), listener(ports["RLS"], checked, [rls]), listener(ports["RLQS"], plain, [rlqs])],
                     [cluster("backend", backend), cluster("tollgate", grpc, http2=True)])


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def passes(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


def measure(port, seconds, rate, envoy, tollgate, folder):
    """Figures of one leg by name. Every response must be 200."""
    log = folder / "load"
    before = cpu_seconds(envoy), cpu_seconds(tollgate)
    pace = ["--rps", str(rate // CONNECTIONS)] if rate else []
    subprocess.run(["h2load", "--h1", "-c", str(CONNECTIONS), "-D", str(seconds), *pace, f"--log-file={log}", f"http://127.0.0.1:{port}/"],
                   stdout=subprocess.DEVNULL, check=True, timeout=60)
    after = cpu_seconds(envoy), cpu_seconds(tollgate)
    rows = [line.split() for line in log.read_text().splitlines()]
    log.unlink()
    if not rows or any(status != "200" for _, status, _ in rows):
        sys.exit(f"{sum(status != '200' for _, status, _ in rows)} of {len(rows)} responses were not 200")
    latencies = sorted(int(latency) for *_, latency in rows)
    used = [(late - early) / len(rows) * 1e6 for early, late in zip(before, after)]
    return {"requests a second": len(rows) / seconds, "median, µs": latencies[len(latencies) // 2], "99 %, µs": latencies[len(latencies) * 99 // 100],
            "CPU of Envoy, µs a request": used[0], "CPU of tollgate, µs a request": used[1], "CPU of both, µs a request": sum(used)}


def spread(values, digits):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def table(rounds, rate):
    lines = ["| | no limit | RLS | RLQS | RLQS / RLS | RLQS / no limit |", "| --- | --- | --- | --- | --- | --- |"]
    for pace, title in ((rate, f"{rate:,} requests a second"), (0, "as fast as possible")):
        for figure in rounds[0][pace, "none"]:
            # The rate is given, or else the latency is that of a queue.
            if figure in (["requests a second"] if pace else ["median, µs", "99 %, µs"]):
                continue
            values = {leg: [one[pace, leg][figure] for one in rounds] for leg in LEGS}
            ratios = []
            for base in "RLS", "none":
                # A ratio of each round. The CPU of tollgate without RLS is too little for one.
                known = min(values[base]) > 0 and not (base == "none" and "tollgate" in figure)
                ratios.append(spread([mine / other for mine, other in zip(values["RLQS"], values[base])], 2) if known else "-")
            digits = 1 if "CPU" in figure else 0
            lines.append(f"| {title}: {figure} | {' | '.join([spread(values[leg], digits) for leg in LEGS] + ratios)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=5, help="length of one leg of a round")
    parser.add_argument("--rate", type=int, default=2000, help="requests a second of the legs at a fixed rate")
    parser.add_argument("--write", action="store_true", help="write the table into docs/quotas.md")
    parser.add_argument("--tollgate", default=str(ROOT / "target" / "dist" / "tollgate"))
    parser.add_argument("--envoy", default=str(ROOT / "target" / "venv" / "bin" / "envoy"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Stack(arguments.tollgate, arguments.envoy, folder) as stack:
        (stack.folder / "rules.yaml").write_text(RULES)
        service = stack.start_tollgate(stack.folder / "rules.yaml", ["--quota-ttl-seconds", 15])
        backend, ports = reserved_port(), {leg: reserved_port() for leg in LEGS}
        admin = reserved_port()
        stack.start_envoy("backend", bootstrap(admin, [listener(backend, {"direct_response": {"status": 200, "body": {"inline_string": "hello"}}})]), admin, backend)
        admin = reserved_port()
        envoy = stack.start_envoy("limited", limited(ports, backend, service.grpc, admin), admin, ports["none"])
        # The quota filter denies until it is assigned a share. That shows that it is in the path.
        if passes(ports["RLQS"]):
            sys.exit("a request passed the quota filter before an assignment")
        for leg in LEGS:
            wait_for(f"a response 200 of {leg}", lambda: passes(ports[leg]))

        def leg_of(pace, leg, seconds):
            return measure(ports[leg], seconds, pace, envoy.process, service.process, stack.folder)

        paces = [arguments.rate, 0]
        for leg in LEGS:
            leg_of(arguments.rate, leg, 2)
        load = os.getloadavg()[0]
        rounds = []
        for turn in range(arguments.rounds):
            first = turn % len(LEGS)
            rounds.append({(pace, leg): leg_of(pace, leg, arguments.seconds) for pace in paces for leg in LEGS[first:] + LEGS[:first]})
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/stats?filter=ratelimit.ok", timeout=5) as answer:
            checked = sum(int(line.split()[-1]) for line in answer.read().decode().splitlines())
        asked = sum(one[pace, "RLS"]["requests a second"] for one in rounds for pace in paces) * arguments.seconds
        if checked < asked:
            sys.exit(f"tollgate answered {checked} of {asked:.0f} requests with RLS")
    model = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    lines = table(rounds, arguments.rate)
    lines += ["", f"Measured on {datetime.date.today()} at {commit} by `make bench-quotas`: {os.cpu_count()} cores of an {model}. Each figure is the median of "
              f"{arguments.rounds} rounds of {arguments.seconds} s, with the least and the most. Rounds alternate between the listeners. {CONNECTIONS} connections of HTTP/1.1; "
              "Envoy has one worker. The load generator, the backend and all servers share the cores "
              f"with other work: the load average was {load:.1f} before."]
    text = "\n".join(lines)
    print(text)
    if arguments.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(r"(<!-- quota-cost -->\n).*?(<!-- /quota-cost -->)", lambda found: found[1] + text + "\n" + found[2], page, flags=re.S))


if __name__ == "__main__":
    main()
