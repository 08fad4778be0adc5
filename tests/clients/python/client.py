"""The C-core client of tests/clients, by grpcio.

See tests/clients/contract.md for its arguments, commands and results.
"""

import json
import sys
import threading

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"


def words(line):
    return dict(word.split("=", 1) for word in line.split())


class Client:
    """One channel, and the commands that concern calls in flight."""

    def __init__(self, options):
        with open(options["descriptors"], "rb") as file:
            files = FileDescriptorSet.FromString(file.read()).file
        pool = DescriptorPool()
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
        method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
        self.request = GetMessageClass(method.input_type)
        answer = GetMessageClass(method.output_type)
        self.call = channel(options).unary_unary(
            f"/{SERVICE}/ShouldRateLimit",
            request_serializer=self.request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        self.stopped = threading.Event()
        self.cancelled = threading.Event()

    def request_of(self, value_bytes):
        """Three descriptors: one with a limit, one over its limit, one without a rule."""
        request = self.request(domain="clients")
        for key, value in ("open", "v" * max(1, value_bytes)), ("closed", "v"), ("unknown", "v"):
            request.descriptors.add().entries.add(key=key, value=value)
        return request


class Batch:
    """The calls of one command. A call that ends begins the next one."""

    def __init__(self, client, command):
        self.client = client
        self.name = command["name"]
        self.calls = int(command["calls"])
        self.at_once = int(command["at-once"])
        self.request = client.request_of(int(command.get("value-bytes", 0)))
        self.arguments = {}
        if "deadline-ms" in command:
            self.arguments["timeout"] = int(command["deadline-ms"]) / 1000
        if "metadata-bytes" in command:
            self.arguments["metadata"] = [("x-long", "X" * int(command["metadata-bytes"]))]
        self.cancel = command.get("cancel") == "1"
        self.lock = threading.Lock()
        self.begun = self.answered = self.incomplete = 0
        self.failed = {}
        self.first = ""
        self.ended = threading.Semaphore(0)

    def run(self):
        calls = [self.begin() for _ in range(self.at_once)]
        if self.cancel:
            self.client.cancelled.wait()
            for call in calls:
                call.cancel()
        for _ in range(self.at_once):
            self.ended.acquire()
        result = {
            "name": self.name,
            "answered": self.answered,
            "incomplete": self.incomplete,
            "failed": self.failed,
            "first": self.first,
        }
        print(json.dumps(result), flush=True)

    def begin(self):
        with self.lock:
            over = self.client.stopped.is_set() or self.begun == self.calls > 0
            self.begun += not over
        if over:
            self.ended.release()
            return None
        call = self.client.call.future(self.request, **self.arguments)
        call.add_done_callback(self.count)
        return call

    def count(self, call):
        with self.lock:
            if call.code() is not grpc.StatusCode.OK:
                name = call.code().name
                self.failed[name] = self.failed.get(name, 0) + 1
                self.first = self.first or call.details()
            elif complete(call.result()):
                self.answered += 1
            else:
                self.incomplete += 1
        self.begin()


def complete(answer):
    """One status a descriptor, in their order: OK, OVER_LIMIT, OK."""
    return (
        answer.overall_code == 2
        and [status.code for status in answer.statuses] == [1, 2, 1]
        and answer.statuses[0].current_limit.requests_per_unit == 1_000_000_000
    )


def channel(options):
    arguments = []
    compression = grpc.Compression.Gzip if options.get("gzip") == "1" else None
    if "keepalive-ms" in options:
        arguments = [
            ("grpc.keepalive_time_ms", int(options["keepalive-ms"])),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    if "ca" not in options:
        return grpc.insecure_channel(options["address"], arguments, compression)
    ca, cert, key = (
        open(options[name], "rb").read() if name in options else None for name in ("ca", "cert", "key")
    )
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.secure_channel(options["address"], credentials, arguments, compression)


def main():
    client = Client(words(" ".join(sys.argv[1:])))
    batches = []
    for line in sys.stdin:
        match line.strip():
            case "stop":
                client.stopped.set()
            case "cancel":
                client.cancelled.set()
            case command:
                batches.append(threading.Thread(target=Batch(client, words(command)).run))
                batches[-1].start()
    for batch in batches:
        batch.join()


main()
