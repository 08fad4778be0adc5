//! What the page shows of a candidate.

use tollgate_test_support::tollgate_process::Tollgate;

use crate::browser::chromium::Browser;
use crate::browser::traffic::{RULES, exceed, page, service};

#[test]
fn a_candidate_s_percentages_and_its_decisions_are_shown() {
    let tried = RULES.replace(
        "unit: year, requests_per_unit: 2 }",
        "unit: year, requests_per_unit: 2, candidate: { unit: year, requests_per_unit: 1 } }",
    );
    assert_ne!(tried, RULES);
    let service = Tollgate::start(&tried, &["--top-keys", "plain"]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    browser.wait_for_text("#connection", "Live");
    exceed(&service, "someone");
    let words = "would refuse 66.7 % instead of 33.3 %";
    let note = browser.wait_for_text("#candidate-note", words);
    assert!(
        note.contains("of 3 requests, 1 newly refused and 0 newly admitted"),
        "{note}"
    );
    let rule = format!("candidate 1 per year: {words}");
    browser.wait_for_text("#rules tbody", &rule);
    browser.wait_for_text("#decisions tbody", "candidate (the answer was OK)");
    assert_eq!(browser.messages(), Vec::<String>::new());
}

#[test]
fn without_a_candidate_the_page_has_no_section_for_it() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    exceed(&service, "someone");
    browser.wait_for_text("#rules tbody", "user");
    let hidden = "return document.querySelector('#candidate-section').hidden";
    assert_eq!(browser.run(hidden), true);
}
