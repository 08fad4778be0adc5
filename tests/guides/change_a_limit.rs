//! `docs/guides/change-a-limit.md`: runs every command of the page, in its order, on the files of
//! the page and a service of its own.
//!
//! How: the files have the names of the page, in a folder of their own. Addresses are added, and a
//! recording ends after as many requests as the test sends.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::{Page, of_a_year};

/// Requests of each customer: one needs more than the changed limit.
const TRAFFIC: [(&str, u64); 2] = [("globex", 80), ("initech", 30)];

const REQUESTS: u64 = 110;

/// Newly refused: 80 requests, and a limit of 60.
const NEWLY_REFUSED: u64 = 20;

/// A walk through the page, with its files in a folder.
struct Walk {
    guide: Page,
    folder: TempDir,
    is_of_a_year: bool,
}

// === impl Walk ===

impl Walk {
    fn new() -> Self {
        let page = Self {
            guide: Page::guide("change-a-limit.md"),
            folder: tempfile::tempdir().unwrap(),
            is_of_a_year: false,
        };
        page.write("rules.yaml", &page.guide.only("Change a limit", "yaml"));
        let [rules, test] = &*page.guide.under("1. Test the rule", "yaml") else {
            panic!("two files");
        };
        page.write("changed.yaml", rules);
        page.write("changed.test.yaml", test);
        page
    }

