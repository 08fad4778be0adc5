//! What the page shows of quotas.

use tokio::runtime::Runtime;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::quota_client::{Id, QuotaStream};

use crate::browser::accessibility::{violations, write_picture};
use crate::browser::chromium::Browser;
use crate::browser::traffic::{RULES, page, service};

// window: the clock is the test's.
const QUOTAS: &str = "
domain: edge
descriptors:
- key: name
  value: api
  rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
- key: name
  value: search
  rate_limit: {unit: second, requests_per_unit: 100, algorithm: token_bucket, rlqs: true}
- { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
";

const API: Id<'static> = &[("name", "api")];
const SEARCH: Id<'static> = &[("name", "search")];

/// The time to live and the delivery, after which a new process assigns.
const LEARNING_US: u64 = 23_000_000;

#[test]
fn quotas_have_a_table_with_bars() {
    let runtime = Runtime::new().unwrap();
    let service = runtime.block_on(Service::start(QUOTAS, &["--top-keys", "plain"]));
    let browser = Browser::start(&[]);
    browser.open(&format!("http://{}/live", service.admin));
    let note = browser.wait_for_text("#quotas-note", "nothing is assigned");
    assert!(note.contains("0 buckets"), "{note}");
    service.clock.advance_us(LEARNING_US);
    let proxies = runtime.block_on(async {
        let mut proxies = Vec::new();
        for _ in 0..2 {
            let mut proxy = QuotaStream::open(service.grpc).await;
            proxy.report("edge", &[(API, 1, 0), (SEARCH, 1, 0)]).await;
            proxy.next().await;
            proxies.push(proxy);
        }
        // Less than the two seconds that a message may wait: a plan may just have sent one.
        service.clock.advance_us(1_000_000);
        for (proxy, [api, search]) in proxies.iter().zip([[400, 10], [60, 30]]) {
            let usages = [(API, api * 3 / 5, api * 2 / 5), (SEARCH, search, 0)];
            proxy.report("edge", &usages).await;
        }
        proxies
    });
    // 460 demanded of 300, 40 of 100, and a tenth more assigned. Both differ from the first shares
    // by more than a twentieth, whichever plans were made before.
    browser.wait_for_text("#quotas tbody tr:first-child", "460");
    let row = browser.wait_for_text("#quotas tbody tr:nth-child(2)", "44");
    for part in ["name=search", "edge.name_search", "100", "fair"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let widths = browser.run(
        "return ['limit', 'assigned', 'demand over'].map((name) =>
            document.querySelectorAll(`#quotas tbody tr:first-child .${name.replace(' ', '.')}`).length)",
    );
    assert_eq!(widths.to_string(), "[1,1,1]");
    // The limit of 300 on the scale of the demand of 460.
    let limit = "return Number(document.querySelector('#quotas .limit').getAttribute('width'))";
    let width = browser.run(limit).as_f64().unwrap();
    assert!((width - 99.0 * 300.0 / 460.0).abs() < 0.1, "{width}");
    // The minute has what proxies report.
    let drawn = "return document.querySelector('#minute .refused').points.numberOfItems > 0";
    until("the minute has refused hits", || {
        // Two readings at one time are one. A little at a time: assignments expire.
        service.clock.advance_us(20_000);
        browser.run(drawn) == true
    });
    // The rule is no dead limit.
    let rules = browser.wait_for_text("#rules tbody", "rlqs");
    assert!(rules.contains("edge.name_api"), "{rules}");
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.emulate(width, 1200, scheme);
        assert_eq!(violations(&browser), "[]", "{width} {scheme}");
        let overflow = browser.run("return document.documentElement.scrollWidth - innerWidth");
        assert!(overflow.as_i64().unwrap() <= 0, "{width}: {overflow}");
        if std::env::var_os("WRITE_SCREENSHOTS").is_some() && width == 1280 {
            write_picture(&browser, "live-quotas.png", width, 960);
        }
    }
    assert_eq!(browser.messages(), Vec::<String>::new());
    drop(proxies);
}

#[test]
fn without_a_quota_the_page_has_no_section_for_it() {
    assert!(!RULES.contains("rlqs"));
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    browser.wait_for_text("#rules tbody", "user");
    let hidden = "return document.querySelector('#quotas-section').hidden";
    assert_eq!(browser.run(hidden), true);
}
