//! `docs/guides/on-call.md`: runs every command of the page, in its order, against two replicas,
//! and compares the pictures with what the commands print.
//!
//! How: addresses of the page become those of the replicas, and back in what is printed. Numbers
//! and times differ in each run, so each counts as one digit. The view of `tollgate top` is
//! captured from tmux. `make pictures` writes the pictures.
//!
//! What it deliberately does not do: the live page (`tests/browser`).

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::terminal_picture::{self, PROMPT};
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::guides::guide::{Page, of_a_year, root};

const PAGE: &str = "on-call.md";
const PICTURES: &str = "docs/pictures";

/// The two replicas of the page.
struct Replicas {
    one: Tollgate,
    two: Tollgate,
    /// Rules, key and log.
    folder: TempDir,
}

/// A picture of the page: its file's name, its alternative text, its lines.
struct Picture {
    file: String,
    title: String,
    lines: Vec<String>,
}

// === impl Replicas ===

impl Replicas {
    fn start(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("hash-key");
        std::fs::write(&key, "a key of the page's example").unwrap();
        std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
        let key = key.display().to_string();
        let rules = of_a_year(rules);
        let start = || Tollgate::start(&rules, &["--value-hash-key-file", &key]);
        Self {
            one: start(),
            two: start(),
            folder,
        }
    }

    /// What the page writes, and what is there instead.
    fn places(&self) -> [(String, String); 5] {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        [
            ("10.0.0.2:6070".to_owned(), self.two.admin.to_string()),
            ("10.0.0.1:6070".to_owned(), self.one.admin.to_string()),
            ("127.0.0.1:8081".to_owned(), self.one.grpc.to_string()),
            (
                "/var/log/tollgate/decisions.json".to_owned(),
                file("decisions.json"),
            ),
            (" rules.yaml".to_owned(), format!(" {}", file("rules.yaml"))),
        ]
    }

    /// A command of the page as it is run here.
    fn command(&self, shown: &str) -> String {
        let one = self.one.admin.to_string();
        let mut command = shown.replace("127.0.0.1:6070", &one);
        for (page, here) in self.places() {
            command = command.replace(&page, &here);
        }
        let asks = ["top", "explain", "decisions", "reset", "shadow", "tap"];
        let word = command.split(' ').nth(1).unwrap_or_default();
        if asks.contains(&word) && !command.contains("--admin ") {
            let _ = write!(command, " --admin http://{one}");
        }
        command
    }

    /// Output as the page would show it.
    fn shown(&self, output: &str) -> String {
        let mut shown = output.replace(&self.one.admin.to_string(), "127.0.0.1:6070");
        for (page, here) in self.places() {
            shown = shown.replace(&here, &page);
        }
        let shown = shown
            .replace("per year", "per hour")
            .replace("365 d", "1 h");
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        shown.replace(host.trim(), "limits")
    }

    /// Sends so many requests with one hit.
    fn send(replica: &Tollgate, key: &str, value: &str, count: usize) {
        let body = format!(
            r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#
        );
        for _ in 0..count {
            let (status, _) = http(replica.http, "POST", "/json", &body);
            assert!(matches!(status, 200 | 429), "{status}");
        }
    }

    /// The traffic before the first command.
    fn traffic(&self) {
        Self::send(&self.one, "customer", "ACME-7", 34);
        Self::send(&self.one, "customer", "globex", 23);
        Self::send(&self.one, "customer", "initech", 6);
        Self::send(&self.one, "path", "/search", 12);
        Self::send(&self.two, "customer", "ACME-7", 25);
    }

    /// Runs one command; returns what it prints.
    fn run(&self, shown: &str) -> String {
        let command = self.command(shown);
        match shown {
            // As the page says, 2 shows the keys.
            "tollgate top" => {
                return self.view(&command, &[("shop.customer", "2"), ("customer=#", "")]);
            }
            "tollgate top --domain shop" => return self.view(&command, &[("shadow>", "")]),
            _ => {}
        }
        if shown.starts_with("tollgate serve ") {
            self.serve(&self.command(shown));
            return String::new();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if shown.starts_with("tollgate tap ") {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        Self::send(&self.one, "path", "/search", 1);
                    }
                });
            }
            let output = shell(&self.command(shown)).output().unwrap();
            stop.store(true, Ordering::Relaxed);
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8(text).unwrap();
            assert!(output.status.success(), "{shown}: {text}");
            text
        })
    }

    /// The screen of `tollgate top`, at 80 columns and 24 lines: each time it shows some words, a
    /// key is pressed.
    fn view(&self, command: &str, steps: &[(&str, &str)]) -> String {
        let socket = self.folder.path().join("tmux");
        let tmux = |arguments: &[&str]| {
            let mut tmux = Command::new("tmux");
            tmux.arg("-S")
                .arg(&socket)
                .args(["-f", "/dev/null"])
                .args(arguments)
                .env("TERM", "xterm")
                .env("PATH", search_path());
            tmux
        };
        // `-D`: the server is this child, and no daemon.
        let server = tmux(&["-D"]).stdin(Stdio::null()).spawn_tied();
        let _server = KillOnDrop(server.expect("tmux runs"));
        // `-N`: it does not start a server of its own.
        let session = ["-N", "new-session", "-d", "-x", "80", "-y", "24", command];
        until("the server has a session", || {
            let output = tmux(&session).output().unwrap();
            output.status.success().then_some(()).ok_or(output)
        });
        let mut screen = String::new();
        for (words, key) in steps {
            // What is drawn in several writes is whole when it stays.
            let mut before = String::new();
            screen = until(&format!("`{words}` is shown"), || {
                let output = tmux(&["capture-pane", "-p"]).output().unwrap();
                let screen = String::from_utf8(output.stdout).unwrap();
                let is_shown = screen.contains(words) && screen == before;
                before.clone_from(&screen);
                is_shown.then(|| screen.clone()).ok_or(screen)
            });
            assert!(tmux(&["send-keys", key]).status().unwrap().success());
        }
        screen
    }

    /// A service that writes a decision log: a refused request is in it.
    fn serve(&self, command: &str) {
        let ports = "--grpc-host=127.0.0.1 --grpc-port=0 --host=127.0.0.1 --port=0 --debug-port=0";
        let mut child = KillOnDrop(
            shell(&format!("exec {command} {ports}"))
                .stderr(Stdio::piped())
                .spawn_tied()
                .unwrap(),
        );
        let mut said = child.0.stderr.take().unwrap();
        let mut banner = String::new();
        let mut byte = [0];
        while !banner.contains("try: ") && said.read(&mut byte).unwrap() > 0 {
            banner.push(char::from(byte[0]));
        }
        let (_, rest) = banner.split_once("HTTP ").expect(&banner);
        let address = rest.split(',').next().unwrap().parse().unwrap();
        let body =
            r#"{"domain":"shop","descriptors":[{"entries":[{"key":"path","value":"/search"}]}]}"#;
        let log = self.folder.path().join("decisions.json");
        let text = until("a refused request is logged", || {
            let (status, _) = http(address, "POST", "/json", body);
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let is_logged = status == 429 && text.ends_with('\n');
            is_logged.then(|| text.clone()).ok_or((status, text))
        });
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["verdict"], "OVER_LIMIT", "{first}");
    }
}

