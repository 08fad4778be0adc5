//! Snippets of hostile files: long lines, control characters, wide characters, many errors.
//!
//! What it deliberately does not do: measure time (`fuzz`).

use tollgate::rules::file::{DIAGNOSTICS_MAX, Report, load};

use crate::rules::reading::{APART, source};

/// The report of an invalid file.
fn rejected(text: &str) -> Report {
    load(&[source("rules.yaml", text)], APART).unwrap_err()
}

/// The column at which the caret of a snippet begins, and that of a text in the line above.
fn columns(text: &str, sought: char) -> (usize, usize) {
    let lines: Vec<_> = text.lines().collect();
    let caret = lines.iter().position(|line| line.contains('^')).unwrap();
    let width = |line: &str, end: char| -> usize {
        let before = line.split(end).next().unwrap();
        before
            .chars()
            .map(|c| match c {
                '\u{300}'..='\u{36f}' | '\u{feff}' => 0,
                '\u{1100}'..='\u{ffef}' => 2,
                _ => 1,
            })
            .sum()
    };
    (width(lines[caret], '^'), width(lines[caret - 1], sought))
}

#[test]
fn a_caret_is_below_its_text_whatever_is_before_it() {
    for before in [
        "",
        "漢字かな: 1, ",
        "e\u{301}e\u{301}e\u{301}: 1, ",
        "a\tb: 1, ",
        "Ω: 1, ",
    ] {
        let text =
            format!("domain: d\ndescriptors: [{{{before}key: k, metadata: {{x: 1}}, Ж: 1}}]\n");
        let report = rejected(&text);
        let found = report
            .errors
            .iter()
            .find(|error| error.message.contains('Ж'));
        let shown = found.unwrap_or_else(|| panic!("{report}")).render(false);
        // A tab is shown as four spaces.
        let (caret, sought) = columns(&shown, 'Ж');
        assert_eq!(caret, sought, "{before:?}:\n{shown}");
    }
}

#[test]
fn a_line_of_ten_megabytes_is_shown_in_part_and_its_column_is_right() {
    let long = "x: 1, ".repeat((1 << 20) / 6);
    let filler = "y".repeat(10 << 20);
    for text in [
        format!("domain: d\ndescriptors: [{{key: k, value: {filler}, ж: 1}}]\n"),
        format!(
            "domain: d\ndescriptors: [{{key: k, metadata: {{{long}}}, ж: 1, value: {filler}}}]\n"
        ),
    ] {
        let report = rejected(&text);
        let error = report
            .errors
            .iter()
            .find(|error| error.message.contains('ж'))
            .unwrap();
        let shown = error.render(false);
        assert!(shown.len() < 1_000, "{} bytes", shown.len());
        let column = text.lines().nth(1).unwrap().split('ж').next().unwrap();
        let column = column.chars().count() + 1;
        assert!(
            shown.contains(&format!("--> rules.yaml:2:{column}\n")),
            "{shown}"
        );
        let (caret, sought) = columns(&shown, 'ж');
        assert_eq!(caret, sought, "{shown}");
    }
}

#[test]
fn no_text_of_a_file_reaches_the_terminal_as_a_control_character() {
    let hostile: String = (0..0xa0_u8)
        .map(char::from)
        .filter(|c| c.is_control() && !matches!(c, '\n' | '\r'))
        .collect();
    let hostile = format!("{hostile}\u{202e}\u{2066}\u{200f}\u{2028}");
    let quoted =
        format!("domain: d\ndescriptors: [{{key: k, value: '{hostile}', '{hostile}': 1}}]\n");
    let plain = format!("domain: d\n{hostile}: 1\n");
    for text in [quoted, plain, "a\0b: 1\n".to_owned()] {
        let name = "rules\u{1b}[31m.yaml";
        let report = load(&[source(name, &text)], APART).unwrap_err();
        let shown = report.render(false);
        let wrong = shown.chars().find(|c| {
            c.is_control() && *c != '\n'
                || matches!(c, '\u{200f}' | '\u{2028}' | '\u{202e}' | '\u{2066}')
        });
        assert_eq!(wrong, None, "{shown:?}");
    }
}

#[test]
fn carriage_returns_and_a_byte_order_mark_do_not_move_a_place() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    wrong: 1\n";
    let place = |text: &str| {
        let report = rejected(text);
        let span = report.errors[0].span;
        (
            span.at.line,
            span.at.column,
            text[span.start..span.end].to_owned(),
        )
    };
    let expected = (4, 5, "wrong".to_owned());
    assert_eq!(place(text), expected);
    assert_eq!(place(&text.replace('\n', "\r\n")), expected);
    assert_eq!(place(&text.replace('\n', "\r")), expected);
    assert_eq!(place(&format!("\u{feff}{text}")), expected);
    let wide = text.replace("key: k", "key: 'é漢\u{301}'");
    assert_eq!(place(&wide), expected);
}

#[test]
fn ten_thousand_errors_are_counted_and_a_hundred_shown() {
    let text = format!("domain: d\n{}", "wrong: 1\n".repeat(10_000));
    let report = rejected(&text);
    assert_eq!(report.errors.len(), DIAGNOSTICS_MAX);
    assert_eq!(report.errors_omitted, 9_900);
    let shown = report.render(false);
    assert!(shown.ends_with("\n\nand 9900 more errors"), "{shown}");
    assert!(shown.len() < 100_000, "{}", shown.len());
    // A log line shows fewer.
    let logged = report.to_string();
    assert!(logged.ends_with("\n\nand 9980 more errors"), "{logged}");
    let text = format!("domain: d\ndescriptors:\n{}", "- key: k\n".repeat(50_000));
    let shown = rejected(&text).render(false);
    assert!(
        shown.contains("\n\nand at least 19"),
        "{}",
        shown.lines().last().unwrap()
    );
}
