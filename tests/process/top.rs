//! `tollgate top` in a real terminal of 80 columns and 24 lines: tmux. Its screens are captured.

use std::path::Path;
use std::process::{Command, Stdio};

use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::admin_commands::{LIMITS, admin, hit};
use crate::process::running::signal;

/// A tmux server with one window. It ends with the test.
pub(crate) struct Terminal {
    directory: tempfile::TempDir,
    _server: KillOnDrop,
}

impl Terminal {
    /// Runs a shell command in a terminal of this size.
    pub(crate) fn start(width: u16, height: u16, command: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // `-D`: the server is this child, and no daemon.
        let server = tmux(directory.path(), &["-D", "-f", "/dev/null"])
            .stdin(Stdio::null())
            .spawn_tied();
        let terminal = Self {
            _server: KillOnDrop(server.expect("tmux is missing; run `make deps`")),
            directory,
        };
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["-x", &width, "-y", &height];
        // `-N`: it does not start a server of its own.
        let session = [&["-N", "new-session", "-d"], &size[..], &[command]].concat();
        until("the server has a session", || {
            let output = tmux(terminal.directory.path(), &session).output().unwrap();
            output.status.success().then_some(()).ok_or(output)
        });
        terminal
    }

    /// Runs `tollgate top` and then shows its exit code.
    pub(crate) fn top(urls: &str, variables: &str, arguments: &str) -> Self {
        let binary = tollgate_binary();
        let command = format!(
            "stty -a | grep -q ' echo ' && echo before; {variables} {binary} top --admin {urls} {arguments}; \
             echo \"exit $?\"; stty -a | grep -q ' echo ' && echo after; exec sleep 600"
        );
        Self::start(80, 24, &command)
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> String {
        let output = tmux(self.directory.path(), arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines of the screen.
    fn screen(&self) -> Vec<String> {
        let screen = self.tmux(&["capture-pane", "-p"]);
        screen.lines().map(str::to_owned).collect()
    }

    /// The screen with its escape sequences for styles.
    pub(crate) fn styled(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    pub(crate) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// The ID of the program: tmux names the shell, and the program is its child.
    fn program(&self) -> String {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).unwrap();
        children.split_whitespace().next().unwrap().to_owned()
    }

    /// Leaves a view with these words. The next key must come later: after an escape it would be
    /// one with Alt.
    fn leave(&self, words: &str) {
        self.press(&["Escape"]);
        self.wait_for(&format!("`{words}` is gone"), |screen| {
            !screen.join("\n").contains(words)
        });
    }

    /// Waits for a screen with these words.
    pub(crate) fn wait(&self, words: &[&str]) -> Vec<String> {
        self.wait_for(&format!("{words:?} are shown"), |screen| {
            let text = screen.join("\n");
            words.iter().all(|words| text.contains(words))
        })
    }

    /// Waits for a screen of which this is true: it may be seen while it is drawn.
    pub(crate) fn wait_for(&self, what: &str, is_drawn: impl Fn(&[String]) -> bool) -> Vec<String> {
        until(what, || {
            let screen = self.screen();
            is_drawn(&screen).then(|| screen.clone()).ok_or(screen)
        })
    }
}

/// tmux with the server of this folder.
fn tmux(folder: &Path, arguments: &[&str]) -> Command {
    let mut tmux = Command::new("tmux");
    tmux.arg("-S")
        .arg(folder.join("socket"))
        .args(arguments)
        .env_remove("TMUX")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color");
    tmux
}

/// A line with its digits masked. Numbers vary, their columns do not.
fn masked(line: &str) -> String {
    line.chars()
        .map(|c| if c.is_ascii_digit() { '9' } else { c })
        .collect()
}

#[test]
fn rules_keys_partitions_and_replicas_fit_80_columns_and_24_lines() {
    let arguments = ["--top-keys", "plain", "--partitions", "2"];
    let services = [
        Tollgate::start(LIMITS, &arguments),
        Tollgate::start(LIMITS, &arguments),
    ];
    let urls = services.each_ref().map(admin).join(",");
    for service in &services {
        hit(service, "user=a", 5);
        hit(service, "team=値", 2);
    }
    let terminal = Terminal::top(&urls, "", "");
    let words = ["2 of 2 replicas", "edge.user", "edge.team", "tab view"];
    let screen = terminal.wait(&words);
    assert_eq!(screen.len(), 24);
    assert!(
        masked(&screen[0]).starts_with(" tollgate top  9 of 9 replicas  "),
        "{screen:?}"
    );
    assert_eq!(screen[1], "");
    assert_eq!(
        screen[2],
        "[1 Rules] 2 Keys  3 Partitions  4 Replicas   by refused/s"
    );
    assert_eq!(
        screen[3],
        " RULE              REFUSED/S ADMIT/S REFUSED  WOULD LIMIT          MODE"
    );
    let user = screen
        .iter()
        .find(|line| line.contains("edge.user"))
        .unwrap();
    assert!(user.ends_with("      6      0 2 per year"), "{user}");
    assert!(
        screen[23].starts_with(" ? help  q quit  tab view"),
        "{screen:?}"
    );

    terminal.press(&["Tab"]);
    terminal.wait(&["[2 Keys]", "user=a", "team=値"]);
    // A minute may be over before the last look on a busy machine.
    terminal.press(&["w"]);
    let screen = terminal.wait(&["by refused 1h", "user=a", "team=値"]);
    assert_eq!(
        screen[3],
        " KEY                RULE               REFUSED   WOULD    ASKED  ERROR SINCE"
    );
    assert_eq!(
        masked(&screen[4]),
        ">user=a             edge.user                9       9       99      9 99:99:99Z",
        "{screen:?}"
    );
    terminal.press(&["Enter"]);
    let screen = terminal.wait(&["the last", "OVER_LIMIT over_limit remaining=0"]);
    let text = screen.join("\n");
    for part in [
        "key       user=a",
        "limit     2 per year, fixed_window",
        "refused   6 of 10 asked",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    terminal.leave("the last");
    terminal.wait(&[">user=a"]);

    terminal.press(&["3"]);
    let rows = |screen: &[String]| {
        let is_row = |line: &&String| line.contains("127.0.0.1:");
        screen.iter().filter(is_row).cloned().collect::<Vec<_>>()
    };
    terminal.wait(&["[3 Partitions]", "BUCKETS"]);
    terminal.wait_for("two partitions of two replicas are shown", |screen| {
        rows(screen).len() == 4
    });
    terminal.press(&["4"]);
    terminal.wait(&["[4 Replicas]", "memory"]);
    terminal.wait_for("two replicas are ready", |screen| {
        let rows = rows(screen);
        let is_ready = |row: &String| row.contains(" ready ") && row.contains("2 (gen. 1)");
        rows.len() == 2 && rows.iter().all(is_ready)
    });
    terminal.press(&["?"]);
    terminal.wait(&["pause the screen, and go on"]);
    terminal.leave("pause the screen");

    // Smaller and larger.
    terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    terminal.press(&["1"]);
    terminal.wait_for("the larger screen is drawn", |screen| {
        screen.len() == 40 && screen[39].contains("? help")
    });
    terminal.press(&["q"]);
    terminal.wait(&["exit 0", "after"]);
    assert!(
        !terminal.screen().join("\n").contains("? help"),
        "the screen before is restored"
    );
}

#[test]
fn a_dropped_connection_is_shown_and_comes_back() {
    let port = reserved_port();
    let url = format!("http://127.0.0.1:{port}");
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, LIMITS).unwrap();
    let start = || {
        let mut command = Command::new(tollgate_binary());
        command
            .arg("serve")
            .arg(&rules)
            .args(["--grpc-host", "127.0.0.1", "--grpc-port", "0"])
            .args(["--host", "127.0.0.1", "--port", "0"])
            .args(["--debug-port", &port.to_string()])
            .env_clear()
            .stderr(Stdio::null());
        KillOnDrop(command.spawn_tied().unwrap())
    };
    let service = start();
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["1 of 1 replica", "edge.user"]);
    drop(service);
    let screen = terminal.wait(&["0 of 1 replica", "LOST for ", "no replica is connected"]);
    assert!(screen[1].contains(&url), "{screen:?}");
    // The time since then grows.
    until("the time is that of some seconds", || {
        let screen = terminal.screen().join("\n");
        let (_, time) = screen.split_once("LOST for ")?;
        let seconds: u32 = time.split(' ').next()?.parse().ok()?;
        (seconds >= 2).then_some(())
    });
    let _service = start();
    let screen = terminal.wait(&["1 of 1 replica", "edge.user"]);
    assert_eq!(screen[1], "", "{screen:?}");
    terminal.press(&["q"]);
    terminal.wait(&["exit 0"]);
}

#[test]
fn colours_can_be_switched_off_and_signals_restore_the_terminal() {
    let service = Tollgate::start(LIMITS, &[]);
    let url = admin(&service);
    // tmux writes the colours of the palette, such as 38;5;6 for cyan.
    let colour = |text: &str| text.contains("38;5;");
    let terminal = Terminal::top(&url, "NO_COLOR=", "");
    terminal.wait(&["edge.user"]);
    assert!(colour(&terminal.styled()), "{:?}", terminal.styled());
    drop(terminal);
    let terminal = Terminal::top(&url, "NO_COLOR=1", "");
    terminal.wait(&[">edge."]);
    assert!(!colour(&terminal.styled()), "{:?}", terminal.styled());
    signal(&terminal.program(), "TERM");
    terminal.wait(&["exit 0", "after"]);
}

#[test]
fn a_screen_needs_a_terminal_that_can_show_it() {
    let service = Tollgate::start(LIMITS, &[]);
    let url = admin(&service);
    let terminal = Terminal::top(&url, "TERM=dumb", "");
    terminal.wait(&["(TERM=dumb) cannot show the screen; set --once", "exit 1"]);
    // Ctrl-C quits, and so does a closed terminal.
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["edge.user"]);
    terminal.press(&["C-c"]);
    terminal.wait(&["exit 0", "after"]);
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["edge.user"]);
    let program = Path::new("/proc").join(terminal.program());
    drop(terminal);
    until("the program ends", || {
        // Its parent may be gone, and no other process reaps it.
        let status = std::fs::read_to_string(program.join("status")).unwrap_or_default();
        let has_ended = status.is_empty() || status.contains("State:\tZ");
        has_ended.then_some(()).ok_or(status)
    });
}

const BY_VALUE: &str = "
domain: edge
descriptors:
  - key: user
    limits_from: users.csv
    rate_limit: {unit: year, requests_per_unit: 7}
";

const USERS: &str = "value,unit,requests_per_unit\nann,year,2\nbob,year,60\n";

#[test]
fn top_shows_the_rule_of_the_file_and_the_values_with_the_most_hits() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("edge.yaml");
    std::fs::write(&rules, BY_VALUE).unwrap();
    std::fs::write(folder.path().join("users.csv"), USERS).unwrap();
    let service = Tollgate::start_at(&rules, &["--top-keys", "plain"]);
    hit(&service, "user=ann", 5);
    hit(&service, "user=cid", 1);
    let terminal = Terminal::top(&admin(&service), "", "");
    terminal.wait(&["edge.user", "by value"]);
    terminal.press(&["Enter"]);
    terminal.wait(&[
        "limit     by value, 2 in /",
        "others    7 per year, fixed_window",
    ]);
    terminal.leave("others");
    terminal.press(&["Tab"]);
    terminal.wait(&["[2 Keys]", "user=ann"]);
}
