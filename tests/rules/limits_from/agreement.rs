//! A line means what the same fields mean in `rate_limit`, whichever way it is read, and a table
//! takes at most 64 bytes a line besides its text.

use std::fmt::Write as _;

use tollgate::rules::file::read_table;
use tollgate_limiter::{ALGORITHMS, AlgorithmOption, Allowance};

use crate::rules::reading::read;

/// What a line of a table may take besides the text of its value, in bytes.
const LINE_BYTES_MAX: usize = 64;

/// The fields of each algorithm besides its numbers, and whether a burst is allowed.
fn forms() -> Vec<(String, bool)> {
    let mut forms = Vec::new();
    for algorithm in ALGORITHMS {
        let has = |choice| algorithm.facts().options.contains(&choice);
        let mut fields = format!("algorithm: {}", algorithm.name());
        if has(AlgorithmOption::Slots) {
            fields.push_str(", slot_seconds: 7");
        } else {
            fields.push_str(", unit: minute, unit_multiplier: 7");
        }
        if has(AlgorithmOption::Segments)
            && algorithm
                .facts()
                .variant_for(AlgorithmOption::Segments)
                .is_none()
        {
            fields.push_str(", segments: 6");
        }
        forms.push((fields.clone(), has(AlgorithmOption::Burst)));
        if has(AlgorithmOption::CountRefused) {
            forms.push((
                format!("{fields}, count_refused: all"),
                has(AlgorithmOption::Burst),
            ));
        }
    }
    forms.push((
        "unit: month, calendar: true, time_zone: Europe/Paris".to_owned(),
        false,
    ));
    forms.push(("unlimited: true".to_owned(), false));
    forms
}

/// The allowance of these fields in a rules file; none if they are an error.
fn written(fields: &str) -> Option<Allowance> {
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{fields}}}}}]\n");
    Some(read(&text).ok()?.rules.rules()[0].allowance)
}

/// The fields as a line of JSON.
fn json(value: &str, fields: &str) -> String {
    let fields = fields.split(", ").map(|field| {
        let (name, value) = field.split_once(": ").unwrap();
        let is_bare = value.parse::<u32>().is_ok() || value == "true";
        let quote = if is_bare { "" } else { "\"" };
        format!(", \"{name}\": {quote}{value}{quote}")
    });
    format!("{{\"value\": \"{value}\"{}}}\n", fields.collect::<String>())
}

#[test]
fn a_line_means_what_rate_limit_means() {
    const NUMBERS: [u32; 9] = [1, 2, 7, 10, 60, 1_000, 65_536, 1_000_003, u32::MAX];
    let mut compared = 0;
    for (form, has_burst) in forms() {
        let mut lines = Vec::new();
        for requests in NUMBERS.iter().chain(&[0]) {
            let mut add = |more: &str| {
                let fields = format!("{form}, requests_per_unit: {requests}{more}");
                lines.push(fields);
            };
            if form.starts_with("unlimited") {
                lines.push(form.clone());
                continue;
            }
            add("");
            if has_burst {
                for burst in [0, 1, 40, u32::MAX] {
                    add(&format!(", burst: {burst}"));
                }
            }
        }
        let good: Vec<_> = lines
            .iter()
            .filter(|line| written(line).is_some())
            .collect();
        // Twice: the first line of a form is read by the grammar, later ones by their numbers.
        let text: String = good
            .iter()
            .chain(&good)
            .enumerate()
            .map(|(index, line)| json(&format!("v{index}"), line))
            .collect();
        let table = read_table("t.jsonl", text.as_bytes())
            .unwrap_or_else(|errors| panic!("{form}: {errors:?}\n{text}"));
        for (index, line) in good.iter().chain(&good).enumerate() {
            let found = table.find(format!("v{index}").as_bytes()).unwrap();
            let found = table.form(found).unwrap().allowance;
            assert_eq!(Some(found), written(line), "{line}");
            compared += 1;
        }
        for line in lines.iter().filter(|line| written(line).is_none()) {
            let form_first = good
                .first()
                .map_or(String::new(), |good| json("first", good));
            let text = form_first + json("bad", line).as_str();
            assert!(read_table("t.jsonl", text.as_bytes()).is_err(), "{line}");
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn a_line_takes_at_most_64_bytes_besides_its_text() {
    const LINES: usize = 100_000;
    // Every limit is another one, so that nothing is shared.
    let mut text = "value,unit,requests_per_unit,algorithm,burst\n".to_owned();
    for index in 0..LINES {
        let (requests, burst) = (index + 1, index + 2);
        writeln!(
            text,
            "tenant-{index:07},minute,{requests},token_bucket,{burst}"
        )
        .unwrap();
    }
    let mut table = None;
    let allocated = allocation_counter::measure(|| {
        table = Some(read_table("t.csv", text.as_bytes()).unwrap());
    });
    let table = table.unwrap();
    assert_eq!(table.len(), LINES);
    assert_eq!(table.text_bytes(), LINES * "tenant-0000000".len());
    let kept = usize::try_from(allocated.bytes_current).unwrap();
    let besides = kept - table.text_bytes();
    assert!(besides <= LINES * LINE_BYTES_MAX, "{besides}");
    // No allocation for each line, neither kept nor transient.
    assert!(allocated.count_total < 1_000, "{}", allocated.count_total);
}
