//! The token, and a service that ends and starts again.

use std::io::Write as _;

use serde_json::json;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::browser::chromium::Browser;
use crate::browser::traffic::{RULES, exceed, page, service};

const TOKEN: &str = "correct-horse-battery-staple";

#[test]
fn the_token_is_asked_for_and_kept_in_memory_only() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TOKEN.as_bytes()).unwrap();
    let service = service(&["--admin-token-file", file.path().to_str().unwrap()]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    let visible = |id: &str| {
        browser.run(&format!(
            "return document.getElementById('{id}').checkVisibility()"
        ))
    };
    let enter = |token: &str| {
        let token = json!(token);
        browser.run(&format!(
            "document.querySelector('#token').value = {token}; document.querySelector('#token-form').requestSubmit()"
        ));
    };
    browser.wait_for_text("#connection", "Waiting for the token");
    assert_eq!(
        (visible("token-section"), visible("live")),
        (json!(true), json!(false))
    );
    assert_eq!(browser.run("return document.activeElement.id"), "token");
    enter("a-wrong-token-of-some-length");
    browser.wait_for_text("#token-error", "The service refused this token.");
    enter(TOKEN);
    browser.wait_for_text("#connection", "Live");
    browser.wait_for_text("#health", "ready");
    assert_eq!(
        (visible("token-section"), visible("live")),
        (json!(false), json!(true))
    );
    exceed(&service, "someone");
    browser.wait_for_text("#keys tbody", "user=someone");
    let places = "return JSON.stringify([location.href, history.length, history.state, document.cookie, \
                  Object.entries(localStorage), Object.entries(sessionStorage), \
                  (await indexedDB.databases()).length, document.documentElement.outerHTML, \
                  document.querySelector('#token').value])";
    let places = browser.run(places);
    assert!(places.as_str().unwrap().contains("user=someone"));
    assert!(!places.as_str().unwrap().contains(TOKEN), "{places}");
    let requested = browser.requests();
    assert!(
        requested
            .iter()
            .all(|url| !url.contains(TOKEN) && !url.contains("token")),
        "{requested:?}"
    );
    // A reload has forgotten it.
    browser.open(&page(&service));
    browser.wait_for_text("#connection", "Waiting for the token");
}

#[test]
fn the_page_says_that_the_service_is_gone_and_recovers() {
    let mut service = Tollgate::start_restartable(RULES, &["--top-keys", "plain"]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    exceed(&service, "before");
    browser.wait_for_text("#keys tbody", "user=before");
    service.signal("KILL");
    let line = browser.wait_for_text("#connection", "Connection lost since ");
    assert!(line.ends_with(", retrying"), "{line}");
    service.wait();
    assert_eq!(
        browser.text("#connection"),
        line,
        "the time is that of the loss"
    );
    service.start_again();
    browser.wait_for_text("#connection", "Live");
    // The new process has not counted the old key.
    exceed(&service, "after");
    let keys = browser.wait_for_text("#keys tbody", "user=after");
    assert!(!keys.contains("user=before"), "{keys}");
}
