//! Errors in files of limits: each with its file and its line, and none takes effect.

use std::fmt::Write as _;

use tollgate::rules::file::{LINE_ERRORS_MAX, Options, Report, load};

use super::{RULES, directory, read, with_table};
use crate::rules::reading::source;

/// The lines of a report, each with its message.
fn lines(report: &Report) -> Vec<String> {
    let line = |one: &tollgate::rules::file::Diagnostic| {
        let file = one.file.rsplit('/').next().unwrap_or_default();
        format!("{file}:{}: {}", one.span.at.line, one.message)
    };
    report.errors.iter().map(line).collect()
}

fn errors(table: &[u8]) -> Vec<String> {
    lines(&with_table(RULES, table).unwrap_err())
}

#[test]
fn every_bad_line_is_reported_with_its_number() {
    let table = b"value,unit,requests_per_unit,burst\r\n\
        good,second,5,\r\n\
        \r\n\
        a,second,many,\r\n\
        \"b, b\",second,5,\r\n\
        \"c\"\"\",second,5,\r\n\
        c,fortnight,5,\r\n\
        ,second,5,\r\n\
        d,second,,\r\n\
        e,second,5,0\r\n\
        f,second\r\n\
        g,,5,\r\n\
        h,second,-1,\r\n\
        good,second,6,\r\n";
    let found = errors(table);
    let expected = [
        "tenants.csv:4: requests_per_unit is not a whole number from 0 to 9007199254740991: found text",
        "tenants.csv:7: invalid rate limit unit 'fortnight'",
        "tenants.csv:8: its value is empty",
        "tenants.csv:9: requests_per_unit is missing",
        "tenants.csv:10: algorithm fixed_window has no burst: fixed_window is the default algorithm",
        "tenants.csv:11: it has 2 columns, and the header has 4",
        "tenants.csv:12: invalid rate limit unit '': `unit` is missing",
        "tenants.csv:13: requests_per_unit is not a whole number from 0 to 9007199254740991: out of range",
        "tenants.csv:14: line 2 has the same value",
    ];
    assert_eq!(found, expected);
}

/// A stray quote must not swallow the lines up to the next one.
#[test]
fn a_stray_quote_is_an_error_of_its_line_and_no_other() {
    let table = b"value,unit,requests_per_unit\n\
        \"acme,year,5\n\
        good,year,6\n\
        globex\",year,7\n\
        a\"b,year,8\n\
        \"c\"d,year,9\n\
        \"e\" ,year,10\n\
        f, \"year\",11\n\
        \"two\nlines\",year,12\n\
        \"caf\xe9\",year,13\n\
        last,year,\"14\n";
    let found = errors(table);
    let expected = [
        "tenants.csv:2: a quote is opened and not closed",
        "tenants.csv:4: a quote within the value 'globex\"'",
        "tenants.csv:5: a quote within the value 'a\"b'",
        "tenants.csv:6: text after a closing quote: 'd,year,9'",
        "tenants.csv:7: text after a closing quote: ' ,year,10'",
        "tenants.csv:8: a quote within the value ' \"year\"'",
        "tenants.csv:9: a quote is opened and not closed",
        "tenants.csv:10: a quote within the value 'lines\"'",
        "tenants.csv:11: it is not UTF-8 text",
        "tenants.csv:12: a quote is opened and not closed",
    ];
    assert_eq!(found, expected);
    // Any line break of the three ends a line.
    for table in ["a,b\n\"c,d", "a,b\r\n\"c,d", "a,b\r\"c,d"] {
        let table = format!("value,unit\n{table}\n");
        assert!(
            errors(table.as_bytes())
                .contains(&"tenants.csv:3: a quote is opened and not closed".to_owned())
        );
    }
}

