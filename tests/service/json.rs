//! Random bodies on `/json`: status and body agree, and the service keeps running.
//!
//! The corpus of the fuzz target `json` is mutated by a generator with a fixed seed and sent body
//! after body on one connection.
//!
//! What it deliberately does not do: check decisions (`http`).

use tollgate_test_support::corpus;
use tollgate_test_support::in_process::Service;

use crate::service::api::Connection;

const MUTATIONS: usize = 4_000;

const RULES: &str = "
domain: d
descriptors:
  - key: one
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: two
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 0 }
";

/// Tokens of JSON and of protobuf's JSON mapping.
const PIECES: &str = concat!(
    r#"{ } [ ] , : " \ \u0000 \ud800 null true -1 1e400 0.5 NaN "1" 18446744073709551616 "#,
    r#""domain":"d" "descriptors":[] "entries":[{}] "key":"two" /**/ "hitsAddend": "#,
    r#"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[ {"a":{"a":{"a":{"a": "@type":"x" "#,
    r#""isNegativeHits":true "limit":{"unit":"SECOND"}"#,
    " \u{0} \u{feff}",
);

/// Marsaglia's xorshift: the same numbers on every machine.
struct Random(u64);

// === impl Random ===

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }
}

fn bodies() -> Vec<Vec<u8>> {
    let files = corpus::files("json").into_iter();
    files.map(|(_, body)| body).collect()
}

fn mutated(files: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut body = files[random.below(files.len())].clone();
    for _ in 0..random.below(3) {
        let at = random.below(body.len() + 1);
        match random.below(5) {
            0 if at < body.len() => body[at] ^= 1 << random.below(8),
            1 => body.truncate(at),
            2 => drop(body.drain(at..(at + random.below(9)).min(body.len()))),
            3 => {
                let other = &files[random.below(files.len())];
                let from = random.below(other.len() + 1);
                body.splice(at..at, other[from..].iter().copied());
            }
            _ => {
                let pieces: Vec<_> = PIECES.split(' ').collect();
                let piece = pieces[random.below(pieces.len())];
                body.splice(at..at, piece.bytes());
            }
        }
    }
    body
}

/// Whether it is a `google.rpc.Status` of an invalid request, with a message.
fn is_status(body: &str) -> bool {
    let status: Option<serde_json::Value> = serde_json::from_str(body).ok();
    status.is_some_and(|status| {
        let message = status["message"].as_str();
        status["code"] == 3 && message.is_some_and(|message| !message.is_empty())
    })
}

/// The fault of an answer, if it has one.
fn misfit(status: u16, body: &str) -> Option<&'static str> {
    let code = serde_json::from_str::<serde_json::Value>(body)
        .ok()
        .and_then(|answer| Some(answer.get("overallCode")?.as_str()?.to_owned()));
    match (status, code.as_deref()) {
        (200, Some("OK")) | (429, Some("OVER_LIMIT")) => None,
        (400, None) if is_status(body) => None,
        (200 | 429 | 400, _) => Some("status and body do not fit"),
        _ => Some("a status that no body deserves"),
    }
}

#[tokio::test]
async fn random_bodies_are_answered_and_so_is_the_next_request() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    let asking = tokio::task::spawn_blocking(move || {
        let (files, mut random) = (bodies(), Random(0x7011_6a7e_0003));
        let (mut asking, mut seen) = (Connection::open(address), [0_usize; 3]);
        for _ in 0..MUTATIONS {
            let body = mutated(&files, &mut random);
            let (status, answer) = asking.send("/json", &body);
            let misfit = misfit(status, &answer);
            let asked = String::from_utf8_lossy(&body);
            assert_eq!(misfit, None, "{asked}: {status} {answer}");
            seen[[200, 429, 400]
                .iter()
                .position(|known| *known == status)
                .unwrap()] += 1;
        }
        seen
    });
    let seen = asking.await.unwrap();
    // Otherwise no request would have been decided.
    assert!(seen.iter().all(|seen| *seen > MUTATIONS / 50), "{seen:?}");
}
