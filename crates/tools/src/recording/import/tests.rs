//! Tests of logs that are read like recordings.

use proptest::prelude::*;
use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use prost::Message as _;

use super::rows::LINE_BYTES_MAX;
use super::{Mapping, open};
use crate::recording::{Event, Events, ReadError, SORTED_BYTES_MAX};
use tollgate_rules::path::Source;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::tollgate::recording::v1::Code;

const MAPPING: &str = "
time: {field: start_time}
domain: edge
descriptors:
- entries:
  - {key: route, value: checkout}
  - {key: remote_address, field: client.address}
- entries: [{key: user, field: user}]
hits: {field: tokens}
verdict: {field: flags, over_limit: RL}
";

fn mapping(text: &str) -> Result<Mapping, String> {
    let source = Source {
        name: "mapping.yaml".to_owned(),
        text: text.to_owned(),
    };
    Mapping::parse(&source).map_err(|report| report.render(false))
}

fn events(log: &str, mapping_text: &str) -> Result<Box<dyn Events>, ReadError> {
    events_of(log.as_bytes().to_vec(), mapping_text)
}

fn events_of(log: Vec<u8>, mapping_text: &str) -> Result<Box<dyn Events>, ReadError> {
    let log = std::io::Cursor::new(log);
    open(log, mapping(mapping_text).expect("mapping"))
}

/// One member of a gzip file.
fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("written");
    encoder.finish().expect("compressed")
}

/// Each request in words: time, hits, descriptors, verdict.
fn words(events: &mut dyn Events) -> Result<Vec<String>, ReadError> {
    let mut words = Vec::new();
    while let Some(Event::Request(request)) = events.next_event()? {
        assert_eq!(request.order, words.len() as u64 + 1);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let message = RateLimitRequest::decode(&*request.request).expect("message");
        let descriptors = message.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            let entries = entries.map(|one| format!("{}={}", text(&one.key), text(&one.value)));
            entries.collect::<Vec<_>>().join(",")
        });
        let descriptors = descriptors.collect::<Vec<_>>().join(" ");
        let domain = text(&message.domain);
        let hits = message.hits_addend;
        let verdict = match request.code() {
            Code::None => "",
            code => code.as_str_name(),
        };
        let time = request.time_us / 1_000;
        words.push(format!("{time} {domain} {hits} {descriptors} {verdict}"));
    }
    Ok(words)
}

