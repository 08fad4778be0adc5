//! Bodies that are not understood: each is 400 with the field and what to write instead.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;

use super::{Connection, body, left, post};
use crate::service::flags;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000 }
";

const CALLS: [&str; 7] = [
    "check", "peek", "reserve", "extend", "commit", "release", "batch",
];

/// The message of a 400.
async fn refused(service: &Service, call: &str, body: &Value) -> String {
    let (status, answer) = post(service.http, call, body).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &json!("INVALID_ARGUMENT")),
        "{body}"
    );
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_wrong_with_a_field_is_said() {
    let service = Service::start(RULES, &[]).await;
    let id = json!({"reservation": "r"});
    let with = |fields: Value| {
        let mut all = id.clone();
        for (name, value) in fields.as_object().unwrap() {
            all[name] = value.clone();
        }
        body("user", "ann", all)
    };
    let without = |name: &str, call: Value| {
        let mut call = call;
        call.as_object_mut().unwrap().remove(name);
        call
    };
    let descriptors = |descriptors: Value| json!({"domain": "d", "descriptors": descriptors});
    let entry = json!({"key": "user", "value": "ann"});
    let long = "i".repeat(257);
    let number = "write a whole number from 0 to 9007199254740991";
    let span = "write a duration from 1ms to 1d";
    let form = "is no duration; write a text such as \"60s\", \"1.5s\" or \"5m\"";
    let table: Vec<(&str, Value, String)> = vec![
        ("check", json!([]), "the body is a list; send an object".into()),
        ("check", json!("x"), "the body is a text; send an object".into()),
        ("check", json!({}), "domain is missing; send the domain of the rules".into()),
        ("check", json!({"domain": ""}), "domain is missing; send the domain of the rules".into()),
        ("check", json!({"domain": 1}), "domain is a number; write a text in quotes".into()),
        ("check", json!({"domian": "d"}), "domian is no field; did you mean \"domain\"?".into()),
        ("check", json!({"zz": "d"}), "zz is no field; the fields are domain, descriptors, hits".into()),
        ("check", with(json!({})), "reservation is no field; the fields are domain, descriptors, hits".into()),
        ("release", with(json!({"hits": 1})), "hits is no field; the fields are domain, descriptors, reservation".into()),
        ("check", json!({"domain": "d"}), "descriptors is missing; send [{\"entries\": [{\"key\": \"KEY\", \"value\": \"VALUE\"}]}]".into()),
        ("check", descriptors(json!([])), "descriptors is missing; send [{\"entries\": [{\"key\": \"KEY\", \"value\": \"VALUE\"}]}]".into()),
        ("check", descriptors(json!({})), "descriptors is an object; send a list".into()),
        ("check", descriptors(json!([1])), "descriptors[0] is a number; send an object".into()),
        ("check", descriptors(json!([{}])), "descriptors[0].entries is missing; send [{\"key\": \"KEY\", \"value\": \"VALUE\"}]".into()),
        ("check", descriptors(json!([{"entries": [{}]}])), "descriptors[0].entries[0].key is missing; send the key as in the rules".into()),
        ("check", descriptors(json!([{"entries": [entry, {"key": "a", "vlaue": "b"}]}])), "descriptors[0].entries[1].vlaue is no field; did you mean \"value\"?".into()),
        ("check", descriptors(json!([{"entries": [{"key": "a", "value": true}]}])), "descriptors[0].entries[0].value is a boolean; write a text in quotes".into()),
        ("check", descriptors(json!([{"entries": [entry], "hits": -1}])), format!("descriptors[0].hits is negative; {number}")),
        ("release", { let mut one = with(json!({})); one["descriptors"][0]["hits"] = json!(1); one }, "descriptors[0].hits is no field; the fields are entries".into()),
        ("commit", with(json!({"hits": -5})), format!("hits is negative; {number}")),
        ("commit", with(json!({"hits": 1.5})), format!("hits is a fraction; {number}")),
        ("commit", with(json!({"hits": -1.0})), format!("hits is negative; {number}")),
        ("commit", with(json!({"hits": 9_007_199_254_740_992.0})), format!("hits is too large; {number}")),
        ("commit", with(json!({"hits": "5"})), format!("hits is a text; {number}")),
        ("commit", with(json!({"hits": 9_007_199_254_740_992_u64})), format!("hits is too large; {number}")),
        ("commit", with(json!({"hits": u64::MAX})), format!("hits is too large; {number}")),
        ("commit", with(json!({"hits": 1e300})), format!("hits is too large; {number}")),
        ("commit", with(json!({"hits": null})), "hits is missing; send the true amount".into()),
        ("commit", without("reservation", with(json!({"hits": 1}))), "reservation is missing; send the id that the reservation was made with".into()),
        ("commit", with(json!({"hits": 1, "reservation": ""})), "reservation is missing; send the id that the reservation was made with".into()),
        ("commit", with(json!({"hits": 1, "reservation": 7})), "reservation is a number; write a text in quotes".into()),
        ("commit", with(json!({"hits": 1, "reservation": long})), "reservation has 257 bytes; an id has at most 256".into()),
        ("reserve", with(json!({"hits": 1, "reservation": "é".repeat(129)})), "reservation has 258 bytes; an id has at most 256".into()),
        ("reserve", with(json!({"hits": 1, "expires": "0s"})), format!("expires is 0; {span}")),
        ("reserve", with(json!({"hits": 1, "expires": "-1s"})), format!("expires is negative; {span}")),
        ("reserve", with(json!({"hits": 1, "expires": "86400.001s"})), format!("expires is longer than a day; {span}")),
        ("reserve", with(json!({"hits": 1, "expires": 60})), "expires is a number; write a text in quotes".into()),
        ("reserve", with(json!({"hits": 1, "expires": "soon"})), format!("expires {form}")),
        ("reserve", with(json!({"hits": 1, "on_expiry": "keep"})), "on_expiry is unknown; write \"charge\" or \"release\"".into()),
        ("reserve", with(json!({"hits": 1, "onExpiry": "charge"})), "onExpiry is no field; did you mean \"on_expiry\"?".into()),
        ("extend", with(json!({})), "expires is missing; send a duration from now, such as \"60s\"".into()),
    ];
    for (call, body, why) in table {
        assert_eq!(refused(&service, call, &body).await, why, "{call} {body}");
    }
    assert_eq!(left(&service, "user", "ann").await, 1000);
}