#[test]
fn a_hundred_bad_lines_are_shown_and_further_ones_are_counted() {
    const BAD: usize = LINE_ERRORS_MAX + 30;
    let mut table = "value,unit,requests_per_unit\n".to_owned();
    for index in 0..BAD {
        writeln!(table, "good{index},second,{index}\nbad{index},second,x").unwrap();
    }
    let report = with_table(RULES, table.as_bytes()).unwrap_err();
    assert_eq!((LINE_ERRORS_MAX, report.errors.len()), (100, 100));
    assert_eq!(report.errors_omitted, 30);
    let numbers: Vec<_> = report.errors.iter().map(|one| one.span.at.line).collect();
    let expected: Vec<_> = (0..LINE_ERRORS_MAX).map(|index| 3 + 2 * index).collect();
    assert_eq!(numbers, expected);
    assert!(report.render(false).ends_with("and 30 more errors"));
}

#[test]
fn a_file_without_a_usable_header_is_refused() {
    for (table, expected) in [
        (&b""[..], "tenants.csv:1: the file is empty"),
        (b"\xef\xbb\xbf", "tenants.csv:1: the file is empty"),
        (
            b"acme,second,5\n",
            "tenants.csv:1: it is no header of a file of limits",
        ),
        (
            b"root:x:0:0:root:\"/root\":/bin/bash\n",
            "tenants.csv:1: it is no header of a file of limits",
        ),
        (
            b"\n\nvalue,units,requests_per_unit\n",
            "tenants.csv:3: unknown column 'units'",
        ),
        (
            b"unit,requests_per_unit\n",
            "tenants.csv:1: the header has no column 'value'",
        ),
        (
            b"value,unit,unit\n",
            "tenants.csv:1: the column 'unit' occurs twice",
        ),
        (
            b"\xef\xbb\xbfvalue,unit,requests_per_unit\r\n\r\n",
            "tenants.csv:1: the file has a header and no values",
        ),
        (
            b"\xff\xfev\0a\0l\0u\0e\0",
            "tenants.csv:1: it is not UTF-8 text",
        ),
    ] {
        assert_eq!(errors(table), [expected]);
    }
}