/// The folder of the binary first.
fn search_path() -> String {
    let folder = Path::new(tollgate_binary()).parent().unwrap();
    format!("{}:/usr/bin:/bin", folder.display())
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .env_clear()
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell
}

/// Runs the page; returns its pictures.
fn pictures() -> Vec<Picture> {
    let guide = Page::guide(PAGE);
    let replicas = Replicas::start(&guide.only("Before the night", "yaml"));
    replicas.traffic();
    let mut pictures = Vec::new();
    let mut terminal: Vec<String> = Vec::new();
    let mut language = None;
    for line in guide.text().lines() {
        if let Some(name) = line.strip_prefix("```") {
            language = language.xor(Some(name));
            continue;
        }
        match language {
            Some("sh") => {
                let output = replicas.shown(&replicas.run(line));
                terminal.push(format!("{PROMPT}{line}"));
                terminal.extend(output.lines().map(|line| line.trim_end().to_owned()));
            }
            Some(_) => {}
            None if line.starts_with('#') => terminal.clear(),
            None => {
                if let Some((title, rest)) = line.split_once("](../pictures/on-call-") {
                    pictures.push(Picture {
                        file: format!("on-call-{}", rest.trim_end_matches(')')),
                        title: title.trim_start_matches("![").to_owned(),
                        lines: std::mem::take(&mut terminal),
                    });
                }
            }
        }
    }
    // Each reset and each shadow mode is logged, at the default level.
    let said = replicas.one.said();
    for words in ["change=\"reset\"", "change=\"shadow\""] {
        assert!(
            said.contains("tollgate::audit: ") && said.contains(words),
            "{said}"
        );
    }
    pictures
}

/// A line without what differs from run to run: digits, and the width of columns.
fn masked(line: &str) -> String {
    // An hour, or almost.
    let line = line.split(", resets in").next().unwrap_or_default();
    let line = line.split(", reset in").next().unwrap_or_default();
    let mut masked = String::new();
    // The bars of the last minute depend on how many seconds passed.
    for sign in line.chars().filter(|sign| !('▁'..='█').contains(sign)) {
        let sign = if sign.is_ascii_digit() { '0' } else { sign };
        if !(matches!(sign, '0' | ' ' | '─') && masked.ends_with(sign)) {
            masked.push(sign);
        }
    }
    // A rate is 0 or 0.5, and the first row of a screen is selected.
    while masked.contains("0.0") {
        masked = masked.replace("0.0", "0");
    }
    masked.trim().trim_start_matches('>').to_owned()
}

/// `make pictures` writes them; otherwise this test compares them.
#[test]
fn every_command_of_the_page_runs_and_prints_what_the_pictures_show() {
    let pictures = pictures();
    assert!(pictures.len() >= 5, "{} pictures", pictures.len());
    for picture in pictures {
        let path = root().join(PICTURES).join(&picture.file);
        if std::env::var_os("WRITE_PICTURES").is_some() {
            let svg = terminal_picture::draw(&picture.title, &picture.lines);
            std::fs::write(path, svg).unwrap();
            continue;
        }
        let svg = std::fs::read_to_string(&path).unwrap_or_default();
        let shown = terminal_picture::lines(&svg);
        // Rows of a screen are in the order of rates, which differ.
        let compared = |lines: &[String]| {
            let lines = lines.iter().map(|line| masked(line));
            let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
            lines.sort();
            lines
        };
        let (shown, printed) = (compared(&shown), compared(&picture.lines));
        assert_eq!(
            shown, printed,
            "{PICTURES}/{}: run `make pictures`",
            picture.file
        );
    }
}