    fn write(&self, name: &str, text: &str) {
        let text = if self.is_of_a_year {
            of_a_year(text)
        } else {
            text.to_owned()
        };
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// The page's folder with limits a year in place of a minute, so that no window turns while
    /// services decide.
    fn of_a_year() -> Self {
        let mut page = Self::new();
        page.is_of_a_year = true;
        for name in ["rules.yaml", "changed.yaml"] {
            let text = std::fs::read_to_string(page.folder.path().join(name)).unwrap();
            page.write(name, &text);
        }
        page
    }

    fn rules(&self) -> std::path::PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// The commands under a heading.
    fn commands(&self, heading: &str) -> Vec<String> {
        let blocks = self.guide.under(heading, "sh");
        let lines = blocks.iter().flat_map(|block| block.lines());
        lines.map(str::to_owned).collect()
    }

    /// A command of the page, with more arguments, run in the folder.
    fn command(&self, shown: &str, more: &[&str]) -> Command {
        let mut words = shown.split(' ');
        assert_eq!(words.next(), Some("tollgate"), "{shown}");
        let mut command = Command::new(tollgate_binary());
        command.args(words).args(more);
        command.current_dir(self.folder.path());
        command
    }

    fn run(&self, shown: &str, more: &[&str]) -> String {
        printed(shown, self.command(shown, more).output().unwrap())
    }
}

fn printed(shown: &str, output: Output) -> String {
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{shown}: {text}");
    text
}

fn admin(service: &Tollgate) -> String {
    format!("http://{}", service.admin)
}

/// Sends so many requests of a customer; returns how many were admitted.
fn send(service: &Tollgate, customer: &str, count: u64) -> usize {
    let entry = json!({"key": "customer", "value": customer});
    let body = json!({"domain": "shop", "descriptors": [{"entries": [entry]}]}).to_string();
    let statuses = (0..count).map(|_| http(service.http, "POST", "/json", &body).0);
    statuses.filter(|status| *status == 200).count()
}

fn send_traffic(service: &Tollgate) -> usize {
    let admitted = TRAFFIC.map(|(customer, count)| send(service, customer, count));
    admitted.iter().sum()
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn_tied().unwrap()
}

#[test]
fn the_test_of_the_changed_rule_passes_and_fails_for_the_rules_in_force() {
    let page = Walk::new();
    let [command] = &*page.commands("1. Test the rule") else {
        panic!("one command");
    };
    let text = page.run(command, &[]);
    assert!(text.contains("1 passed"), "{text}");
    let steps = std::fs::read_to_string(page.folder.path().join("changed.test.yaml")).unwrap();
    page.write(
        "changed.test.yaml",
        &steps.replace("changed.yaml", "rules.yaml"),
    );
    let failed = page.command(command, &[]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

#[test]
fn the_replay_names_the_customer_that_the_changed_rule_refuses() {
    let page = Walk::of_a_year();
    let service = Tollgate::start_at(&page.rules(), &[]);
    let [record, text, html] = &*page.commands("2. Replay yesterday") else {
        panic!("three commands");
    };
    let count = REQUESTS.to_string();
    let more = ["--count", &count, "--admin", &admin(&service)];
    let recording = started(page.command(record, &more));
    until("it records", || service.metric("tollgate_recordings") == 1);
    assert_eq!(send_traffic(&service), 110);
    printed(record, recording.wait_with_output().unwrap());

    let text = page.run(text, &[]);
    assert!(
        text.contains("globex") && !text.contains("initech"),
        "{text}"
    );
    page.run(html, &[]);
    let written = std::fs::read_to_string(page.folder.path().join("report.html")).unwrap();
    assert!(written.contains("1 key is newly refused."), "{written}");
    assert!(written.contains("<bdi>globex</bdi>"), "{written}");

    let json = html.replace("html --out report.html", "json");
    let report: Value = serde_json::from_str(&page.run(&json, &[])).unwrap();
    assert_eq!(report["newly_refused"], NEWLY_REFUSED, "{report:#}");
    assert_eq!(report["recorded"]["same"], REQUESTS, "{report:#}");
    assert_eq!(report["recorded"]["different"], 0, "{report:#}");
    // As a live run against the changed rule refuses.
    let changed = page.folder.path().join("changed.yaml");
    let live = Tollgate::start_at(&changed, &[]);
    let admitted = u64::try_from(send_traffic(&live)).unwrap();
    assert_eq!(admitted, REQUESTS - NEWLY_REFUSED);
}

#[test]
fn the_candidate_refuses_nobody_and_is_shown() {
    let page = Walk::of_a_year();
    let [serve, tap] = &*page.commands("3. Try it beside the live rules") else {
        panic!("two commands");
    };
    let changed = page.folder.path().join("changed.yaml");
    assert_eq!(serve, "tollgate serve rules.yaml --candidate changed.yaml");
    let settings = [
        "--candidate",
        changed.to_str().unwrap(),
        "--top-keys",
        "plain",
    ];
    let service = Tollgate::start_at(&page.rules(), &settings);
    let listening = started(page.command(tap, &["--admin", &admin(&service)]));
    until("it listens", || {
        service.metric("tollgate_event_streams") == 1
    });
    assert_eq!(send_traffic(&service), 110);
    let text = printed(tap, listening.wait_with_output().unwrap());
    assert!(
        text.contains("globex") && !text.contains("initech"),
        "{text}"
    );
}

#[test]
fn shadow_mode_counts_and_the_enforced_limit_refuses() {
    let page = Walk::of_a_year();
    let service = Tollgate::start_at(&page.rules(), &[]);
    let in_shadow = page.guide.only("4. Shadow mode", "yaml");
    let reloaded = |loads: u64| {
        until("the rules are loaded", || {
            service.metric("ratelimit_service_config_load_success") == loads
        });
    };
    reloaded(1);
    page.write("rules.yaml", &in_shadow);
    for command in page.commands("4. Shadow mode") {
        page.run(&command, &[]);
    }
    reloaded(2);
    assert_eq!(send_traffic(&service), 110);
    let hits = |outcome: &str| {
        let labels =
            format!("domain=\"shop\",limit=\"year\",outcome=\"{outcome}\",rule=\"shop.customer\"");
        service.metric(&format!("tollgate_limit_hits_total{{{labels}}}"))
    };
    assert_eq!((hits("would_refuse"), hits("refused")), (NEWLY_REFUSED, 0));

    let line = "    shadow_mode: true\n";
    assert!(in_shadow.contains(line), "{in_shadow}");
    page.write("rules.yaml", &in_shadow.replace(line, ""));
    let [check, shadow] = &*page.commands("5. Enforce") else {
        panic!("two commands");
    };
    page.run(check, &[]);
    reloaded(3);
    assert_eq!(send(&service, "hooli", 80), 60);
    page.run(shadow, &["--admin", &admin(&service)]);
    assert_eq!(send(&service, "hooli", 1), 1);
}

/// Every file that the page names has its text on the page.
#[test]
fn the_files_of_the_page_are_those_of_its_commands() {
    let page = Walk::new();
    for file in ["rules.yaml", "changed.yaml", "changed.test.yaml"] {
        assert!(page.guide.text().contains(&format!("`{file}`")), "{file}");
        assert!(Path::new(&page.folder.path().join(file)).is_file());
    }
}