#[test]
fn bad_json_lines_are_reported_with_their_numbers() {
    let rules = RULES.replace("tenants.csv", "tenants.jsonl");
    let table = "\n{\"value\": \"a\", \"unit\": \"second\", \"requests_per_unit\": 5}\n\
        {\"value\": \"b\", \"unit\": \"second\", \"requests_per_unit\": \"5\"}\n\
        {\"value\": 5, \"unit\": \"second\", \"requests_per_unit\": 5}\n\
        {\"unit\": \"second\", \"requests_per_unit\": 5}\n\
        {\"value\": \"c\", \"rate\": 5}\n\
        {\"value\": \"c\", \"value\": \"d\"}\n\
        [1]\n\
        {\"value\": \"e\"} x\n\
        {\"value\": \"a\", \"unit\": \"second\", \"requests_per_unit\": 5}\n";
    let files = directory(&[
        ("rules.yaml", rules.as_bytes()),
        ("tenants.jsonl", table.as_bytes()),
    ]);
    let found = lines(&read(files.path()).unwrap_err());
    let begins = [
        "tenants.jsonl:3: requests_per_unit is not a whole number",
        "tenants.jsonl:4: value is not a text; put it in quotes",
        "tenants.jsonl:5: it has no value",
        "tenants.jsonl:6: unknown field 'rate'; the fields are value, unit,",
        "tenants.jsonl:7: 'value' occurs twice",
        "tenants.jsonl:8: it is no JSON object",
        "tenants.jsonl:9: trailing characters at column 16",
        "tenants.jsonl:10: line 2 has the same value",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    for (found, begin) in found.iter().zip(begins) {
        assert!(found.starts_with(begin), "{found}\n{begin}");
    }
}

#[test]
fn what_would_give_one_bucket_several_limits_is_refused() {
    let table = b"value,unit,requests_per_unit\n10.0.0.1,second,5\n";
    for (fields, message) in [
        (
            "share_threshold: true, value: 'a*'",
            "'share_threshold' and 'limits_from' on one descriptor",
        ),
        (
            "cidr: 10.0.0.0/8",
            "'cidr' and 'limits_from' on one descriptor",
        ),
        (
            "ipv6_prefix: 64",
            "'ipv6_prefix' and 'limits_from' on one descriptor",
        ),
        (
            "rate_limits: [{unit: second, requests_per_unit: 1}]",
            "'rate_limits' and 'limits_from' on one descriptor",
        ),
        (
            "detailed_metric: true",
            "'detailed_metric' and 'limits_from' on one descriptor",
        ),
        (
            "value_to_metric: true, detailed_metric: false",
            "'value_to_metric' and 'limits_from' on one descriptor",
        ),
        (
            "rate_limit: {unit: second, requests_per_unit: 1, budget: b}",
            "'budget' beside 'limits_from'",
        ),
        (
            "rate_limit: {unit: second, requests_per_unit: 1, candidate: {unit: second, requests_per_unit: 1}}",
            "'candidate' beside 'limits_from'",
        ),
        (
            "rate_limit: {unit: second, requests_per_unit: 1, algorithm: token_bucket, rlqs: true}",
            "'rlqs' beside 'limits_from'",
        ),
    ] {
        let rules = format!(
            "domain: d\ndescriptors: [{{key: tenant, limits_from: tenants.csv, {fields}}}]\n"
        );
        let report = with_table(&rules, table).unwrap_err();
        let messages: Vec<_> = report.errors.iter().map(|one| &one.message).collect();
        assert_eq!(messages, [message], "{rules}");
    }
}

#[test]
fn lines_whose_algorithm_has_no_reservations_are_refused_beside_reserve() {
    let rules = "domain: d\ndescriptors: [{key: tenant, limits_from: tenants.csv, \
        rate_limit: {unit: second, requests_per_unit: 9, reserve: {key: id, amount: 1}}}]\n";
    let table = b"value,unit,requests_per_unit,algorithm\na,second,5,fixed_window\nb,second,5,sliding_log\n";
    let report = with_table(rules, table).unwrap_err();
    assert_eq!(report.errors.len(), 1, "{report}");
    let message = &report.errors[0].message;
    assert!(
        message.ends_with("sliding_log, which has no reservations"),
        "{message}"
    );
}

#[test]
fn too_many_forms_are_an_error_of_their_line() {
    let mut table = "value,unit,unit_multiplier,requests_per_unit\n".to_owned();
    for index in 1..=70 {
        writeln!(table, "t{index},second,{index},1").unwrap();
    }
    let found = errors(table.as_bytes());
    assert_eq!(found.len(), 6);
    assert_eq!(
        found[0],
        "tenants.csv:66: more than 64 combinations of plan, window, algorithm and shadow_mode"
    );
}

#[test]
fn a_file_that_is_not_there_is_an_error_of_the_rules() {
    let files = directory(&[("rules.yaml", RULES.as_bytes())]);
    let report = read(files.path()).unwrap_err();
    assert_eq!(report.errors.len(), 1);
    let error = &report.errors[0];
    assert!(
        error.message.contains("tenants.csv: No such file"),
        "{error}"
    );
    assert_eq!(error.span.at.line, 5);
    assert_eq!(error.path, "descriptors[0]");
}

#[test]
fn rules_that_are_no_file_cannot_name_one() {
    let report = load(&[source("rules.yaml", RULES)], Options::default()).unwrap_err();
    let messages: Vec<_> = report.errors.iter().map(|one| &one.message).collect();
    assert_eq!(messages, ["limits_from needs rules in a file"]);
}

#[test]
fn a_line_with_a_plan_has_no_limit_of_its_own() {
    let rules =
        format!("{RULES}plans: {{free: {{unit: day, requests_per_unit: 1, budget: shared}}}}\n");
    let found = with_table(&rules, b"value,unit,plan\na,day,free\n").unwrap_err();
    assert_eq!(lines(&found), ["tenants.csv:2: 'unit' beside 'plan'"]);
    let found = with_table(&rules, b"value,plan\na,free\n").unwrap_err();
    let [error] = &*found.errors else {
        panic!("{found:?}");
    };
    let words = "tenants.csv names the plan 'free', which has 'budget'";
    assert!(error.message.ends_with(words), "{}", error.message);
}
