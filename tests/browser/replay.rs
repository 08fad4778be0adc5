//! The page of `tollgate replay`, opened from a file.
//!
//! `WRITE_SCREENSHOTS=1` also writes `docs/pictures/replay-*.png`.

use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;
use tollgate::replay::page::page;
use tollgate::replay::report::ReplayReport;
use tollgate_test_support::components::repository;

use crate::browser::accessibility::{violations, write_picture};
use crate::browser::chromium::Browser;
use crate::browser::replay_sample::{hostile, one_set, two_sets};

/// The page of a report in a file.
struct Page {
    _folder: TempDir,
    path: PathBuf,
}

impl Page {
    fn of(report: &ReplayReport) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        std::fs::write(&path, page(report)).unwrap();
        Self {
            _folder: folder,
            path,
        }
    }

    fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }
}

/// The texts of elements, in the order of the page.
fn texts(browser: &Browser, selector: &str) -> Vec<String> {
    let selector = json!(selector);
    let texts = browser.run(&format!(
        "return [...document.querySelectorAll({selector})].map((found) => found.textContent)"
    ));
    serde_json::from_value(texts).unwrap()
}

#[test]
fn the_answer_comes_first_then_charts_then_tables() {
    let browser = Browser::start(&[]);
    let report = Page::of(&two_sets());
    browser.open(&report.url());
    assert_eq!(
        texts(&browser, "h2"),
        [
            "Under B, 3.1\u{a0}% of requests would be refused instead of 0.5\u{a0}%; \
             42 keys are newly refused.",
            "Over time",
            "Keys newly refused",
            "Keys newly admitted",
            "By rule",
            "Peak use of each limit",
            "Worst minutes",
            "Compared with the recording",
            "What cannot be decided",
            "About this replay",
        ]
    );
    let charts = "figcaption strong";
    assert_eq!(
        texts(&browser, charts),
        [
            "Share of requests refused",
            "Requests under A",
            "Requests under B"
        ]
    );
    // A minute's figures are under the pointer, and in a table for readers without one.
    let columns = "return document.querySelector('.drawing').querySelectorAll('.column').length";
    assert_eq!(browser.run(columns), 180);
    let rows = "return document.querySelectorAll('#time-title ~ details tbody tr').length";
    assert_eq!(browser.run(rows), 180);
    let smallest =
        "Refuses nothing in this replay. 212 per hour is the smallest that refuses nothing.";
    browser.wait_for_text("[aria-labelledby=peaks-title]", smallest);
    // A drawing fills its place: a wrong path or a missing style would leave it empty.
    let height = "const box = document.querySelector('path.refused').getBBox(); \
                  return Math.min(box.width, box.height)";
    assert!(browser.run(height).as_f64().unwrap() > 50.0);

    let alone = Page::of(&one_set());
    browser.open(&alone.url());
    let headings = texts(&browser, "h2");
    assert!(
        headings[0].starts_with("These rules refuse 0.5\u{a0}% of requests"),
        "{headings:?}"
    );
    assert!(
        !headings.iter().any(|heading| heading.contains("newly")),
        "{headings:?}"
    );
    assert_eq!(
        texts(&browser, charts),
        ["Share of requests refused", "Requests"]
    );
}

/// Asserts that axe finds nothing at two widths in both schemes. Pictures are written under the
/// name, if there is one.
fn assert_accessible(browser: &Browser, report: &ReplayReport, picture: Option<&str>) {
    let report = Page::of(report);
    browser.open(&report.url());
    for (width, height) in [(1280, 1150), (390, 1400)] {
        let mut backgrounds = Vec::new();
        for scheme in ["light", "dark"] {
            browser.emulate(width, height, scheme);
            // Details are checked open; the pictures show them closed.
            let open = |open: bool| {
                browser.run(&format!(
                    "document.querySelectorAll('details').forEach((found) => found.open = {open})"
                ))
            };
            open(true);
            assert_eq!(violations(browser), "[]", "{width} {scheme}");
            let overflow = browser.run("return document.documentElement.scrollWidth - innerWidth");
            let overflow = overflow.as_i64().unwrap();
            assert!(overflow <= 0, "{width}: {overflow} px too wide");
            open(false);
            let background = "return getComputedStyle(document.body).backgroundColor";
            backgrounds.push(browser.run(background));
            if let Some(name) = picture {
                let name = format!("{name}-{width}-{scheme}.png");
                write_picture(browser, &name, width, height);
            }
        }
        assert_ne!(backgrounds[0], backgrounds[1]);
    }
}

