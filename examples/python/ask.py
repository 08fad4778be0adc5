#!/usr/bin/env python3
"""Requests rate limit decisions from a Python program.

Install and run (in a virtual environment, if you like):

    pip install grpcio==1.85.1 grpcio-reflection==1.85.1 protobuf==7.36.2
    tollgate serve examples/edge.yaml
    python examples/python/ask.py 127.0.0.1:8081 edge generic_key=hello --repeat 11

How: gRPC server reflection describes the messages, so this file needs no generated code. In production, generate code from
proto/ with grpcio-tools; the calls are the same.

The exit code tells the last decision, as in `tollgate hit`: 0 pass, 3 over limit, 4 no answer.
"""

import argparse
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
PASS, OVER_LIMIT, NO_ANSWER = 0, 3, 4
DEADLINE_SECONDS = 5


class RateLimit:
    """The service at the other end of a channel."""

    def __init__(self, channel):
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
        self.Request = GetMessageClass(method.input_type)
        self.Response = GetMessageClass(method.output_type)
        self.call = channel.unary_unary(
            f"/{SERVICE}/ShouldRateLimit",
            request_serializer=self.Request.SerializeToString,
            response_deserializer=self.Response.FromString,
        )

    def ask(self, domain, entries):
        """One request with one descriptor, which takes one hit."""
        request = self.Request(domain=domain)
        descriptor = request.descriptors.add()
        for key, value in entries:
            descriptor.entries.add(key=key, value=value)
        # Always set a deadline: without one a call can wait forever.
        return self.call(request, timeout=DEADLINE_SECONDS)

    def over_limit(self, answer):
        return answer.overall_code == self.Response.OVER_LIMIT

    def sentence(self, answer):
        """The answer as a line of text."""
        over = self.over_limit(answer)
        word = "OVER LIMIT" if over else "OK"
        status = answer.statuses[0]
        if not status.HasField("current_limit"):
            return f"{word:<10}  no limit matched"
        limit = status.current_limit
        unit = self.Response.RateLimit.Unit.Name(limit.unit).lower()
        many = limit.unit_multiplier.value or 1
        window = f"per {unit}" if many == 1 else f"per {many} {unit}s"
        if not limit.unit:
            window = "in flight"
        then = "try again" if over else "resets"
        return (
            f"{word:<10}  {status.limit_remaining} left of {limit.requests_per_unit} {window}, "
            f"{then} in {status.duration_until_reset.seconds} s"
        )


def descriptor(text):
    """The entries of `key=value,key=value`, as `tollgate hit` takes them."""
    entries = [pair.partition("=") for pair in text.split(",")]
    if not all(key and equals for key, equals, _ in entries):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value,key=value")
    return [(key, value) for key, _, value in entries]


def main():
    parser = argparse.ArgumentParser(description="Request rate limit decisions.")
    parser.add_argument("address", help="address of the service, HOST:PORT")
    parser.add_argument("domain")
    parser.add_argument("descriptor", type=descriptor, metavar="key=value,key=value")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="number of requests")
    arguments = parser.parse_args()

    exit_code = PASS
    # Use one channel for the whole program: each new one costs a connection.
    with grpc.insecure_channel(arguments.address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=DEADLINE_SECONDS)
            rate_limit = RateLimit(channel)
            for _ in range(arguments.repeat):
                answer = rate_limit.ask(arguments.domain, arguments.descriptor)
                print(rate_limit.sentence(answer))
                exit_code = OVER_LIMIT if rate_limit.over_limit(answer) else PASS
        except grpc.FutureTimeoutError:
            print(f"no service answers at {arguments.address}", file=sys.stderr)
            return NO_ANSWER
        except grpc.RpcError as error:
            print(f"the service answered {error.code().name}: {error.details()}", file=sys.stderr)
            return NO_ANSWER
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
