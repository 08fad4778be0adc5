//! The table of differences in the migration guide, which is made of [`DIFFERENCES`]. `make readme`
//! writes it.

use crate::oracle::differences::DIFFERENCES;

const PAGE: &str = "docs/guides/from-envoy-ratelimit.md";
const START: &str = "<!-- differences: make readme -->\n";
const END: &str = "<!-- /differences -->";

fn table() -> String {
    let head = "| what | the reference | tollgate | why |\n| --- | --- | --- | --- |\n";
    let row = |one: &crate::oracle::differences::Difference| {
        format!(
            "| {} | {} | {} | {} |\n",
            one.what, one.there, one.here, one.reason
        )
    };
    DIFFERENCES
        .iter()
        .map(row)
        .fold(head.to_owned(), |text, row| text + row.as_str())
}

#[test]
fn the_guide_lists_every_known_difference() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let meant = table();
    if std::env::var_os("WRITE_README").is_some() {
        let page = format!("{before}{START}{meant}{END}{after}");
        return std::fs::write(path, page).unwrap();
    }
    assert_eq!(shown, meant, "run `make readme`");
}

#[test]
fn every_difference_has_a_unique_id_and_a_full_description() {
    for (place, one) in DIFFERENCES.iter().enumerate() {
        let before = &DIFFERENCES[..place];
        assert!(before.iter().all(|other| other.id != one.id), "{}", one.id);
        for text in [one.what, one.there, one.here, one.reason] {
            assert!(!text.is_empty() && !text.contains(" | "), "{}", one.id);
        }
    }
}
