"""Calls every RPC of both services with messages that reflection describes.

Usage: grpc_api.py ADDRESS
"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
pool = DescriptorPool(database)
OWN, KUADRANT = "tollgate.v1.RateLimits", "kuadrant.service.ratelimit.v1.RateLimitService"
called = set()


def prepare(service, name):
    method = pool.FindServiceByName(service).methods_by_name[name]
    called.add((service, name))
    return f"/{service}/{name}", GetMessageClass(method.input_type), GetMessageClass(method.output_type)


def call(service, name, **fields):
    path, request, answer = prepare(service, name)
    send = channel.unary_unary(path, request.SerializeToString, answer.FromString)
    return send(request(**fields), timeout=20)


def fails(service, name, **fields):
    """The status and the details of a call that fails."""
    try:
        call(service, name, **fields)
    except grpc.RpcError as error:
        status = GetMessageClass(pool.FindMessageTypeByName("google.rpc.Status"))()
        status.ParseFromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        details = {}
        for detail in status.details:
            kind = detail.type_url.removeprefix("type.googleapis.com/")
            details[kind] = GetMessageClass(pool.FindMessageTypeByName(kind)).FromString(detail.value)
        return error.code(), details
    raise AssertionError(f"{name} did not fail")


def of(value):
    return {"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": value}]}]}


def check_own():
    ann = of("ann")
    assert call(OWN, "Check", **ann, hits=100).remaining == 900
    assert call(OWN, "Peek", **ann, hits=901).verdict == 2
    reserved = call(OWN, "Reserve", **ann, hits=500, expires={"seconds": 60})
    assert (reserved.verdict, reserved.hits, reserved.remaining) == (1, 500, 400)
    extended = call(OWN, "Extend", **ann, reservation=reserved.reservation, expires={"seconds": 90})
    assert extended.expires.seconds == 90
    settled = call(OWN, "Commit", **ann, reservation=reserved.reservation, hits=200)
    assert (settled.reserved, settled.committed, settled.remaining) == (500, 200, 700)
    second = call(OWN, "Reserve", **ann, hits=700, reservation="mine")
    assert (second.reservation, second.remaining) == ("mine", 0)
    assert call(OWN, "Release", **ann, reservation="mine").remaining == 700
    calls = [{"tag": tag, "check": {**ann, "hits": 10}} for tag in range(5)]
    assert [one.check.remaining for one in call(OWN, "Batch", calls=calls).answers] == [690, 680, 670, 660, 650]
    path, request, answer = prepare(OWN, "Stream")
    send = channel.stream_stream(path, request.SerializeToString, answer.FromString)
    answers = send((request(tag=tag, check={**ann, "hits": 1}) for tag in range(300)), timeout=20)
    assert sorted(one.tag for one in answers) == list(range(300))
    assert call(OWN, "Peek", **ann, hits=0).remaining == 350
    leased = call(OWN, "Lease", **ann, hits=50)
    assert (leased.granted, leased.remaining) == (50, 300)
    assert call(OWN, "Return", **ann, lease=leased.lease, unused=50).returned == 50
    assert call(OWN, "Peek", **ann, hits=0).remaining == 350


def check_authority():
    """The C core sends the addresses of a target with several as one authority, which is no valid one."""
    with grpc.insecure_channel(f"ipv4:{sys.argv[1]},{sys.argv[1]}") as several:
        path, request, answer = prepare(OWN, "Peek")
        send = several.unary_unary(path, request.SerializeToString, answer.FromString)
        assert send(request(**of("ann")), timeout=20).verdict == 1


def check_errors():
    code, details = fails(OWN, "Release", **of("ann"), reservation="never")
    assert code == grpc.StatusCode.NOT_FOUND
    assert details["google.rpc.ResourceInfo"].resource_name == "never"
    assert details["google.rpc.ErrorInfo"].reason == "UNKNOWN_RESERVATION"
    code, details = fails(OWN, "Check", **{**of("ann"), "domain": ""})
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details["google.rpc.BadRequest"].field_violations[0].field == "domain"
    code, details = fails(KUADRANT, "Reserve", **of("bob"), amount=1, ttl={"seconds": -1})
    assert details["google.rpc.BadRequest"].field_violations[0].field == "ttl"


def check_kuadrant():
    bob = of("bob")
    assert call(KUADRANT, "CheckRateLimit", **bob).overall_code == 1
    assert call(KUADRANT, "Report", **bob, hits_addend=100).statuses[0].limit_remaining == 900
    reserved = call(KUADRANT, "Reserve", **bob, amount=900, ttl={"seconds": 30})
    assert reserved.code == 1 and reserved.reservation_id
    assert call(KUADRANT, "CheckRateLimit", **bob).overall_code == 2
    refused = call(KUADRANT, "Reserve", **bob, amount=1)
    assert (refused.code, refused.reservation_id) == (2, "")
    call(KUADRANT, "Commit", **bob, reservation_id=reserved.reservation_id, actual_amount=0)
    assert call(OWN, "Peek", **bob).remaining == 900
    call(KUADRANT, "Commit", **bob, actual_amount=50)
    assert call(OWN, "Peek", **bob).remaining == 850


listed = set(database.get_services())
assert {OWN, KUADRANT} <= listed, listed
check_own()
check_authority()
check_errors()
check_kuadrant()
every = {(service, name) for service in (OWN, KUADRANT) for name in pool.FindServiceByName(service).methods_by_name}
assert called == every, every - called
print(f"{len(every)} RPCs")
