//! What the page shows, and what it loads.

use std::net::TcpListener;

use serde_json::json;

use tollgate_test_support::polling::until;

use crate::browser::chromium::Browser;
use crate::browser::traffic::{exceed, page, service};

#[test]
fn a_refused_key_its_rule_and_its_decision_are_shown() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    browser.wait_for_text("#connection", "Live");
    browser.wait_for_text("#health", "ready");
    exceed(&service, "someone");
    // Times are in UTC, as in the commands, and say so.
    for (table, part) in [("#keys", "user=someone"), ("#decisions", "over the limit")] {
        let rows = browser.wait_for_text(&format!("{table} tbody"), part);
        assert!(rows.contains(" UTC"), "{rows}");
    }
    browser.wait_for_text("#rules tbody", "user");
    browser.wait_for_text("#partitions", "Partition 0");
}

#[test]
fn the_page_begins_with_the_last_minute_and_a_legend() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    exceed(&service, "someone");
    // Of its own, a page has one sample a second.
    let drawn = "return document.querySelector('#minute .refused')?.points.numberOfItems ?? 0";
    until("a page begins with five samples", || {
        browser.open(&page(&service));
        browser.wait_for_text("#connection", "Live");
        browser.wait_for_text("#minute-note", "asked");
        let samples = browser.run(drawn).as_u64().unwrap();
        if samples >= 5 { Ok(()) } else { Err(samples) }
    });
    let rule = "return document.querySelector('#rules .spark .refused').points.numberOfItems";
    assert!(browser.run(rule).as_u64().unwrap() >= 5);
    let legend = browser.text("#legend");
    for word in ["asked", "refused", "would be refused"] {
        assert!(legend.contains(word), "{legend}");
    }
    let partition = browser.text("#partitions");
    assert!(
        partition.contains("freed") && partition.contains("forgotten"),
        "{partition}"
    );
    // A store does not know which limits refuse.
    assert!(!partition.contains("refused"), "{partition}");
    assert!(partition.contains("over"), "{partition}");
    assert_eq!(browser.messages(), Vec::<String>::new());
}

#[test]
fn the_page_loads_nothing_of_another_host_and_its_policy_stops_what_would() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    exceed(&service, "someone");
    browser.wait_for_text("#keys tbody", "user=someone");
    browser.run(
        "document.querySelector('#keys-window').value = '1h'; \
                 document.querySelector('#keys-window').dispatchEvent(new Event('change'))",
    );
    let requested = browser.requests();
    let own = format!("http://{}/", service.admin);
    assert!(requested.len() >= 8, "{requested:?}");
    for url in &requested {
        assert!(url.starts_with(&own), "{url}");
    }
    assert_eq!(browser.messages(), Vec::<String>::new());
    let policy =
        "const page = await fetch('live'); return page.headers.get('content-security-policy')";
    let policy = browser.run(policy);
    let policy = policy.as_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    // A planted script and a planted request are stopped, and reported: so the log above is empty
    // because nothing was stopped.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let url = json!(format!("http://{}/", elsewhere.local_addr().unwrap()));
    browser.run(&format!(
        "const planted = document.createElement('script'); planted.textContent = 'window.planted = 1'; \
         document.body.append(planted); await fetch({url}, {{ mode: 'no-cors' }}).catch(() => {{}})"
    ));
    let messages = browser.messages().join("\n");
    for stopped in [
        "Executing inline script violates",
        "Connecting to 'http://127.0.0.1:",
    ] {
        assert!(messages.contains(stopped), "{messages}");
    }
    assert!(browser.run("return window.planted ?? null").is_null());
    assert!(elsewhere.accept().is_err(), "the request was sent");
}

#[test]
fn hostile_values_are_text() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    let hostile =
        "<img src=x onerror=\"window.planted=1\"><script>window.planted=1</script>\u{202e}";
    exceed(&service, hostile);
    browser.wait_for_text("#keys tbody", hostile);
    browser.wait_for_text("#decisions tbody", hostile);
    let elements = "return document.querySelectorAll('main img, main script').length";
    assert_eq!(browser.run(elements), 0);
    assert!(browser.run("return window.planted ?? null").is_null());
    assert_eq!(browser.messages(), Vec::<String>::new());
}

#[test]
fn a_hashed_page_answers_is_it_this_one() {
    let service = tollgate_test_support::tollgate_process::Tollgate::start(
        crate::browser::traffic::RULES,
        &[],
    );
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    exceed(&service, "someone");
    let shown = browser.wait_for_text("#keys tbody", "user=#");
    assert!(!shown.contains("someone"), "{shown}");
    browser.wait_for_text("#keys-note", "--top-keys plain shows the text");
    let find = |key: &str| {
        let key = json!(key);
        browser.run(&format!(
            "document.querySelector('#find-key').value = {key}; document.querySelector('#find').requestSubmit()"
        ));
    };
    find("user=someone");
    browser.wait_for_text("#find-answer", "Found 1");
    find("user=nobody");
    browser.wait_for_text("#find-answer", "Not among the heaviest keys");
    find("user");
    browser.wait_for_text("#find-answer", "write KEY=VALUE");
}

#[test]
fn decisions_can_be_paused_and_tables_sorted_by_keyboard() {
    let service = service(&[]);
    let browser = Browser::start(&[]);
    browser.open(&page(&service));
    exceed(&service, "before");
    browser.wait_for_text("#decisions tbody", "user=before");
    let press = |selector: &str| {
        browser.run(&format!("document.querySelector('{selector}').focus()"));
        for kind in ["rawKeyDown", "char", "keyUp"] {
            let key = json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
            browser.command("Input.dispatchKeyEvent", key);
        }
    };
    press("#pause");
    browser.wait_for_text("#decisions-note", "Paused");
    exceed(&service, "after");
    browser.wait_for_text("#keys tbody", "user=after");
    assert!(!browser.text("#decisions tbody").contains("user=after"));
    press("#pause");
    browser.wait_for_text("#decisions tbody", "user=after");
    press("#keys thead button");
    let order = "return document.querySelector('#keys th').ariaSort + ':' + \
                 [...document.querySelectorAll('#keys tbody th')].map((cell) => cell.textContent)";
    // The browser handles a key after it has answered the command.
    browser.wait_for_value(order, "ascending:user=after,user=before");
    press("#keys thead button");
    browser.wait_for_value(order, "descending:user=before,user=after");
}
