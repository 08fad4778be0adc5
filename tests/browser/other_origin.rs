//! Pages of other origins in a browser of the same machine: they cannot reset, read or stream.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::browser::chromium::Browser;
use crate::browser::traffic::{exceed, hit, service};

/// Serves an empty page, of an origin of its own. Ends with the test's process.
fn foreign_page() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\nconnection: close\r\n\r\n<p>hi</p>";
            let _ = stream.write_all(page.as_bytes());
        }
    });
    address
}

/// What a page gets when it reads, streams and resets by every means that a page has.
const ATTACK: &str = "
const [base] = [BASE];
const read = [];
const reset = JSON.stringify({ domain: 'edge', descriptor: [{ key: 'user', value: 'victim' }] });
const ask = async (path, options) => {
  try {
    const response = await fetch(base + path, { ...options, signal: AbortSignal.timeout(30000) });
    const reader = response.body?.getReader();
    const first = reader && await reader.read();
    const text = first?.value ? new TextDecoder().decode(first.value) : '';
    if (response.ok || text.includes('victim')) read.push([path, options, response.status, text]);
  } catch {}
};
for (const path of ['/', '/limits', '/top', '/partitions', '/decisions', '/events', '/rlconfig', '/metrics', '/live']) {
  for (const mode of ['cors', 'no-cors', 'same-origin']) await ask(path, { mode });
}
for (const type of ['application/json', 'text/plain', 'application/x-www-form-urlencoded']) {
  for (const mode of ['cors', 'no-cors']) {
    await ask('/reset', { method: 'POST', mode, body: reset, headers: { 'content-type': type } });
    await ask('/shadow', { method: 'POST', mode, body: '{\"domain\":\"edge\",\"rule\":\"edge.user\",\"for_seconds\":60}', headers: { 'content-type': type } });
  }
}
navigator.sendBeacon(base + '/reset', new Blob([reset], { type: 'text/plain' }));
await new Promise((done) => {
  const events = new EventSource(base + '/events');
  events.onmessage = events.onopen = (event) => { read.push(['EventSource', event.type]); done(); };
  events.addEventListener('state', () => { read.push(['EventSource', 'state']); done(); });
  events.onerror = () => { events.close(); done(); };
});
for (const [name, attribute, path] of [['script', 'src', '/live/page.js'], ['script', 'src', '/decisions'], ['img', 'src', '/live/icon.svg']]) {
  await new Promise((done) => {
    const made = document.createElement(name);
    made.onload = () => { read.push([name, path]); done(); };
    made.onerror = done;
    made[attribute] = base + path;
    document.body.append(made);
  });
}
const frame = document.createElement('iframe');
await new Promise((done) => { frame.onload = done; frame.src = base + '/live'; document.body.append(frame); });
try { if (frame.contentDocument?.querySelector('#live')) read.push(['iframe', base]); } catch {}
const form = document.createElement('form');
Object.assign(form, { method: 'POST', action: base + '/reset', enctype: 'text/plain', target: 'sink' });
const field = document.createElement('input');
Object.assign(field, { name: reset.slice(0, -1) + ',\"x', value: '\":1}' });
form.append(field);
const sink = Object.assign(document.createElement('iframe'), { name: 'sink' });
document.body.append(sink, form);
await new Promise((done) => { sink.onload = done; form.submit(); setTimeout(done, 30000); });
return JSON.stringify(read);
";

fn attack(browser: &Browser, base: &str) -> Value {
    let script = ATTACK.replace("BASE", &json!(base).to_string());
    let read = browser.run(&script);
    serde_json::from_str(read.as_str().unwrap()).unwrap()
}

#[test]
fn a_page_of_another_origin_cannot_reset_read_or_stream() {
    let service = service(&[]);
    exceed(&service, "victim");
    let browser = Browser::start(&[]);
    browser.open(&format!("http://{}/", foreign_page()));
    assert_eq!(
        attack(&browser, &format!("http://{}", service.admin)),
        json!([])
    );
    assert!(!hit(&service, &[("user", "victim")]), "the key was reset");
    // The same script on the service's own page reads, streams and resets: so it can find success.
    browser.open(&format!("http://{}/rlconfig", service.admin));
    let own = attack(&browser, "").to_string();
    for part in [
        "/decisions",
        "/events",
        "EventSource",
        "victim",
        "\"/reset\"",
    ] {
        assert!(own.contains(part), "{part}: {own}");
    }
    assert!(
        hit(&service, &[("user", "victim")]),
        "the key was not reset"
    );
}

#[test]
fn a_name_that_resolves_to_loopback_cannot_reset_read_or_stream() {
    let service = service(&[]);
    exceed(&service, "victim");
    let browser = Browser::start(&["--host-resolver-rules=MAP rebound.example 127.0.0.1"]);
    let base = format!("http://rebound.example:{}", service.admin.port());
    // The page that the name had before it resolved to loopback: its origin is that of the target.
    browser.open(&format!("{base}/live"));
    assert!(
        browser
            .text("body")
            .contains("is not a name of this listener")
    );
    assert_eq!(attack(&browser, &base), json!([]));
    assert!(!hit(&service, &[("user", "victim")]), "the key was reset");
}
