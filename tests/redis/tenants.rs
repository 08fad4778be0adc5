//! Three thousand tenants on three plans, three replicas and one Redis: a plan is raised under
//! load, one tenant is overridden for a time, one is blocked and one penalised. Every decision is
//! that of a naive model.
//!
//! Windows and blocks of penalties are by the clock of Redis, overrides by that of the replicas,
//! which the test sets.
//!
//! What it deliberately does not do: measure (`benches/tenants`), or cover what one replica shows
//! alone (`tests/service/admin/overrides.rs`, `tests/service/penalties.rs`).

use std::fmt::Write as _;

use serde_json::json;
use tollgate_test_support::grpc_client::descriptor;
use tollgate_test_support::in_process::START;

use super::{Client, Code, RedisServer, Service, http, in_process, request, until_async};

const TENANTS: usize = 3_000;

/// How many of them one request asks for.
const AT_ONCE: usize = 250;

const SECOND: u64 = 1_000_000;

/// Refusals that begin a block, for tenants of the first plan.
const AFTER: u64 = 9;

/// Requests a year of the three plans, before and after the second one is raised.
const LIMITS: [u64; 3] = [2, 4, 6];
const RAISED: [u64; 3] = [2, 6, 6];

const OVERRIDDEN: usize = 1;
const BLOCKED: usize = 2;
const PENALISED: usize = 3;

fn rules([free, pro, max]: [u64; 3], tenants: &str) -> String {
    format!(
        "
domain: d
plans:
  free: {{ unit: year, requests_per_unit: {free}, penalty: {{ after: {AFTER}, within: 1d, block: 2d }} }}
  pro: {{ unit: year, requests_per_unit: {pro} }}
  max: {{ unit: year, requests_per_unit: {max} }}
descriptors:
- key: tenant
  plan: free
  limits_from: {tenants}
"
    )
}

/// What a tenant is to get.
#[derive(Clone, Debug, Default)]
struct Tenant {
    plan: usize,
    used: u64,
    refused: u64,
    /// A limit in place of that of the plan, until a time.
    overridden: Option<(u64, u64)>,
}

// === impl Tenant ===

impl Tenant {
    fn is_penalised(&self) -> bool {
        self.plan == 0 && self.refused >= AFTER
    }

    fn passes(&mut self, now: u64, limits: &[u64; 3]) -> bool {
        let overridden = self.overridden.filter(|(_, until)| now < *until);
        let limit = overridden.map_or(limits[self.plan], |(limit, _)| limit);
        let passes = self.used < limit && !self.is_penalised();
        self.used += u64::from(passes);
        self.refused += u64::from(!passes);
        passes
    }
}

/// Asks for these tenants once, the first of which has this number. Each answer is that of the
/// model with one of the limits. Gives how many pass.
async fn ask(
    mut client: Client,
    (first, tenants): (usize, &mut [Tenant]),
    now: u64,
    limits: &[[u64; 3]],
) -> usize {
    let mut passed = 0;
    for (part, tenants) in tenants.chunks_mut(AT_ONCE).enumerate() {
        let numbers = first + part * AT_ONCE..;
        let names = numbers.clone().take(tenants.len());
        let descriptors = names.map(|number| descriptor(&[("tenant", &format!("t{number}"))]));
        let asked = request("d", descriptors.collect());
        let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
        assert_eq!(answer.statuses.len(), tenants.len());
        for ((number, tenant), status) in numbers.zip(tenants).zip(answer.statuses) {
            let verdict = status.code() == Code::Ok;
            let mut known = limits.iter().map(|limits| {
                let mut next = tenant.clone();
                (next.passes(now, limits), next)
            });
            let found = known.find(|(passes, _)| *passes == verdict);
            let (_, next) =
                found.unwrap_or_else(|| panic!("t{number} at {now}: {status:?} {tenant:?}"));
            *tenant = next;
            passed += usize::from(verdict);
        }
    }
    passed
}

/// Asks for all tenants once, each third of them on another replica. Gives how many pass.
async fn round(
    clients: &[Client; 3],
    tenants: &mut [Tenant],
    shift: usize,
    now: u64,
    limits: &[[u64; 3]],
) -> usize {
    let third = TENANTS / 3;
    let (one, rest) = tenants.split_at_mut(third);
    let (two, three) = rest.split_at_mut(third);
    let client = |number: usize| clients[(number + shift) % 3].clone();
    let (one, two, three) = tokio::join!(
        ask(client(0), (0, one), now, limits),
        ask(client(1), (third, two), now, limits),
        ask(client(2), (2 * third, three), now, limits),
    );
    one + two + three
}

fn set(replicas: &[Service; 3], now: u64) {
    for replica in replicas {
        replica.clock.set(tollgate_limiter::Timestamp::from_us(now));
    }
}

async fn have_overrides(replicas: &[Service; 3], count: u64) {
    for replica in replicas {
        until_async("the overrides are in force", async || {
            let now = replica.metric("tollgate_overrides");
            (now == count).then_some(()).ok_or(now)
        })
        .await;
    }
}

