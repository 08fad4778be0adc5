"""The cases of quirks.py: settings of a bucket, what the scripted service answers, what Envoy does.

It deliberately does not run them.
"""

import json

ALLOW, DENY = {"blanket_rule": "ALLOW_ALL"}, {"blanket_rule": "DENY_ALL"}
# In the service's messages, an enumeration is a number.
SEND_ALLOW, SEND_DENY = {"blanket_rule": 0}, {"blanket_rule": 1}
# Requests a second that each case offers.
OFFERED = 10
FALLBACK_SECONDS = 4


def bucket(tokens, fill_seconds, nanos=0, per_fill=None):
    return {"token_bucket": {"max_tokens": tokens, "tokens_per_fill": {"value": per_fill or tokens},
                             "fill_interval": {"seconds": fill_seconds, "nanos": nanos}}}


def assign(strategy, seconds=None, nanos=0):
    action = {"rate_limit_strategy": strategy}
    if seconds is not None:
        action["assignment_time_to_live"] = {"seconds": seconds, "nanos": nanos}
    return {"quota_assignment_action": action}


def settings(no_assignment=None, expired=None, timeout=None, reuse=False, reporting="5s"):
    """RateLimitQuotaBucketSettings without the id."""
    result = {"reporting_interval": reporting}
    if no_assignment:
        result["no_assignment_behavior"] = {"fallback_rate_limit": no_assignment}
    if expired or reuse:
        result["expired_assignment_behavior"] = {"reuse_last_assignment": {}} if reuse else {"fallback_rate_limit": expired}
        if timeout:
            result["expired_assignment_behavior"]["expired_assignment_behavior_timeout"] = timeout
    return result


TIMEOUT = f"{FALLBACK_SECONDS}s"
TRICKLE = {"token_bucket": {"max_tokens": 2, "tokens_per_fill": 2, "fill_interval": "1s"}}

ALLOWED, DENIED = 200, 429

