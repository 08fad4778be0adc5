"""The test cases that all clients share; `clients/README.md` describes them."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from tests.flavours import FLAVOURS, Background, make_client
from tests.scripted import Clock, ScriptedServer
from tollgate_limits import (
    BreakerOptions,
    Client,
    Decision,
    Descriptor,
    Limit,
    LocalBucket,
    NoAnswerError,
    aio,
)
from tollgate_limits import descriptors as sources
from tollgate_limits._answers import Answers
from tollgate_limits._proto import rate_limits_pb2 as api
from tollgate_limits._proto import rls_pb2 as rls

FOLDER = Path(os.environ.get("TOLLGATE_VECTORS", Path(__file__).resolve().parents[2] / "vectors"))


def cases(name: str, of: str = "cases") -> Any:
    """Cases of a file, each under its name."""
    loaded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))[of]
    assert loaded, f"{name}.json has no {of}"
    return [pytest.param(case, id=case["name"]) for case in loaded]


# --- descriptors.json


def make_entry(entry: dict[str, Any]) -> sources.Entry:
    key, default = entry["key"], entry.get("default")
    if "value" in entry:
        return sources.Value(key, entry["value"])
    if "header" in entry:
        return sources.RequestHeader(key, entry["header"], default)
    if "method" in entry:
        return sources.RequestMethod(key)
    if "path" in entry:
        return sources.RequestPath(key)
    if "path_templates" in entry:
        return sources.PathTemplates(key, entry["path_templates"], default)
    assert "remote_address" in entry
    return sources.RemoteAddress(key, default)


@pytest.mark.parametrize("case", cases("descriptors"))
def test_descriptors(case: dict[str, Any]) -> None:
    config, request = case["config"], case["request"]
    limits = sources.RequestLimits(
        descriptors=[[make_entry(entry) for entry in one] for one in config["descriptors"]],
        trusted_proxies=config.get("trusted_proxies", ()),
        skip_paths=config.get("skip_paths", ()),
        hits=config.get("hits", 1),
    )
    found = limits.descriptors_of(
        sources.RequestView(
            method=request["method"],
            path=request["path"].partition("?")[0],
            headers=[(name.lower(), value) for name, value in request["headers"]],
            peer=request["peer"],
        )
    )
    actual = [[list(entry) for entry in one.entries] for one in found]
    expected = [] if case["expect"].get("skip") else case["expect"]["descriptors"]
    assert actual == expected


# --- answers.json


def seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1_000


def make_decision(decision: dict[str, Any]) -> Decision:
    limits = [
        Limit(
            descriptor=limit["descriptor"],
            name=limit["name"],
            rule=limit["rule"],
            requests_per_unit=limit["requests_per_unit"],
            window=limit["window"],
            allowed=limit["allowed"],
            remaining=limit["remaining"],
            reset=seconds(limit.get("reset_ms")),
            retry_after=seconds(limit.get("retry_after_ms")),
        )
        for limit in decision["limits"]
    ]
    return Decision(
        allowed=decision["allowed"],
        source=decision["source"],
        remaining=decision.get("remaining"),
        reset=seconds(decision.get("reset_ms")),
        retry_after=seconds(decision.get("retry_after_ms")),
        limits=tuple(limits),
        no_limit=decision.get("no_limit"),
    )


@pytest.mark.parametrize("case", cases("answers") + cases("leases", "answers"))
def test_http_answers(case: dict[str, Any]) -> None:
    answers, decision = Answers(**case["config"]), make_decision(case["decision"])
    refusal = answers.http_refusal(decision)
    actual: dict[str, Any] = {"pass": refusal is None}
    if refusal is None:
        headers = dict(answers.rate_limit_headers(decision))
    else:
        headers = dict(refusal.headers)
        actual["status"] = refusal.status
        actual["body"] = refusal.body.decode()
        actual["content_type"] = headers.pop("Content-Type")
        assert headers.pop("Content-Length") == str(len(refusal.body))
    actual["headers"] = {name.lower(): value for name, value in headers.items()}
    assert actual == case["expect"]["http"]


@pytest.mark.parametrize("case", cases("answers") + cases("leases", "answers"))
def test_grpc_answers(case: dict[str, Any]) -> None:
    answers, decision = Answers(**case["config"]), make_decision(case["decision"])
    refusal = answers.grpc_refusal(decision)
    actual: dict[str, Any] = {"pass": refusal is None}
    if refusal is None:
        actual["metadata"] = dict(answers.grpc_metadata(decision))
    else:
        actual["metadata"] = dict(refusal.metadata)
        actual["code"] = refusal.code
        actual["message"] = refusal.message
        if refusal.retry_after is not None:
            actual["retry_ms"] = round(refusal.retry_after * 1_000)
    assert actual == case["expect"]["grpc"]


# --- addresses.json


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", cases("addresses"))
def test_addresses(case: dict[str, Any], flavour: str) -> None:
    make = Client if flavour == "threads" else aio.Client
    if case["expect"].get("valid"):
        make(case["address"], domain="vectors")
    else:
        with pytest.raises(ValueError, match=re.escape(case["expect"]["error"])):
            make(case["address"], domain="vectors")


# --- sequences.json, leases.json


def fill(message: Message, fields: dict[str, Any]) -> Any:
    """Sets fields of a message; those that end with `_ms` are durations."""
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name.get(name.removesuffix("_ms"))
        assert field is not None, name
        if (
            field.message_type is not None
            and field.message_type.full_name == Duration.DESCRIPTOR.full_name
        ):
            getattr(message, field.name).FromMilliseconds(value)
        elif isinstance(value, list):
            for item in value:
                fill(getattr(message, name).add(), item)
        elif isinstance(value, dict):
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
        elif field.enum_type is not None:
            setattr(message, name, field.enum_type.values_by_name[value].number)
        elif field.message_type is not None:  # UInt32Value and the like
            getattr(message, name).SetInParent()
            getattr(message, name).value = value
        else:
            setattr(message, name, value)
    return message


ANSWERS: dict[str, type[Message]] = {
    "check": api.CheckResponse,
    "reserve": api.ReserveResponse,
    "settle": api.SettleResponse,
    "lease": api.LeaseResponse,
    "envoy": rls.RateLimitResponse,
}

REQUESTS: dict[str, type[Message]] = {
    "Check": api.CheckRequest,
    "Peek": api.CheckRequest,
    "Reserve": api.ReserveRequest,
    "Extend": api.ExtendRequest,
    "Commit": api.CommitRequest,
    "Release": api.ReleaseRequest,
    "Lease": api.LeaseRequest,
    "Batch": api.BatchRequest,
    "ShouldRateLimit": rls.RateLimitRequest,
}


class Script:
    """Answers of a step, one after the other."""

    def __init__(self, server: ScriptedServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._answers: list[dict[str, Any]] = []
        server.answer = self._answer

    def start(self, answers: Any) -> None:
        self._server.calls.clear()
        self._answers = list(answers) if isinstance(answers, list) else [answers] if answers else []

    def _answer(self, path: str, request: bytes, context: Any) -> bytes:
        if not self._answers:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the step expects no such call")
        answer = dict(self._answers.pop(0))
        self._clock.advance(answer.pop("advance_ms", 0))
        if "error" in answer:
            message = answer.get("message", "as the step says")
            context.abort(grpc.StatusCode[answer["error"]], message)
        if answer.get("hang"):
            return self._server.hang(path, request, context)
        [(kind, fields)] = answer.items()
        if kind == "batch":
            return batch_answer(api.BatchRequest.FromString(request), fields)
        encoded: bytes = fill(ANSWERS[kind](), fields).SerializeToString()
        return encoded


def batch_answer(request: api.BatchRequest, answer: dict[str, Any]) -> bytes:
    """Each lease gets the answer, and each return as many hits as were unused."""
    answers = []
    for call in request.calls:
        if call.HasField("give_back"):
            returned = api.ReturnResponse(returned=call.give_back.unused)
            answers.append(api.Answer(give_back=returned))
        elif "error" in answer:
            code: int = grpc.StatusCode[answer["error"]].value[0]
            answers.append(api.Answer(failure=api.Failure(code=code, message="as the step says")))
        elif "lease" in answer:
            answers.append(api.Answer(lease=fill(api.LeaseResponse(), answer["lease"])))
    return api.BatchResponse(answers=answers).SerializeToString()


def read_call(call: api.Call) -> dict[str, Any]:
    """All fields of a call of a batch."""
    is_lease = call.HasField("lease")
    message: Any = call.lease if is_lease else call.give_back
    read = {field.name: value for field, value in message.ListFields()}
    if is_lease:
        read["method"] = "Lease"
    else:
        read.update(method="Return", unused=message.unused)
    return {**read, "descriptors": [read_descriptor(one) for one in message.descriptors]}


def in_order(calls: list[Any]) -> list[Any]:
    return sorted(calls, key=lambda call: json.dumps(call, sort_keys=True))


def read_request(method: str, encoded: bytes, expected: dict[str, Any]) -> dict[str, Any]:
    """Fields of a request that the step expects, in its form."""
    message: Any = REQUESTS[method].FromString(encoded)
    actual: dict[str, Any] = {"method": method}
    for name in expected:
        if name == "method":
            continue
        if name == "descriptors":
            actual[name] = [read_descriptor(one) for one in message.descriptors]
        elif name == "expires_ms":
            duration = message.expires
            actual[name] = duration.ToMilliseconds() if message.HasField("expires") else None
        elif name == "hits" and method == "ShouldRateLimit":
            actual[name] = message.hits_addend or None
        elif name == "hits":
            actual[name] = message.hits if message.HasField("hits") else None
        elif name == "on_expiry":
            actual[name] = api.OnExpiry.Name(message.on_expiry) if message.on_expiry else None
        elif name in ("reservation", "lease"):
            actual[name] = getattr(message, name) or None
        elif name in ("admitted", "refused"):
            actual[name] = getattr(message, name) if message.HasField(name) else None
        elif name == "calls":
            actual[name] = in_order([read_call(call) for call in message.calls])
        else:
            actual[name] = getattr(message, name)
    return actual


def read_descriptor(descriptor: Any) -> dict[str, Any]:
    read: dict[str, Any] = {"entries": [[one.key, one.value] for one in descriptor.entries]}
    if isinstance(descriptor, rls.RateLimitDescriptor):
        if descriptor.HasField("hits_addend"):
            read["hits"] = descriptor.hits_addend.value
    elif descriptor.HasField("hits"):
        read["hits"] = descriptor.hits
    return read


def ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1_000_000) / 1_000


def read_decision(decision: Decision) -> dict[str, Any]:
    return {
        "allowed": decision.allowed,
        "source": decision.source,
        "remaining": decision.remaining,
        "reset_ms": ms(decision.reset),
        "retry_after_ms": ms(decision.retry_after),
        "no_limit": decision.no_limit,
        "error": None if decision.error is None else decision.error.status,
        "limits": [
            {
                "descriptor": limit.descriptor,
                "name": limit.name,
                "rule": limit.rule,
                "requests_per_unit": limit.requests_per_unit,
                "window": limit.window,
                "allowed": limit.allowed,
                "remaining": limit.remaining,
                "reset_ms": ms(limit.reset),
                "retry_after_ms": ms(limit.retry_after),
            }
            for limit in decision.limits
        ],
    }


class Runner:
    """Runs the steps of a case."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._background = Background(client)
        self._reservation: Any = None

    def run(self, step: dict[str, Any]) -> dict[str, Any]:
        """Carries out a step. Returns all fields that it can expect of the client."""
        try:
            actual: dict[str, Any] = getattr(self, "_" + step["do"])(step)
            self._background.wait()
        except NoAnswerError as error:
            return {"fails": error.status}
        except ValueError as error:
            return {"fails": "argument", "message": str(error)}
        return actual

    @staticmethod
    def _arguments(step: dict[str, Any]) -> dict[str, Any]:
        descriptors = [
            Descriptor(tuple((key, value) for key, value in one["entries"]), one.get("hits"))
            for one in step["descriptors"]
        ]
        return {"descriptors": descriptors, "hits": step.get("hits")}

    def _check(self, step: dict[str, Any]) -> dict[str, Any]:
        arguments = {**self._arguments(step), "dry_run": step.get("dry_run", False)}
        if step.get("middleware"):
            return read_decision(self._client._check_request(**arguments, domain=None))
        return read_decision(self._client.check(**arguments))

    def _tick(self, step: dict[str, Any]) -> dict[str, Any]:
        self._background.round()
        return {}

    def _close(self, step: dict[str, Any]) -> dict[str, Any]:
        self._client.close()
        return {}

    def _peek(self, step: dict[str, Any]) -> dict[str, Any]:
        return read_decision(self._client.peek(**self._arguments(step)))

    def _reserve(self, step: dict[str, Any]) -> dict[str, Any]:
        reservation = self._client.reserve(
            **self._arguments(step),
            reservation=step.get("reservation"),
            expires=seconds(step.get("expires_ms")),
            on_expiry=step.get("on_expiry"),
        )
        self._reservation = reservation
        own = {"reservation": reservation.id, "hits": reservation.hits}
        return {**read_decision(reservation.decision), **own}

    def _commit(self, step: dict[str, Any]) -> dict[str, Any]:
        return self._settlement(self._reservation.commit(step["hits"]))

    def _release(self, step: dict[str, Any]) -> dict[str, Any]:
        return self._settlement(self._reservation.release())

    def _extend(self, step: dict[str, Any]) -> dict[str, Any]:
        return self._settlement(self._reservation.extend(step["expires_ms"] / 1_000))

    def _ready(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"ready": self._client.ready(step["ms"] / 1_000)}

    def _end_scope(self, step: dict[str, Any]) -> dict[str, Any]:
        self._reservation.__exit__(None, None, None)
        return {}

    @staticmethod
    def _settlement(settlement: Any) -> dict[str, Any]:
        return {
            "reserved": settlement.reserved,
            "committed": settlement.committed,
            "repeated": settlement.repeated,
            "remaining": settlement.remaining,
            "reset_ms": ms(settlement.reset),
            "expires_ms": ms(settlement.expires),
        }


