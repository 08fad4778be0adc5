//! Usual and unusual requests of real callers: all are answered, and no number wraps.

use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitOverride, RateLimitRequest, channel, descriptor, hits, request,
};
use tollgate_test_support::in_process::{START, Service};
use tonic::Code as Grpc;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::service::remaining;

const RULES: &str = "
domain: d
limit_from_request: replace
descriptors:
  - key: ten
    rate_limit: { unit: minute, requests_per_unit: 10, name: ten }
  - key: none
    rate_limit: { unlimited: true, replaces: [{ name: ten }] }
  - key: closed
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: weeks
    rate_limit: { unit: week, unit_multiplier: 2, requests_per_unit: 5 }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 2 }
";

#[tokio::test]
async fn every_descriptor_gets_its_status_in_order() {
    let mut service = Service::start(RULES, &[]).await;
    let asked = vec![
        descriptor(&[("unknown", "x")]),
        hits("ten", "a", 4),
        hits("watched", "a", 2),
        hits("weeks", "a", 1),
        descriptor::<&str, &str>(&[]),
        hits("closed", "a", 1),
    ];
    let answer = service.ask(request("d", asked)).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let seen: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| {
            let limit = status.current_limit.as_ref();
            let limit = limit.map(|l| (l.requests_per_unit, l.unit, l.unit_multiplier));
            let until = status.duration_until_reset.map(|until| until.seconds);
            (status.code(), limit, status.limit_remaining, until)
        })
        .collect();
    // START is 10.5 s into its minute and 2,410.5 s into its hour; the half second is rounded up.
    let start_s = START.as_us() / 1_000_000;
    let two_weeks = 1_209_600 - (start_s % 1_209_600);
    assert_eq!(
        seen,
        [
            (Code::Ok, None, 0, None),
            (Code::Ok, Some((10, 2, None)), 6, Some(50)),
            (
                Code::Ok,
                Some((1, 3, None)),
                0,
                Some(3600 - i64::try_from(start_s % 3600).unwrap())
            ),
            (
                Code::Ok,
                Some((5, 7, Some(2))),
                4,
                Some(i64::try_from(two_weeks).unwrap())
            ),
            (Code::Ok, None, 0, None),
            (Code::OverLimit, Some((0, 1, None)), 0, Some(1)),
        ]
    );
    assert_eq!(
        answer.statuses[1].current_limit.as_ref().unwrap().name,
        "ten"
    );
}

#[tokio::test]
async fn an_empty_domain_or_list_is_an_invalid_argument_in_the_references_words() {
    let mut service = Service::start(RULES, &[]).await;
    for (domain, descriptors, words) in [
        (
            "",
            vec![hits("ten", "a", 1)],
            "rate limit domain must not be empty",
        ),
        ("d", vec![], "rate limit descriptor list must not be empty"),
    ] {
        let error = service
            .client
            .should_rate_limit(request(domain, descriptors))
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Grpc::InvalidArgument, words)
        );
    }
    assert_eq!(
        service.metric("ratelimit_service_should_rate_limit_error{err_type=\"service_error\"}"),
        2
    );
}