fn put(replica: &Service, tenant: usize, what: &serde_json::Value, seconds: u64) {
    let mut body = json!({
        "domain": "d", "descriptor": [{"key": "tenant", "value": format!("t{tenant}")}],
        "for_seconds": seconds,
    });
    let (name, value) = what.as_object().unwrap().iter().next().unwrap();
    body[name] = value.clone();
    let (code, said) = http(replica.admin, "PUT", "/overrides", &body.to_string());
    assert_eq!(code, 200, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_of_three_replicas_get_what_their_plans_and_overrides_say() {
    let redis = RedisServer::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tenants.csv");
    let mut lines = "value,plan\n".to_owned();
    let mut tenants = vec![Tenant::default(); TENANTS];
    for (number, tenant) in tenants.iter_mut().enumerate() {
        tenant.plan = number % 3;
        let plan = ["free", "pro", "max"][tenant.plan];
        writeln!(lines, "t{number},{plan}").unwrap();
    }
    std::fs::write(&file, lines).unwrap();
    let file = file.display().to_string();
    let first = rules(LIMITS, &file);
    // The denial cache may repeat a refusal for a second of real time, whatever was raised.
    let more = ["--store-over-limit-cache-ms", "0"];
    let mut replicas = [
        in_process(&first, &redis, &more).await,
        in_process(&first, &redis, &more).await,
        in_process(&first, &redis, &more).await,
    ];
    let clients = [0, 1, 2].map(|number| replicas[number].client.clone());
    // Past the clocks of all.
    let mut now = START.as_us() + 60 * SECOND;
    let mut shift = 0;
    let mut next = |replicas: &[Service; 3], seconds: u64| {
        now += seconds * SECOND;
        shift += 1;
        set(replicas, now);
        (shift, now)
    };

    let mut passed = Vec::new();
    for _ in 0..5 {
        let (shift, now) = next(&replicas, 2);
        passed.push(round(&clients, &mut tenants, shift, now, &[LIMITS]).await);
    }
    assert_eq!(passed, [3_000, 3_000, 2_000, 2_000, 1_000]);

    // The penalised one comes again and again, to any replica.
    let (_, now) = next(&replicas, 2);
    for client in clients.iter().cycle().take(6) {
        let client = client.clone();
        let one = &mut tenants[PENALISED..=PENALISED];
        ask(client, (PENALISED, one), now, &[LIMITS]).await;
    }
    assert!(tenants[PENALISED].is_penalised());
    let limit = json!({"limit": {"unit": "year", "requests_per_unit": 9}});
    put(&replicas[0], OVERRIDDEN, &limit, 600);
    put(&replicas[1], BLOCKED, &json!({"blocked": true}), 7_200);
    tenants[OVERRIDDEN].overridden = Some((9, now + 600 * SECOND));
    tenants[BLOCKED].overridden = Some((0, now + 7_200 * SECOND));
    have_overrides(&replicas, 2).await;

    // While the plan is raised, a decision is by either of its limits.
    let (shift, now) = next(&replicas, 2);
    let raised = rules(RAISED, &file);
    let [one, two, three] = &mut replicas;
    let reload = async {
        tokio::join!(
            one.reload(&raised),
            two.reload(&raised),
            three.reload(&raised)
        )
    };
    let either = [LIMITS, RAISED];
    tokio::join!(reload, round(&clients, &mut tenants, shift, now, &either));
    let (shift, now) = next(&replicas, 2);
    round(&clients, &mut tenants, shift, now, &[RAISED]).await;
    assert_eq!(tenants[OVERRIDDEN].used, 6, "two more than the plan had");

    // Both overrides end by the clock, and the block of the penalty by a reset.
    for (seconds, left) in [(600, 1), (6_600, 0)] {
        let (shift, now) = next(&replicas, seconds);
        have_overrides(&replicas, left).await;
        round(&clients, &mut tenants, shift, now, &[RAISED]).await;
    }
    assert_eq!(tenants[OVERRIDDEN].used, 6, "by its plan none is left");
    assert_eq!(tenants[BLOCKED].used, 6, "one more than before");
    let (_, now) = next(&replicas, 2);
    let one = &mut tenants[PENALISED..=PENALISED];
    let passed = ask(clients[0].clone(), (PENALISED, one), now, &[RAISED]).await;
    assert_eq!(passed, 0);
    let body = json!({"domain": "d", "descriptor": [{"key": "tenant", "value": "t3"}]});
    let (code, said) = http(replicas[2].admin, "POST", "/reset", &body.to_string());
    assert_eq!(code, 200, "{said}");
    tenants[PENALISED] = Tenant::default();
    let (_, now) = next(&replicas, 2);
    let one = &mut tenants[PENALISED..=PENALISED];
    let passed = ask(clients[1].clone(), (PENALISED, one), now, &[RAISED]).await;
    assert_eq!(passed, 1);
}
