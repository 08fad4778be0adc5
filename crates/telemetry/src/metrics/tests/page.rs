//! The tables of `docs/metrics.md`, which are made of the declarations. `make readme` writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{fs, path};

use prometheus::proto::MetricType;
use tollgate_http2::Reason;

use crate::metrics::{Declaration, LabelValues, Metrics};

const PAGE: &str = "../../docs/metrics.md";
const START: &str = "<!-- metrics: make readme -->\n";
const END: &str = "<!-- /metrics -->";

/// Every error code that ends a connection.
const HTTP2_REASONS: [Reason; 10] = [
    Reason::NoError,
    Reason::Protocol,
    Reason::Internal,
    Reason::FlowControl,
    Reason::StreamClosed,
    Reason::FrameSize,
    Reason::RefusedStream,
    Reason::Cancel,
    Reason::Compression,
    Reason::EnhanceYourCalm,
];

fn table(declarations: impl Iterator<Item = &'static Declaration>) -> String {
    let mut table = "| name | kind | labels | what | statsd |\n\
                     | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for declaration in declarations {
        let kind = match declaration.kind {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            _ => "histogram",
        };
        let labels = declaration.labels.iter().map(|label| match label.values {
            LabelValues::OneOf(values) => format!("`{}`: {}", label.name, values.join(", ")),
            LabelValues::Bounded(bound) => format!("`{}` ({bound})", label.name),
        });
        let labels: Vec<String> = labels.collect();
        let statsd = declaration.statsd_name();
        let statsd = statsd.map_or("no".to_owned(), |name| format!("`{name}`"));
        writeln!(
            table,
            "| `{}` | {kind} | {} | {} | {statsd} |",
            declaration.name,
            labels.join("; "),
            declaration.help
        )
        .unwrap();
    }
    table
}

/// The page says which metrics answer a question; a row is made of the declaration of its name.
#[test]
fn the_page_lists_every_metric() {
    let path = path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let metrics = Metrics::new().unwrap();
    let declared = metrics.declarations();
    let mut declared: BTreeMap<_, _> = declared.map(|one| (one.name, one)).collect();
    let (mut expected, mut rest) = (String::new(), &*page);
    while let Some((before, after)) = rest.split_once(START) {
        let (shown, after) = after.split_once(END).unwrap();
        let names = shown
            .lines()
            .filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        let rows = names.filter_map(|name| declared.remove(name));
        expected.extend([before, START, &*table(rows), END]);
        rest = after;
    }
    expected += rest;
    let missing: Vec<_> = declared.into_keys().collect();
    assert!(
        missing.is_empty(),
        "add rows that begin with | `NAME` to a table: {missing:?}"
    );
    if std::env::var_os("WRITE_README").is_some() {
        return fs::write(path, expected).unwrap();
    }
    assert_eq!(page, expected, "run `make readme`");
}

#[test]
fn a_help_is_one_sentence_in_upper_case_without_a_period() {
    for declaration in Metrics::new().unwrap().declarations() {
        let help = declaration.help;
        let first = help.chars().next().unwrap();
        assert!(
            first.is_ascii_uppercase() || help.starts_with("gRPC"),
            "{}: {help}",
            declaration.name
        );
        assert!(!help.ends_with('.') && !help.contains(". "), "{help}");
        assert!(!help.contains(['|', '`', '\n']), "{help}");
    }
}

fn declared(name: &str, label: &str) -> &'static [&'static str] {
    let metrics = Metrics::new().unwrap();
    let mut declarations = metrics.declarations();
    let declaration = declarations.find(|one| one.name == name).unwrap();
    let mut labels = declaration.labels.iter();
    match labels.find(|one| one.name == label).unwrap().values {
        LabelValues::OneOf(values) => values,
        LabelValues::Bounded(_) => unreachable!("{name} has a list of values"),
    }
}

#[test]
fn declared_label_values_are_those_of_the_code() {
    let reasons = HTTP2_REASONS.map(Reason::name);
    let name = "tollgate_connections_broken_total";
    assert_eq!(declared(name, "reason"), reasons);
}
