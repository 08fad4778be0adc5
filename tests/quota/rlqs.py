"""A scripted rate limit quota service: it records reports, and sends what the test says.

The messages are described by gRPC reflection of tollgate, so no generated code is needed.
It deliberately does not apportion anything.
"""

import concurrent.futures
import queue
import threading
import time

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
STREAMS_MAX = 16


def messages(grpc_port):
    """The classes of a report and of a response."""
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName(SERVICE).FindMethodByName("StreamRateLimitQuotas")
        return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


class Usage:
    """What one report says of one bucket."""

    def __init__(self, at, stream, name, proto):
        self.at, self.stream, self.name = at, stream, name
        self.allowed, self.denied = proto.num_requests_allowed, proto.num_requests_denied
        self.seconds, self.nanos = proto.time_elapsed.seconds, proto.time_elapsed.nanos


class Service:
    """The service. `script` maps the name of a bucket to the actions that answer its first report.

    An action is a dictionary of the fields of BucketAction, and the seconds after which it is sent.
    """

    def __init__(self, classes, script):
        self.report_class, self.response_class = classes
        self.script = script
        self.lock = threading.Lock()
        self.usages = []
        # When each report arrived, its stream, its domain, and its number of buckets.
        self.reports = []
        self.streams = {}
        self.timers = []
        self.port = 0
        self.start()

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(STREAMS_MAX))
        method = grpc.stream_stream_rpc_method_handler(
            self.serve, request_deserializer=self.report_class.FromString,
            response_serializer=self.response_class.SerializeToString)
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"StreamRateLimitQuotas": method})
        self.server.add_generic_rpc_handlers((handlers,))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def stop(self):
        for timer in self.timers:
            timer.cancel()
        self.end_streams()
        self.server.stop(None).wait()

    def end_streams(self):
        """Ends every stream with the status OK."""
        with self.lock:
            streams, self.streams = self.streams, {}
        for outgoing in streams.values():
            outgoing.put(None)

    def serve(self, reports, _context):
        outgoing = queue.Queue()
        with self.lock:
            number = 1 + max(self.streams, default=max((report[1] for report in self.reports), default=0))
            self.streams[number] = outgoing
        threading.Thread(target=self.read, args=(reports, number, outgoing), daemon=True).start()
        yield from iter(outgoing.get, None)

    def read(self, reports, number, outgoing):
        answered = set()
        try:
            for report in reports:
                self.take(report, number, outgoing, answered)
        except grpc.RpcError:
            pass
        finally:
            outgoing.put(None)

    def take(self, report, number, outgoing, answered):
        at = time.monotonic()
        with self.lock:
            self.reports.append((at, number, report.domain, len(report.bucket_quota_usages)))
            for proto in report.bucket_quota_usages:
                name = proto.bucket_id.bucket["name"]
                self.usages.append(Usage(at, number, name, proto))
                # The bucket of an abandoned one is reported anew, and not answered.
                if name in answered:
                    continue
                answered.add(name)
                for after_seconds, action in self.script.get(name, ()):
                    self.send(outgoing, name, action, after_seconds)

    def send(self, outgoing, name, action, after_seconds):
        response = self.response_class(bucket_action=[{"bucket_id": {"bucket": {"name": name}}, **action}])
        timer = threading.Timer(after_seconds, outgoing.put, [response])
        timer.daemon = True
        self.timers.append(timer)
        timer.start()

    def of(self, name):
        with self.lock:
            return [usage for usage in self.usages if usage.name == name]
