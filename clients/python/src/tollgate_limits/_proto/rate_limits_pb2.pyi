import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnExpiry(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_EXPIRY_UNSPECIFIED: _ClassVar[OnExpiry]
    ON_EXPIRY_CHARGE: _ClassVar[OnExpiry]
    ON_EXPIRY_RELEASE: _ClassVar[OnExpiry]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_OK: _ClassVar[Verdict]
    VERDICT_OVER_LIMIT: _ClassVar[Verdict]
ON_EXPIRY_UNSPECIFIED: OnExpiry
ON_EXPIRY_CHARGE: OnExpiry
ON_EXPIRY_RELEASE: OnExpiry
VERDICT_UNSPECIFIED: Verdict
VERDICT_OK: Verdict
VERDICT_OVER_LIMIT: Verdict

class Entry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Descriptor(_message.Message):
    __slots__ = ("entries", "hits")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    hits: int
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., hits: _Optional[int] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "hits")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    hits: int
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., hits: _Optional[int] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "hits", "reservation", "expires", "on_expiry")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    ON_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    hits: int
    reservation: str
    expires: _duration_pb2.Duration
    on_expiry: OnExpiry
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., hits: _Optional[int] = ..., reservation: _Optional[str] = ..., expires: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., on_expiry: _Optional[_Union[OnExpiry, str]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "reservation", "expires")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    reservation: str
    expires: _duration_pb2.Duration
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., reservation: _Optional[str] = ..., expires: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "reservation", "hits")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    reservation: str
    hits: int
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., reservation: _Optional[str] = ..., hits: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "reservation")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    reservation: str
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., reservation: _Optional[str] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "hits", "lease", "admitted", "refused")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    hits: int
    lease: str
    admitted: int
    refused: int
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., hits: _Optional[int] = ..., lease: _Optional[str] = ..., admitted: _Optional[int] = ..., refused: _Optional[int] = ...) -> None: ...

class ReturnRequest(_message.Message):
    __slots__ = ("domain", "descriptors", "lease", "unused", "admitted", "refused")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    descriptors: _containers.RepeatedCompositeFieldContainer[Descriptor]
    lease: str
    unused: int
    admitted: int
    refused: int
    def __init__(self, domain: _Optional[str] = ..., descriptors: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., lease: _Optional[str] = ..., unused: _Optional[int] = ..., admitted: _Optional[int] = ..., refused: _Optional[int] = ...) -> None: ...

class LimitStatus(_message.Message):
    __slots__ = ("descriptor", "name", "rule", "requests_per_unit", "window", "verdict", "remaining", "reset", "retry_after")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_UNIT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    descriptor: int
    name: str
    rule: str
    requests_per_unit: int
    window: str
    verdict: Verdict
    remaining: int
    reset: _duration_pb2.Duration
    retry_after: _duration_pb2.Duration
    def __init__(self, descriptor: _Optional[int] = ..., name: _Optional[str] = ..., rule: _Optional[str] = ..., requests_per_unit: _Optional[int] = ..., window: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., remaining: _Optional[int] = ..., reset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("verdict", "remaining", "reset", "retry_after", "limits", "no_limit")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NO_LIMIT_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    remaining: int
    reset: _duration_pb2.Duration
    retry_after: _duration_pb2.Duration
    limits: _containers.RepeatedCompositeFieldContainer[LimitStatus]
    no_limit: str
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., remaining: _Optional[int] = ..., reset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[LimitStatus, _Mapping]]] = ..., no_limit: _Optional[str] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("verdict", "reservation", "hits", "expires", "remaining", "reset", "retry_after", "limits", "no_limit")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NO_LIMIT_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    reservation: str
    hits: int
    expires: _duration_pb2.Duration
    remaining: int
    reset: _duration_pb2.Duration
    retry_after: _duration_pb2.Duration
    limits: _containers.RepeatedCompositeFieldContainer[LimitStatus]
    no_limit: str
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., reservation: _Optional[str] = ..., hits: _Optional[int] = ..., expires: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., remaining: _Optional[int] = ..., reset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[LimitStatus, _Mapping]]] = ..., no_limit: _Optional[str] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("reservation", "reserved", "committed", "repeated", "remaining", "reset", "limits", "expires")
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    reservation: str
    reserved: int
    committed: int
    repeated: bool
    remaining: int
    reset: _duration_pb2.Duration
    limits: _containers.RepeatedCompositeFieldContainer[LimitStatus]
    expires: _duration_pb2.Duration
    def __init__(self, reservation: _Optional[str] = ..., reserved: _Optional[int] = ..., committed: _Optional[int] = ..., repeated: bool = ..., remaining: _Optional[int] = ..., reset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[LimitStatus, _Mapping]]] = ..., expires: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("verdict", "lease", "granted", "expires", "remaining", "reset", "retry_after", "limits", "not_leased")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NOT_LEASED_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    lease: str
    granted: int
    expires: _duration_pb2.Duration
    remaining: int
    reset: _duration_pb2.Duration
    retry_after: _duration_pb2.Duration
    limits: _containers.RepeatedCompositeFieldContainer[LimitStatus]
    not_leased: str
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., lease: _Optional[str] = ..., granted: _Optional[int] = ..., expires: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., remaining: _Optional[int] = ..., reset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[LimitStatus, _Mapping]]] = ..., not_leased: _Optional[str] = ...) -> None: ...

class ReturnResponse(_message.Message):
    __slots__ = ("returned",)
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    returned: int
    def __init__(self, returned: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("tag", "check", "peek", "reserve", "extend", "commit", "release", "lease", "give_back")
    TAG_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GIVE_BACK_FIELD_NUMBER: _ClassVar[int]
    tag: int
    check: CheckRequest
    peek: CheckRequest
    reserve: ReserveRequest
    extend: ExtendRequest
    commit: CommitRequest
    release: ReleaseRequest
    lease: LeaseRequest
    give_back: ReturnRequest
    def __init__(self, tag: _Optional[int] = ..., check: _Optional[_Union[CheckRequest, _Mapping]] = ..., peek: _Optional[_Union[CheckRequest, _Mapping]] = ..., reserve: _Optional[_Union[ReserveRequest, _Mapping]] = ..., extend: _Optional[_Union[ExtendRequest, _Mapping]] = ..., commit: _Optional[_Union[CommitRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., lease: _Optional[_Union[LeaseRequest, _Mapping]] = ..., give_back: _Optional[_Union[ReturnRequest, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("tag", "check", "reserve", "settle", "failure", "lease", "give_back")
    TAG_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GIVE_BACK_FIELD_NUMBER: _ClassVar[int]
    tag: int
    check: CheckResponse
    reserve: ReserveResponse
    settle: SettleResponse
    failure: Failure
    lease: LeaseResponse
    give_back: ReturnResponse
    def __init__(self, tag: _Optional[int] = ..., check: _Optional[_Union[CheckResponse, _Mapping]] = ..., reserve: _Optional[_Union[ReserveResponse, _Mapping]] = ..., settle: _Optional[_Union[SettleResponse, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., lease: _Optional[_Union[LeaseResponse, _Mapping]] = ..., give_back: _Optional[_Union[ReturnResponse, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    def __init__(self, calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ...) -> None: ...

class BatchResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ...) -> None: ...
