//! axe on the page, at two widths and in both colour schemes; and the screenshots of the docs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tollgate_test_support::components::{component, repository};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::browser::chromium::Browser;
use crate::browser::traffic::{hit, hit_each, page, service};

/// Largest screenshot, in bytes.
const PICTURE_BYTES_MAX: usize = 200_000;

/// Sends varied requests until `stop`.
fn send_traffic(service: &Tollgate, stop: &AtomicBool) {
    let mut round = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        for client in 1..=6 {
            let address = format!("192.0.2.{client}");
            for _ in 0..round % 7 * (7 - client) {
                hit(service, &[("remote_address", &address)]);
            }
            let key = format!("key-{}", round % client);
            hit(service, &[("api_key", &key)]);
            let tenant = format!("tenant-{client}");
            hit(service, &[("plan", "free"), ("tenant", &tenant)]);
        }
        hit(service, &[("user", &format!("user-{}", round % 9))]);
        hit(service, &[("export", "report")]);
        hit(service, &[("internal", "probe")]);
        hit(service, &[("unknown", "x")]);
        let crowd: Vec<_> = (0..40).map(|client| format!("{round}-{client}")).collect();
        hit_each(service, "api_key", &crowd);
        // sleep: the traffic has a rate.
        std::thread::sleep(std::time::Duration::from_millis(40));
    }
}

/// Violations that axe finds, with the elements.
pub(crate) fn violations(browser: &Browser) -> String {
    let axe =
        std::fs::read_to_string(component("browser/node_modules/axe-core/axe.min.js")).unwrap();
    // Its text ends with a semicolon. The page's policy does not apply to a driver's scripts.
    let run = "const found = await axe.run(); return JSON.stringify(found.violations.map((violation) => \
               [violation.id, violation.nodes.map((node) => node.html)]))";
    browser
        .run(&format!("{axe}\n{run}"))
        .as_str()
        .unwrap()
        .to_owned()
}

/// Writes a picture of the top of the page.
pub(crate) fn write_picture(browser: &Browser, name: &str, width: u32, height: u32) {
    let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
    let parameters = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
    let shot = browser.command("Page.captureScreenshot", parameters);
    let text = shot["data"].as_str().unwrap();
    let bytes = thirtyfour::support::base64_decode(text).unwrap();
    assert!(
        bytes.len() <= PICTURE_BYTES_MAX,
        "{name} has {} bytes",
        bytes.len()
    );
    std::fs::write(repository().join("docs/pictures").join(name), bytes).unwrap();
}

#[test]
fn axe_finds_nothing_at_any_width_in_any_scheme() {
    let write = std::env::var_os("WRITE_SCREENSHOTS").is_some();
    let service = service(&["--memory-max", "4MiB"]);
    let browser = Browser::start(&[]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send_traffic(&service, &stop));
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            browser.open(&page(&service));
            browser.wait_for_text("#keys tbody", "remote_address=192.0.2.1");
            browser.wait_for_text("#decisions tbody", "no rule matches");
            // A full minute of history is for the screenshots.
            for samples in (2..=if write { 58 } else { 2 }).step_by(8) {
                let drawn = format!(
                    "return document.querySelector('.spark polyline')?.points.numberOfItems >= {samples}"
                );
                browser.wait_for_value(&drawn, true);
            }
            for (width, height) in [(1280, 1000), (390, 1400)] {
                for scheme in ["light", "dark"] {
                    browser.emulate(width, height, scheme);
                    assert_eq!(violations(&browser), "[]", "{width} {scheme}");
                    let overflow =
                        browser.run("return document.documentElement.scrollWidth - innerWidth");
                    assert!(
                        overflow.as_i64().unwrap() <= 0,
                        "{width}: {overflow} px too wide"
                    );
                    if write {
                        write_picture(
                            &browser,
                            &format!("live-{width}-{scheme}.png"),
                            width,
                            height,
                        );
                    }
                }
            }
            // A planted fault is found.
            browser.run("document.querySelector('#rules-filter').parentElement.replaceWith(document.querySelector('#rules-filter'))");
            assert!(violations(&browser).contains("label"));
        }));
        stop.store(true, Ordering::Relaxed);
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    for width in [1280, 390] {
        for scheme in ["light", "dark"] {
            let name = format!("docs/pictures/live-{width}-{scheme}.png");
            let path = repository().join(Path::new(&name));
            assert!(path.is_file(), "{name} is missing; run `make screenshots`");
        }
    }
}