/// The message of what must be an error.
fn error<T>(result: Result<T, ReadError>) -> String {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_access_log_of_json_lines_is_read_in_the_order_of_its_times() {
    let log = r#"
{"start_time":"1970-01-01T00:00:02.500Z","client":{"address":"10.0.0.1"},"user":null,"tokens":7,"flags":"-"}
{"start_time":"1970-01-01T00:00:01.000Z","client":{"address":"10.0.0.2"},"user":"ann","flags":"UF,RL"}
{"start_time":"1970-01-01T00:00:02.500Z","user":"bob","flags":null}
{"start_time":"1970-01-01T00:00:03.000Z","client.address":"10.0.0.3","user":"-","flags":"RLX"}
"#;
    let mut events = events(log, MAPPING).expect("log");
    assert_eq!(events.header().began_us, 1_000_000);
    assert_eq!(events.header().imported_from, "access log");
    assert_eq!(
        words(&mut *events).expect("requests"),
        [
            "1000 edge 0 route=checkout,remote_address=10.0.0.2 user=ann OVER_LIMIT",
            "2500 edge 7 route=checkout,remote_address=10.0.0.1 OK",
            "2500 edge 0 user=bob OK",
            "3000 edge 0 route=checkout,remote_address=10.0.0.3 OK",
        ]
    );
    assert_eq!(events.summary().unread, 0);
    assert!(events.summary().ended.is_some());
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_the_first_ones_named() {
    let good = r#"{"start_time":"1970-01-01T00:00:01Z","user":"ann"}"#;
    let long = format!(r#"{{"user":"{}"}}"#, "x".repeat(LINE_BYTES_MAX));
    let lines = [
        "{}",
        good,
        "{\"start_time\":",
        "[1]",
        &long,
        r#"{"start_time":"noon","user":"ann"}"#,
        r#"{"start_time":"1970-01-01T00:00:01Z","user":["ann"]}"#,
        r#"{"start_time":"1970-01-01T00:00:01Z","user":"ann","tokens":-1}"#,
        r#"{"start_time":"1970-01-01T00:00:01Z"}"#,
        good,
    ];
    let mut events = events(&lines.join("\n"), MAPPING).expect("log");
    assert_eq!(words(&mut *events).expect("requests").len(), 2);
    let summary = events.summary();
    assert_eq!(summary.skipped.without_entry, 1, "line 9");
    assert_eq!(summary.unread, 7);
    let first: Vec<_> = summary
        .first_unread
        .iter()
        .map(|one| format!("{}: {}", one.line, one.why))
        .collect();
    assert_eq!(
        first,
        [
            "1: it has no `start_time`, which is its time",
            "3: it is no JSON: EOF while parsing a value at column 14",
            "4: it is no JSON object",
            "5: it is longer than 1048576 bytes",
            "6: `start_time` is no time in RFC 3339 with an offset",
            "7: `user` is a list",
            "8: its hits are no number from 0 to 4294967295",
        ]
    );
}

const CSV_MAPPING: &str = "
time: {field: time, format: unix_seconds}
domain: {field: domain}
descriptors: [{entries: [{key: user, field: user}]}]
verdict: {field: status, over_limit: ['429']}
";

#[test]
fn a_csv_file_is_read_by_its_columns() {
    let log = "time,domain,user,status\n\
        2.5,edge,\"smith, ann\",200\n\
        1,edge,bob,429\n\
        3,edge\n\
        4,edge,,200\n\
        5,,ann,200\n";
    let mut events = events(log, CSV_MAPPING).expect("log");
    assert_eq!(events.header().imported_from, "csv");
    assert_eq!(
        words(&mut *events).expect("requests"),
        [
            "1000 edge 0 user=bob OVER_LIMIT",
            "2500 edge 0 user=smith, ann OK"
        ]
    );
    let summary = events.summary();
    assert_eq!((summary.unread, summary.skipped.without_entry), (2, 1));
    assert_eq!(summary.first_unread[0].line, 4);
    assert_eq!(
        summary.first_unread[0].why,
        "it has 2 columns, and the first row has 4"
    );
    assert_eq!(summary.first_unread[1].why, "it has no domain");
}

#[test]
fn a_csv_file_with_other_columns_or_an_open_quote_is_refused() {
    let other = error(events(
        "when,domain,user,status\n1,edge,ann,200\n",
        CSV_MAPPING,
    ));
    assert_eq!(
        other,
        "the log has no column `time`, which the mapping names; its columns are: when, domain, user, status"
    );
    let rest = "2,edge,bob,200\n".repeat(LINE_BYTES_MAX / 10);
    let log = format!("time,domain,user,status\n1,edge,\"ann,200\n{rest}");
    let open = error(events(&log, CSV_MAPPING));
    assert!(
        open.starts_with("line 2 of the log: a row begins here"),
        "{open}"
    );
}

#[test]
fn a_byte_order_mark_is_skipped_and_what_is_no_plain_text_is_named() {
    let json = "\u{feff}{\"start_time\":\"2026-11-20T10:00:00Z\",\"user\":\"ann\"}\n";
    let mut log = events(json, MAPPING).expect("log");
    let read = words(&mut *log).expect("requests");
    assert_eq!(read.len(), 1, "{read:?}");
    let csv = "\u{feff}time,domain,user,status\n1,edge,ann,200\n";
    let mut log = events(csv, CSV_MAPPING).expect("log");
    assert_eq!(words(&mut *log).expect("requests").len(), 1);
    for (begin, what) in super::FOREIGN {
        let refused = error(events_of([begin, b"..."].concat(), MAPPING));
        assert!(
            refused.starts_with(&format!("the log is {what}; ")),
            "{refused}"
        );
    }
}

#[test]
fn a_log_that_gzip_compressed_is_read_within_the_same_bounds() {
    let csv = "\u{feff}time,domain,user,status\n1,edge,ann,200\n";
    let members = [gzipped(csv), gzipped(""), gzipped("2,edge,bob,200\n")].concat();
    let mut log = events_of(members.clone(), CSV_MAPPING).expect("log");
    assert_eq!(words(&mut *log).expect("requests").len(), 2);
    let bomb = format!("{{\"start_time\":\"{}\"}}", "0".repeat(16 * LINE_BYTES_MAX));
    let bomb = error(events_of(gzipped(&bomb), MAPPING));
    assert!(
        bomb.ends_with("line 1: it is longer than 1048576 bytes"),
        "{bomb}"
    );
    let cut = members[..members.len() - 1].to_vec();
    for damaged in [cut, [&members[..], b"more"].concat()] {
        let damaged = error(events_of(damaged, CSV_MAPPING));
        let start = "the recording cannot be read: ";
        assert!(damaged.starts_with(start), "{damaged}");
    }
}

#[test]
fn a_log_without_requests_says_what_is_wrong() {
    let none = error(events("{\"a\":1}\n{\"b\":2}\n", MAPPING));
    assert_eq!(
        none,
        "the log has no request: 2 lines cannot be read, 0 have no value for any descriptor; \
         line 1: it has no `start_time`, which is its time"
    );
}

#[test]
fn a_log_that_is_far_from_the_order_of_its_times_is_refused() {
    // The last line is earlier than more requests than are sorted.
    let user = "u".repeat(4000);
    let lines = SORTED_BYTES_MAX / 4000 + 10;
    let mut log = "time,domain,user,status\n".to_owned();
    for second in 0..lines {
        writeln!(log, "{},edge,{user},200", second + 100).expect("text");
    }
    log.push_str("1,edge,ann,200\n");
    let mut far = events(&log, CSV_MAPPING).expect("log");
    let far = error(words(&mut *far));
    let line = lines + 2;
    assert_eq!(
        far,
        format!(
            "line {line} of the log is earlier than requests that are replayed already; \
             at most 64 MiB of requests are sorted; sort the log by time"
        )
    );
}

#[test]
fn mistakes_in_a_mapping_file_have_a_place_and_a_correction() {
    let wrong = "
time: {feild: start_time, format: iso}
domain: [edge]
descriptors:
- entries: [{key: user, field: user, value: ann}, {field: a}]
- {}
hits: many
verdict: {field: flags}
";
    let report = mapping(wrong).expect_err("mistakes");
    for (place, message) in [
        ("mapping.yaml:2:8", "feild"),
        ("mapping.yaml:2:35", "unknown format 'iso'"),
        ("mapping.yaml:3:9", "domain is a list"),
        ("mapping.yaml:5:25", "an entry has both `value` and `field`"),
        ("mapping.yaml:5:51", "`key` is missing or empty"),
        ("mapping.yaml:6:3", "`entries` is missing or empty"),
        ("mapping.yaml:7:7", "hits is not a whole number"),
        ("mapping.yaml:8:10", "`over_limit` is missing or empty"),
    ] {
        assert!(report.contains(message), "{message}\n{report}");
        assert!(report.contains(place), "{place}\n{report}");
    }
    assert!(mapping("").expect_err("empty").contains("is empty"));
}

proptest! {
    #[test]
    fn odd_logs_never_panic(log in "[{\\[\"a:,0-9}\\]\\\\\n]{0,200}") {
        for mapping in [MAPPING, CSV_MAPPING] {
            if let Ok(mut events) = events(&log, mapping) {
                let _ = words(&mut *events);
            }
        }
    }

    #[test]
    fn odd_mappings_never_panic(text in "[a-z:{}\\[\\], \n-]{0,120}") {
        let _ = mapping(&text);
    }
}
