//! `docs/guides/from-envoy-ratelimit.md`: its steps run against a real Redis, and its tables are
//! compared with the code.
//!
//! How: the reference is simulated by the commands it sends to Redis, as in
//! `tests/redis/reference.rs`.

use std::collections::BTreeMap;
use std::process::Command;

use clap::CommandFactory as _;
use tollgate::cli::Cli;
use tollgate::clock::{Clock as _, SystemClock};
use tollgate::settings::REDIS_VARIABLES;
use tollgate::settings::reference_variables::{UNREAD_VARIABLES, Unread, warnings};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ratelimit_process::RatelimitProcess;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::guides::exposed_metrics::SHOWN;
use crate::guides::guide::{Page, of_a_year};

const PAGE: &str = "from-envoy-ratelimit.md";

/// The reference's year.
const YEAR_S: u64 = 31_536_000;

/// Environment on the page.
fn environment(guide: &Page) -> Vec<(String, String)> {
    let text = &guide.under("2. Keep the environment, add one variable", "text")[0];
    let lines = text.lines().map(|line| line.split_once('=').unwrap());
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A folder with the layout of the page's environment and the page's rules.
fn rules_folder(guide: &Page) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ratelimit/config");
    std::fs::create_dir_all(&folder).unwrap();
    let rules = of_a_year(&guide.only("3. Move the callers", "yaml"));
    std::fs::write(folder.join("shop.yaml"), rules).unwrap();
    directory
}

fn start(
    guide: &Page,
    root: &std::path::Path,
    redis: &RedisServer,
    without: &str,
) -> RatelimitProcess {
    let mut variables: Vec<_> = environment(guide)
        .into_iter()
        .filter(|(name, _)| name != without)
        .map(|(name, value)| match name.as_str() {
            "REDIS_URL" => (name, format!("127.0.0.1:{}", redis.port())),
            "RUNTIME_ROOT" => (name, root.display().to_string()),
            _ => (name, value),
        })
        .collect();
    // Deadline for a busy machine; without the denial cache every refusal asks Redis, like the
    // reference.
    variables.push(("TOLLGATE_STORE_DEADLINE_MS".to_owned(), "5000".to_owned()));
    variables.push((
        "TOLLGATE_STORE_OVER_LIMIT_CACHE_MS".to_owned(),
        "0".to_owned(),
    ));
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let replica = RatelimitProcess::start(&variables);
    until("the store is up", || {
        let is_up = replica.metric("tollgate_store_up") == 1;
        is_up.then_some(()).ok_or_else(|| replica.said())
    });
    replica.wait_until_ready();
    replica
}

/// Sends `times` requests and returns how many passed.
fn through_tollgate(replica: &RatelimitProcess, times: u64) -> u64 {
    let asked = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    let statuses = (0..times).map(|_| http(replica.http, "POST", "/json", asked).0);
    statuses
        .map(|status| match status {
            200 => 1,
            429 => 0,
            other => panic!("{other}: {}", replica.said()),
        })
        .sum()
}

#[test]
fn counters_continue_through_every_migration_step() {
    let guide = Page::guide(PAGE);
    let redis = RedisServer::start(&[]);
    let folder = rules_folder(&guide);
    let tollgate = start(&guide, folder.path(), &redis, "");
    let now_s = SystemClock::new().now().as_us() / 1_000_000;
    let counter = format!("rl:shop_user_bob_{}", now_s - now_s % YEAR_S);
    let through_reference = |times: u64| -> u64 {
        let after: Vec<u64> = (0..times)
            .map(|_| {
                let after = redis.say(&["INCRBY", &counter, "1"]);
                let _: i64 = redis.say(&["EXPIRE", &counter, &(YEAR_S + 17).to_string()]);
                after
            })
            .collect();
        after.into_iter().filter(|after| *after <= 10).count() as u64
    };
    // Row by row of the page's table.
    let (_, table) = guide.text().split_once("| requests | decision |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut taken = 0;
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (times, who) = cells[0].split_once(" through ").unwrap();
        let times = times.parse().unwrap();
        let passed = match who {
            "tollgate" => through_tollgate(&tollgate, times),
            _ => through_reference(times),
        };
        let said = if passed == 0 {
            0
        } else {
            cells[1].split(' ').next().unwrap().parse().unwrap()
        };
        assert_eq!(passed, said, "{row}");
        let stands: String = redis.say(&["GET", &counter]);
        assert_eq!(stands, cells[2], "{row}");
        taken += 1;
    }
    assert_eq!(taken, 5);
    // Last step: own buckets, which start fresh.
    drop(tollgate);
    let tollgate = start(&guide, folder.path(), &redis, "TOLLGATE_STORE_KEYS");
    assert_eq!(through_tollgate(&tollgate, 11), 10);
}