def make_options(options: dict[str, Any], clock: Clock) -> dict[str, Any]:
    made: dict[str, Any] = {"domain": "vectors", "clock": clock}
    made["deadline"] = options.get("deadline_ms", 2_000) / 1_000
    if "on_error" in options:
        made["on_error"] = options["on_error"]
    if "local" in options:
        made["local"] = LocalBucket(**options["local"])
    if "breaker" in options:
        breaker = options["breaker"]
        made["breaker"] = BreakerOptions(breaker["failures"], breaker["open_ms"] / 1_000)
    if "denial_cache_entries" in options:
        made["denial_cache"] = options["denial_cache_entries"]
    if "protocol" in options:
        made["protocol"] = options["protocol"]
    if "unknown_domain" in options:
        made["unknown_domain"] = options["unknown_domain"]
    if "leases" in options:
        made["leases"] = {"on": True, "off": False}[options["leases"]]
    known = {"deadline_ms", "on_error", "local", "breaker", "denial_cache_entries", "protocol"}
    assert not options.keys() - known - {"unknown_domain", "leases"}
    return made


@contextmanager
def proxied_environment(is_wanted: bool) -> Iterator[None]:
    """Names a proxy that takes no connection in the environment."""
    with pytest.MonkeyPatch.context() as environment:
        if is_wanted:
            for scheme in ("http", "https", "grpc", "all"):
                environment.setenv(f"{scheme}_proxy", "http://127.0.0.1:1")
            for name in ("no_proxy", "no_grpc_proxy"):
                environment.setenv(name, "")
        yield


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_proxy_of_the_environment_is_an_option(flavour: str) -> None:
    with (
        proxied_environment(is_wanted=True),
        ScriptedServer() as server,
        make_client(flavour, server.address, domain="vectors", http_proxy=True) as client,
    ):
        decision = client.check([{"user": "ann"}])
    assert decision.error is not None
    assert server.calls == []