#[tokio::test]
async fn odd_requests_are_answered() {
    let mut service = Service::start(RULES, &[]).await;
    let long = vec![b'x'; 60 << 10];
    let odd: Vec<(Descriptor, Code)> = vec![
        (
            descriptor(&[(b"ten".as_slice(), b"a\xff\xfeb".as_slice())]),
            Code::Ok,
        ),
        (
            descriptor(&[(b"\xff\xff".as_slice(), b"".as_slice())]),
            Code::Ok,
        ),
        (descriptor(&[("ten", "")]), Code::Ok),
        (
            descriptor(&[(b"ten".as_slice(), long.as_slice())]),
            Code::Ok,
        ),
        (descriptor(&[(long.as_slice(), long.as_slice())]), Code::Ok),
        (hits("ten", "b", u64::MAX), Code::OverLimit),
        (hits("ten", "b", u64::MAX), Code::OverLimit),
        (hits("bucket", "b", u64::MAX), Code::OverLimit),
    ];
    for (descriptor, code) in odd {
        assert_eq!(service.status("d", descriptor).await.code(), code);
    }
    let refund = Descriptor {
        is_negative_hits: true,
        ..hits("ten", "b", u64::MAX)
    };
    let status = service.status("d", refund).await;
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 10));
    let unknown = service.status("nobody's domain", hits("ten", "a", 1)).await;
    assert_eq!((unknown.code(), unknown.current_limit), (Code::Ok, None));
    let not_text = RateLimitRequest {
        domain: b"\xff".to_vec().into(),
        ..request("", vec![hits("ten", "a", 1)])
    };
    assert_eq!(service.ask(not_text).await.overall_code(), Code::Ok);
    let text = service.metrics.render().unwrap();
    assert!(
        text.contains("domain_not_found{domain=\"nobody's domain\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn the_same_descriptor_twice_counts_twice_and_sees_itself() {
    let mut service = Service::start(RULES, &[]).await;
    let answer = service
        .ask(request("d", vec![hits("ten", "a", 1), hits("ten", "a", 1)]))
        .await;
    let remaining: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(remaining, [9, 8]);
}

#[tokio::test]
async fn hits_of_the_request_apply_where_a_descriptor_has_none() {
    let mut service = Service::start(RULES, &[]).await;
    let asked = RateLimitRequest {
        hits_addend: 3,
        ..request(
            "d",
            vec![
                descriptor(&[("ten", "a")]),
                hits("ten", "b", 5),
                hits("ten", "c", 0),
            ],
        )
    };
    let answer = service.ask(asked).await;
    let remaining: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(remaining, [7, 5, 10]);
}

#[tokio::test]
async fn overrides_have_their_own_bucket_and_only_real_units() {
    let mut service = Service::start(RULES, &[]).await;
    let with = |unit, multiplier| Descriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 2,
            unit,
            unit_multiplier: multiplier,
        }),
        ..hits("ten", "a", 1)
    };
    for (unit, reported) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7)] {
        let status = service.status("d", with(unit, None)).await;
        let limit = status.current_limit.unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit, status.limit_remaining),
            (2, reported, 1)
        );
    }
    assert_eq!(remaining(&mut service, "ten", "a", 1).await, 9);
    // An invalid override is ignored, and the configured rule applies.
    for unit in [0, 8, -1, i32::MAX] {
        let limit = service
            .status("d", with(unit, None))
            .await
            .current_limit
            .unwrap();
        assert_eq!((limit.requests_per_unit, limit.name.as_str()), (10, "ten"));
    }
    assert_eq!(service.metric("tollgate_overrides_not_obeyed_total"), 4);
    let longest = service.status("d", with(6, Some(u32::MAX))).await;
    assert_eq!(
        longest.current_limit.unwrap().unit_multiplier,
        Some(u32::MAX)
    );
    // An override in a domain without rules is ignored.
    assert_eq!(
        service
            .status("elsewhere", with(1, None))
            .await
            .current_limit,
        None
    );
}

#[tokio::test]
async fn health_answers_for_both_names_and_for_no_other() {
    let service = Service::start(RULES, &[]).await;
    let mut health = HealthClient::new(channel(service.grpc).await);
    for (name, expected) in [
        ("", Ok(ServingStatus::Serving)),
        ("ratelimit", Ok(ServingStatus::Serving)),
        ("x", Err(Grpc::NotFound)),
    ] {
        let asked = HealthCheckRequest {
            service: name.to_owned(),
        };
        let seen = health
            .check(asked)
            .await
            .map(|answer| answer.get_ref().status());
        assert_eq!(seen.map_err(|status| status.code()), expected, "{name:?}");
    }
}

#[tokio::test]
async fn reflection_publishes_envoys_own_types() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let service = Service::start(RULES, &[]).await;
    let mut client = ServerReflectionClient::new(channel(service.grpc).await);
    let symbol = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry";
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
    };
    let mut answers = client
        .server_reflection_info(tokio_stream::iter([asked]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let file: prost_types::FileDescriptorProto =
        prost::Message::decode(files.file_descriptor_proto[0].as_slice()).unwrap();
    let descriptor = file
        .message_type
        .iter()
        .find(|message| message.name() == "RateLimitDescriptor")
        .unwrap();
    let entry = descriptor
        .nested_type
        .iter()
        .find(|message| message.name() == "Entry")
        .unwrap();
    for field in &entry.field {
        assert_eq!(
            field.r#type(),
            prost_types::field_descriptor_proto::Type::String
        );
    }
}