# Name: (settings in Envoy, actions of the service after a first report, what Envoy does from which
# second on). The first request of each finds no assignment.
CASES = {
    # Nothing is ever assigned.
    "unassigned-unset": (settings(), [], [(0, ALLOWED)]),
    "unassigned-allow": (settings(ALLOW), [], [(0, ALLOWED)]),
    "unassigned-deny": (settings(DENY), [], [(0, DENIED)]),
    # An assignment expires after 3 s. Without a timeout, the behaviour after it is not used.
    "expired-unset-deny": (settings(DENY), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    "expired-unset-unset": (settings(), [(0, assign(SEND_DENY, 3))], [(0, ALLOWED), (0, DENIED), (3, ALLOWED)]),
    "expired-allow-timeout": (settings(DENY, ALLOW, TIMEOUT), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (7, DENIED)]),
    "expired-allow": (settings(DENY, ALLOW), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    "expired-deny-timeout": (settings(ALLOW, DENY, TIMEOUT), [(0, assign(SEND_ALLOW, 3))], [(0, ALLOWED), (3, DENIED), (7, ALLOWED)]),
    "expired-deny": (settings(ALLOW, DENY), [(0, assign(SEND_ALLOW, 3))], [(0, ALLOWED)]),
    "expired-bucket": (settings(DENY, TRICKLE), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    "expired-reuse-timeout": (settings(DENY, timeout=TIMEOUT, reuse=True), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    "expired-reuse": (settings(DENY, reuse=True), [(0, assign(SEND_ALLOW, 3))], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    # Times to live: unset and below a second fire at once, others are cut off to seconds.
    "ttl-unset": (settings(DENY), [(0, assign(SEND_ALLOW))], [(0, DENIED)]),
    "ttl-zero": (settings(DENY), [(0, assign(SEND_ALLOW, 0))], [(0, DENIED)]),
    "ttl-half": (settings(DENY), [(0, assign(SEND_ALLOW, 0, 500_000_000))], [(0, DENIED)]),
    "ttl-2.9": (settings(DENY), [(0, assign(SEND_ALLOW, 2, 900_000_000))], [(0, DENIED), (0, ALLOWED), (2, DENIED)]),
    # A rate of 1 a second is ignored.
    "rate-per-second": (settings(DENY), [(0, assign({"requests_per_time_unit": {"requests_per_time_unit": 1, "time_unit": 1}}, 60))], [(0, DENIED)]),
    # A fill interval below a second lets everything pass.
    "fill-0.9": (settings(DENY), [(0, assign(bucket(1, 0, 900_000_000), 60))], [(0, DENIED), (0, ALLOWED)]),
    # The bucket is abandoned, and its next request reports it again.
    "abandoned": (settings(DENY), [(0, assign(SEND_ALLOW, 60)), (3, {"abandon_action": {}})], [(0, DENIED), (0, ALLOWED), (3, DENIED)]),
    "reports-1s": (settings(ALLOW, reporting="1s"), [(0, assign(SEND_ALLOW, 600))], [(0, ALLOWED)]),
    "reports-20s": (settings(ALLOW, reporting="20s"), [(0, assign(SEND_ALLOW, 600))], [(0, ALLOWED)]),
}

# Name: (settings, actions, the least and the most requests of 22 s that are allowed).
COUNTED = {
    # Three seconds of all requests, then two a second for four seconds.
    "expired-bucket-timeout": (settings(DENY, TRICKLE, TIMEOUT), [(0, assign(SEND_ALLOW, 3))], (34, 44)),
    # A token each 1.9 s would be 12.
    "fill-1.9": (settings(DENY), [(0, assign(bucket(1, 1, 900_000_000), 60))], (18, 23)),
    # An interval of 4 s from the sixth second on would be 10.
    "fill-changed": (settings(DENY), [(0, assign(bucket(1, 1), 60)), (6, assign(bucket(1, 4), 60))], (18, 23)),
    # The filter state asks for two hits a request.
    "five-tokens": (settings(DENY), [(0, assign(bucket(5, 600), 60))], (5, 5)),
}

# Cases with an Envoy of their own: a stream that ends, and a setting that crashes Envoy.
STREAM = {"stream": (settings(DENY), [(0, assign(SEND_ALLOW, 600))])}
CRASH = {"unassigned-bucket": (settings(TRICKLE), [])}


def bootstrap(cases, admin, port, grpc):
    """Envoy's configuration, as JSON: the header x-case chooses one of these cases."""
    extension = "type.googleapis.com/envoy.extensions."
    header = {"name": "case", "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": "x-case"}}

    def address(number):
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    def matcher(name, chosen):
        return {"predicate": {"single_predicate": {"input": header, "value_match": {"exact": name}}},
                "on_match": {"action": {"name": "quota", "typed_config": {
                    "@type": extension + "filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings",
                    "bucket_id_builder": {"bucket_id_builder": {"name": {"string_value": name}}}, **chosen}}}}

    # Envoy's rate limit filter takes this many hits of a request.
    hits = {"name": "hits", "typed_config": {
        "@type": extension + "filters.http.set_filter_state.v3.Config",
        "on_request_headers": [{"object_key": "envoy.ratelimit.hits_addend", "format_string": {"text_format_source": {"inline_string": "2"}}}]}}
    quota = {"name": "envoy.filters.http.rate_limit_quota", "typed_config": {
        "@type": extension + "filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig", "domain": "quirks",
        "rlqs_server": {"envoy_grpc": {"cluster_name": "quotas"}},
        "bucket_matchers": {"matcher_list": {"matchers": [matcher(name, chosen) for name, (chosen, *_) in cases.items()]}}}}
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": extension + "filters.http.router.v3.Router"}}
    manager = {"@type": extension + "filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "quirks",
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                   {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
               "http_filters": [hits, quota, router]}
    http2 = {"@type": extension + "upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}
    cluster = {"name": "quotas", "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
               "load_assignment": {"cluster_name": "quotas", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(grpc)}}]}]}}
    listener = {"address": address(port), "filter_chains": [{"filters": [
        {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}
    return json.dumps({"admin": {"address": address(admin)}, "static_resources": {"listeners": [listener], "clusters": [cluster]}})