#[tokio::test]
async fn what_is_no_json_is_said() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    let deep = "[".repeat(100_000).leak().as_bytes();
    let json = |why: &str| format!("the body is not valid JSON: {why}");
    let twice = json("the field \"domain\" is there twice at line 1 column 27");
    let bodies: [(&[u8], String); 8] = [
        (b"", "the body is empty; send a JSON object".to_owned()),
        (b"domain=d", json("expected value at line 1 column 1")),
        (
            b"{\"domain\":\"\xff\"}",
            "the body is not UTF-8 after 11 bytes".to_owned(),
        ),
        (b"{\"domain\":\"d\",\"domain\":\"e\"}", twice),
        (b"{} {}", json("trailing characters at line 1 column 4")),
        (
            b"{\"domain\":\"d\"}x",
            json("trailing characters at line 1 column 15"),
        ),
        (deep, json("recursion limit exceeded at line 1 column 128")),
        (
            b"{\"hits\":1e999}",
            json("number out of range at line 1 column 13"),
        ),
    ];
    for (body, why) in bodies {
        let (status, answer) =
            tokio::task::spawn_blocking(move || Connection::open(address).post("check", body))
                .await
                .unwrap();
        assert_eq!(
            (status, answer["error"]["message"].as_str()),
            (400, Some(why.as_str()))
        );
    }
}

#[tokio::test]
async fn whole_numbers_are_read_in_every_form_of_json() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    for (hits, left) in [
        ("100.0", 900),
        ("1e2", 800),
        ("0.5e1", 795),
        ("-0", 795),
        ("-0.0", 795),
    ] {
        let call = body("user", "ann", json!({"hits": "HITS"})).to_string();
        let call = call.replace("\"HITS\"", hits).into_bytes();
        let sent =
            tokio::task::spawn_blocking(move || Connection::open(address).post("check", &call));
        let (status, answer) = sent.await.unwrap();
        assert_eq!(
            (status, &answer["remaining"]),
            (200, &json!(left)),
            "{hits}"
        );
    }
}

#[tokio::test]
async fn bounds_of_the_settings_are_those_of_other_requests() {
    let bounds = ["--entries-max", "1", "--on-excess"];
    let service = Service::start(RULES, &[&bounds[..], &["error"]].concat()).await;
    let mut call = body("user", "ann", json!({}));
    let entry = call["descriptors"][0]["entries"][0].clone();
    call["descriptors"][0]["entries"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    let (status, answer) = post(service.http, "check", &call).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &json!("RESOURCE_EXHAUSTED"))
    );
    assert_eq!(
        answer["error"]["message"],
        "a descriptor may have 1 entries; raise --entries-max"
    );
}

/// Any JSON of the shape of a call, or nearly.
fn nearly_a_call() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.-]{0,6}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("60s")),
        Just(json!("user")),
        Just(json!("d")),
        Just(json!([{"entries": [{"key": "user", "value": "fuzz"}]}])),
    ];
    let names = "domain descriptors entries key value hits reservation expires on_expiry calls \
                 check reserve commit tag surprise";
    let names = prop::sample::select(flags(names));
    leaf.prop_recursive(4, 32, 6, move |inner| {
        let name = names.clone().prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..7)
                .prop_map(|fields| { Value::Object(fields.into_iter().collect()) }),
        ]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bodies_get_a_status_and_a_reason_and_the_service_goes_on() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address);
        let good = body("user", "ann", json!({"hits": 1, "reservation": "r"})).to_string();
        let call = prop::sample::select(CALLS.to_vec());
        let near = nearly_a_call().prop_map(|call| call.to_string().into_bytes());
        // A good call with one byte changed, and the beginning of one.
        let changed =
            (0..good.len(), any::<u8>(), any::<bool>()).prop_map(move |(at, byte, cut)| {
                let mut bytes = good.clone().into_bytes();
                if cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] = byte;
                }
                bytes
            });
        let config = Config {
            cases: 2_000,
            ..Config::default()
        };
        // The same bodies each time.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let bodies = (call, prop_oneof![near, changed]);
        let connection = std::cell::RefCell::new(&mut connection);
        runner
            .run(&bodies, |(call, body)| {
                let (status, answer) = connection.borrow_mut().post(call, &body);
                match status {
                    200 | 429 => prop_assert!(answer["error"].is_null()),
                    400 | 404 => {
                        let why = answer["error"]["message"].as_str().unwrap();
                        prop_assert!(!why.is_empty() && why.len() < 400, "{}", why);
                    }
                    other => prop_assert!(false, "{} {}", other, answer),
                }
                Ok(())
            })
            .unwrap();
    })
    .await
    .unwrap();
    let alive = tokio::task::spawn_blocking(move || http(address, "GET", "/healthcheck", ""));
    assert_eq!(alive.await.unwrap().0, 200);
}
