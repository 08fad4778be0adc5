//! `limit.fromMetadata`: limits that come with requests, and what an overlay makes of them.
//!
//! Envoy AI Gateway itself does not run. Its guide for limits of tenants is a policy of Envoy
//! Gateway, with tokens that are charged when an answer is done. The policy here has that shape,
//! and the numbers are those of its own end-to-end test.

use std::fs;

use crate::gateway_control_plane::Stack;
use crate::gateway_control_plane::control_plane::wait_long;

const POLICY: &str = include_str!("tenants.yaml");

/// An entry for a rule of the policy.
fn entry(rule: usize, fields: &str) -> String {
    format!(
        "- domain: default/eg/http
  path: [{{ key: httproute/default/app/* }}, {{ key: rule-{rule}-match-0 }}]
  {fields}
"
    )
}

/// Sends requests, and counts the decisions that they make.
struct Caller {
    stack: Stack,
    decisions: u64,
}

impl Caller {
    /// Sends requests with this header, and with a limit if there is one.
    fn statuses<const N: usize>(
        &mut self,
        header: (&str, &str),
        limit: Option<&str>,
        expected: [u16; N],
    ) {
        let mut headers = vec![header];
        headers.extend(limit.map(|limit| ("x-limit", limit)));
        let statuses = expected.map(|_| self.stack.control_plane.get("/", &headers).status);
        let said = self.stack.tollgate.said();
        assert_eq!(statuses, expected, "{headers:?}: {said}");
        self.decisions += N as u64;
    }

    /// Sends requests with a budget of tokens. Each waits until the one before is charged.
    fn calls<const N: usize>(&mut self, tenant: &str, limit: Option<&str>, expected: [u16; N]) {
        for status in expected {
            self.statuses(("x-tokens-of", tenant), limit, [status]);
            // A refused request has no tokens.
            self.decisions += u64::from(status == 200);
            let decided = ["ok", "over_limit"].map(|code| {
                let series = format!("tollgate_decisions_total{{code=\"{code}\"}}");
                move |stack: &Stack| stack.tollgate.metric(&series)
            });
            let count = || decided.iter().map(|of| of(&self.stack)).sum::<u64>();
            let all = wait_long(|| (count() == self.decisions).then_some(()));
            assert!(all.is_some(), "{} and {}", self.decisions, count());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_metadata_replaces_the_rule_unless_an_overlay_adjusts_it() {
    let directory = tempfile::tempdir().unwrap();
    let overlay = directory.path().join("overlay.yaml");
    fs::write(&overlay, "overlay: []\n").unwrap();
    let stack = Stack::start(&[("TOLLGATE_OVERLAY", overlay.to_str().unwrap())]).await;
    let set_overlay = |stack: &Stack, entries: &[String], words: &str| {
        fs::write(&overlay, format!("overlay:\n{}", entries.concat())).unwrap();
        stack.wait_for_rules(words, |rules| rules.contains(words));
    };
    stack.control_plane.set_policy(POLICY);
    stack.control_plane.start();
    stack.wait_for_rules("the policy", |rules| rules.lines().count() == 3);
    let mut caller = Caller {
        stack,
        decisions: 0,
    };

    // As with the reference: shadow mode does not apply, either.
    caller.statuses(("x-tenant", "a"), Some("3"), [200, 200, 200, 429]);
    caller.statuses(("x-tenant", "b"), None, [200, 429]);
    caller.statuses(("x-watched", "a"), Some("1"), [200, 429]);
    caller.statuses(("x-watched", "b"), None, [200, 200]);
    caller.calls("premium", Some("6"), [200, 200, 200, 200, 429]);
    caller.calls("basic", Some("2"), [200, 200, 429]);
    caller.calls("unknown", None, [200, 200, 200, 429]);
    caller.calls("suspended", Some("0"), [200, 429]);

    // Only the number is the request's: the burst of two and the shadow mode are the rules'.
    let bucket = "algorithm: token_bucket\n  may_raise: true\n  burst:";
    let adjusting = [
        entry(0, &format!("{bucket} 2")),
        entry(1, "limit_from_request: adjust"),
        entry(2, "algorithm: token_bucket\n  charged: afterwards"),
    ];
    set_overlay(&caller.stack, &adjusting, "token_bucket, burst: 2");
    caller.statuses(("x-tenant", "c"), Some("3"), [200, 200, 429]);
    caller.statuses(("x-watched", "c"), Some("1"), [200, 200]);
    caller.calls("premium again", Some("6"), [200, 200, 200, 200, 429]);
    caller.calls("basic again", Some("2"), [200, 200, 429]);
    caller.calls("unknown again", None, [200, 200, 200, 429]);

    // Nothing is the rule's, even though the overlay changes it.
    let replacing = entry(0, &format!("{bucket} 4\n  limit_from_request: replace"));
    set_overlay(&caller.stack, &[replacing], "token_bucket, burst: 4");
    caller.statuses(("x-tenant", "d"), Some("3"), [200, 200, 200, 429]);
    caller.statuses(("x-tenant", "e"), None, [200, 200, 200, 200, 429]);
}