@contextmanager
def http1_listener() -> Iterator[str]:
    """Address of a listener that answers as a server of HTTP/1 answers HTTP/2."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()


def limits_like(expected: list[Any], limits: list[Any]) -> list[Any]:
    """The limits with the fields that are expected."""
    assert len(limits) == len(expected)
    return [
        {name: limit[name] for name in like} for limit, like in zip(limits, expected, strict=True)
    ]


def take_warning(log: pytest.LogCaptureFixture, address: str) -> dict[str, Any] | None:
    """Fields of the one warning since the last call; None without one."""
    records = [record for record in log.records if record.name == "tollgate_limits"]
    log.clear()
    if not records:
        return None
    [record] = records
    assert record.levelno == logging.WARNING
    assert isinstance(record.args, tuple)
    addresses, on_error, decisions, text = record.args
    assert addresses == address
    assert record.getMessage() == (
        f"no answer from tollgate: addresses={address} on_error={on_error} "
        f"decisions={decisions} error={text}"
    )
    assert isinstance(text, str)
    status = text.partition(":")[0]
    return {"on_error": on_error, "decisions": decisions, "error": status, "text": text}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", cases("sequences") + cases("leases"))
def test_sequences(case: dict[str, Any], flavour: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with ExitStack() as stack:
        stack.enter_context(proxied_environment(case.get("proxy", False)))
        server = stack.enter_context(ScriptedServer(threads=4))
        address = case.get("address", server.address)
        if case.get("listener") == "http1":
            address = stack.enter_context(http1_listener())
        options = make_options(case.get("options", {}), clock)
        if case.get("invalid"):
            with pytest.raises(ValueError, match="unknown_domain"):
                stack.enter_context(make_client(flavour, address, **options))
            return
        client = stack.enter_context(make_client(flavour, address, **options))
        if "deadline_ms" in case.get("options", {}):
            assert client.ready(10)
        script, runner = Script(server, clock), Runner(client)
        for position, step in enumerate(case["steps"]):
            if step["do"] == "advance":
                clock.advance(step["ms"])
                continue
            if step["do"] == "stop":
                server.stop()
                continue
            for _ in range(step.get("repeat", 1)):
                script.start(step.get("server"))
                expected = dict(step["expect"])
                actual = runner.run(step)
                # A call that missed its deadline can reach the server after the client left.
                server.wait_for_calls(expected.get("calls", 0))
                actual["calls"] = len(server.calls)
                actual["warning"] = take_warning(caplog, address)
                if "request" in expected:
                    assert server.calls, f"step {position}: no call"
                    method, encoded = server.calls[-1]
                    actual["request"] = read_request(method, encoded, expected["request"])
                if expected.get("warning") and actual["warning"]:
                    actual["warning"] = {
                        name: actual["warning"][name] for name in expected["warning"]
                    }
                if "calls" in expected.get("request", {}):
                    expected["request"]["calls"] = in_order(expected["request"]["calls"])
                shown = {name: actual.get(name, "missing") for name in expected}
                if case["name"].startswith("leases:") and expected.get("limits"):
                    shown["limits"] = limits_like(expected["limits"], shown["limits"])
                assert shown == expected, f"step {position}: {step['do']}"