#[test]
fn axe_finds_nothing_in_a_replay_at_any_width_in_any_scheme() {
    let browser = Browser::start(&[]);
    let picture = std::env::var_os("WRITE_SCREENSHOTS").map(|_| "replay");
    assert_accessible(&browser, &two_sets(), picture);
    // A planted fault is found.
    browser.run("document.documentElement.removeAttribute('lang')");
    assert!(violations(&browser).contains("html-has-lang"));
    for width in [1280, 390] {
        for scheme in ["light", "dark"] {
            let name = format!("docs/pictures/replay-{width}-{scheme}.png");
            assert!(
                repository().join(&name).is_file(),
                "{name}: run `make screenshots`"
            );
        }
    }
}

#[test]
fn axe_finds_nothing_in_a_replay_of_one_set_of_hostile_texts_or_of_nothing() {
    let browser = Browser::start(&[]);
    let hostile = hostile(&"شيء-long-value".repeat(20));
    for report in [one_set(), hostile, ReplayReport::default()] {
        assert_accessible(&browser, &report, None);
    }
}

#[test]
fn a_replay_requests_nothing_and_its_policy_stops_what_would() {
    let browser = Browser::start(&[]);
    let report = Page::of(&two_sets());
    browser.open(&report.url());
    assert_eq!(browser.requests(), [report.url()]);
    // The style applies: the hash in the policy is its own. The console would name the right one.
    assert_eq!(browser.messages(), Vec::<String>::new());
    // Planted elements are stopped, and reported: so the logs above are empty because the page
    // has none.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let url = json!(format!("http://{}/", elsewhere.local_addr().unwrap()));
    browser.run(&format!(
        "const plant = (name, properties) => \
           document.body.append(Object.assign(document.createElement(name), properties)); \
         plant('script', {{ textContent: 'window.planted = 1' }}); \
         plant('style', {{ textContent: 'body {{ display: none }}' }}); \
         plant('img', {{ src: {url} }}); \
         plant('script', {{ src: {url} }}); \
         await fetch({url}, {{ mode: 'no-cors' }}).catch(() => {{}})"
    ));
    let messages = browser.messages().join("\n");
    for stopped in [
        "Executing inline script violates",
        "Applying inline style violates",
        "Loading the image 'http://127.0.0.1:",
        "Loading the script 'http://127.0.0.1:",
        "Connecting to 'http://127.0.0.1:",
    ] {
        assert!(messages.contains(stopped), "{stopped}: {messages}");
    }
    assert!(browser.run("return window.planted ?? null").is_null());
    assert_eq!(
        browser.run("return getComputedStyle(document.body).display"),
        "block"
    );
    assert!(elsewhere.accept().is_err(), "a request was sent");
}

#[test]
fn hostile_values_in_a_replay_are_text() {
    let browser = Browser::start(&[]);
    let text = "</script></style></title><script>window.planted=1</script>\
                <img src=x onerror=\"window.planted=1\">'\"&lt;\u{202e}\\xff";
    let report = Page::of(&hostile(text));
    browser.open(&report.url());
    let elements = "return document.querySelectorAll('img, script, [onerror]').length";
    assert_eq!(browser.run(elements), 0);
    assert!(browser.run("return window.planted ?? null").is_null());
    assert_eq!(browser.messages(), Vec::<String>::new());
    assert_eq!(browser.requests(), [report.url()]);
    // The reader sees it, with the character that would reorder it escaped.
    let shown = text.replace('\u{202e}', "\\u{202e}");
    for section in [
        "refused-keys",
        "admitted-keys",
        "rules",
        "peaks",
        "recorded",
        "undecidable",
        "about",
    ] {
        let section = format!("[aria-labelledby={section}-title]");
        assert!(browser.text(&section).contains(&shown), "{section}");
    }
}

#[test]
fn a_replay_is_used_by_keyboard_and_printed_whole() {
    let browser = Browser::start(&[]);
    let report = Page::of(&two_sets());
    browser.open(&report.url());
    let press = |key: &str, code: u32, text: &str| {
        for kind in ["rawKeyDown", "char", "keyUp"] {
            if kind != "char" || !text.is_empty() {
                let key = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
                browser.command("Input.dispatchKeyEvent", key);
            }
        }
    };
    press("Tab", 9, "");
    // The browser handles a key, and lays the page out again, after it has answered the command.
    browser.wait_for_value("return document.activeElement.className", "skip");
    let opened = "return document.querySelector('#time-title ~ details').open";
    assert_eq!(browser.run(opened), false);
    browser.run("document.querySelector('#time-title ~ details summary').focus()");
    press("Enter", 13, "\r");
    browser.wait_for_value(opened, true);
    press("Enter", 13, "\r");
    browser.wait_for_value(opened, false);
    let visible = "return document.querySelector('#time-title ~ details td').checkVisibility({ contentVisibilityAuto: true })";
    browser.wait_for_value(visible, false);
    browser.command("Emulation.setEmulatedMedia", json!({"media": "print"}));
    browser.wait_for_value(visible, true);
}