#[test]
fn startup_warnings_and_commands_match_the_page() {
    let guide = Page::guide(PAGE);
    let heading = "2. Keep the environment, add one variable";
    let texts = guide.under(heading, "text");
    let names: Vec<_> = environment(&guide)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let said = warnings(names.iter().map(String::as_str));
    assert_eq!(texts[1].lines().collect::<Vec<_>>(), said);

    let folder = rules_folder(&guide);
    let config = folder.path().join("ratelimit/config").display().to_string();
    let run = |command: &str| {
        let command = command.trim().strip_prefix("tollgate ").unwrap();
        let command = command.replace("/data/ratelimit/config", &config);
        let output = Command::new(tollgate_binary())
            .args(command.split(' '))
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}");
        String::from_utf8(output.stdout).unwrap()
    };
    let checked = run(&guide.only("1. Check the rules", "text"));
    assert!(checked.contains("good, 1 limit in 1 domain"), "{checked}");
    let explained = run(&texts[2]);
    assert!(explained.contains(texts[3].trim()), "{explained}");
}

#[test]
fn every_variable_of_the_reference_has_a_correct_row() {
    let guide = Page::guide(PAGE);
    let (_, table) = guide.text().split_once("\n## Variables\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut fates: BTreeMap<&str, &str> = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        for name in cells[0]
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.ends_with('_'))
        {
            assert_eq!(fates.insert(name, cells[1]), None, "{name} twice");
        }
    }
    for (name, unread) in UNREAD_VARIABLES {
        let said = fates
            .remove(name)
            .unwrap_or_else(|| panic!("no row for {name}"));
        let word = match unread {
            Unread::NotNeeded(_) => "not needed",
            Unread::Replaced(_) => "instead",
        };
        assert!(said.starts_with(word), "{name}: {said}, but {unread:?}");
        // A replacement setting on the page is also the replacement in the code.
        if let Unread::Replaced(what) = unread {
            for setting in what.split(|c: char| !c.is_ascii_uppercase() && c != '_' && c != '=') {
                let ours = setting.starts_with("TOLLGATE_") && setting != "TOLLGATE_STORE";
                assert!(
                    !ours || said.contains(setting.trim_end_matches('=')),
                    "{name}: {setting}"
                );
            }
        }
    }
    // Every other variable has an effect.
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("serve");
    let settings = serve
        .get_arguments()
        .filter_map(|it| it.get_env()?.to_str());
    let settings = settings.filter(|name| !name.starts_with("TOLLGATE_"));
    for name in settings.chain(REDIS_VARIABLES.iter().copied()) {
        let said = fates.remove(name);
        let is_obeyed = said.is_some_and(|said| said.starts_with("obeyed"));
        assert!(is_obeyed, "{name}: {said:?}");
    }
    assert!(fates.is_empty(), "{fates:?}");
}

#[test]
fn every_metric_of_the_table_has_the_documented_labels() {
    let guide = Page::guide(PAGE);
    let (_, table) = guide.text().split_once("| metric | labels |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut metrics = 0;
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let quoted = |cell: &str| -> Vec<String> {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        for metric in quoted(cells[0]) {
            let labels = SHOWN.get(&metric).unwrap_or_else(|| panic!("no {metric}"));
            let labels: Vec<_> = labels
                .keys()
                .filter(|label| *label != "le")
                .cloned()
                .collect();
            assert_eq!(labels, quoted(cells[1]), "{metric}");
            metrics += 1;
        }
    }
    assert!(metrics > 8);
    assert!(SHOWN.contains_key("tollgate_store_over_limit_cache_answers_total"));
}
