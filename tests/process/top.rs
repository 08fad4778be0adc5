//! `tollgate top` in a real terminal of 80 columns and 24 lines: tmux. Its screens are captured.

use std::process::Command;
use std::time::Duration;

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::admin_commands::{LIMITS, admin, hit};

/// A tmux server with one window. It ends when this is dropped.
pub(crate) struct Terminal {
    directory: tempfile::TempDir,
}

impl Terminal {
    /// Runs a shell command in a terminal of this size.
    fn start(width: u16, height: u16, command: &str) -> Self {
        let terminal = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            command,
        ]);
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

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.directory.path().join("socket"))
            .args(arguments)
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .output()
            .expect("tmux is missing; run `make deps`");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines of the screen.
    fn screen(&self) -> Vec<String> {
        let screen = self.tmux(&["capture-pane", "-p"]);
        screen.lines().map(str::to_owned).collect()
    }

    /// The screen with its escape sequences for styles.
    fn styled(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    pub(crate) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits for a screen with these words.
    pub(crate) fn wait(&self, words: &[&str]) -> Vec<String> {
        let found = wait_for(PATIENCE, || {
            let screen = self.screen();
            let text = screen.join("\n");
            words
                .iter()
                .all(|words| text.contains(words))
                .then_some(screen)
        });
        found.unwrap_or_else(|| panic!("{words:?} is not on:\n{}", self.screen().join("\n")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.directory.path().join("socket");
        // It may have ended already.
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
    }
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
    let screen = terminal.wait(&["2 of 2 replicas", "edge.user", "edge.team"]);
    assert_eq!(screen.len(), 24);
    assert!(
        masked(&screen[0]).starts_with(" tollgate top  9 of 9 replicas  "),
        "{screen:?}"
    );
    assert_eq!(screen[1], "");
    assert_eq!(
        screen[2],
        "[1 Rules] 2 Keys  3 Partitions  4 Replicas   by over/s"
    );
    assert_eq!(
        screen[3],
        " RULE                       OVER/S  PASS/S    OVER LIMIT            MODE"
    );
    let user = screen
        .iter()
        .find(|line| line.contains("edge.user"))
        .unwrap();
    assert!(user.ends_with("      6 2 per hour"), "{user}");
    assert!(
        screen[23].starts_with(" ? help  q quit  tab view"),
        "{screen:?}"
    );

    terminal.press(&["Tab"]);
    let screen = terminal.wait(&["[2 Keys]", "user=a", "team=値"]);
    assert_eq!(
        screen[3],
        " KEY                    RULE                    REFUSED    ASKED  ERROR SINCE"
    );
    assert_eq!(
        masked(&screen[4]),
        ">user=a                 edge.user                     9       99      9 99:99:99",
        "{screen:?}"
    );
    terminal.press(&["Enter"]);
    let screen = terminal.wait(&["the last", "OVER_LIMIT over_limit remaining=0"]);
    let text = screen.join("\n");
    for part in [
        "key       user=a",
        "limit     2 per hour, fixed_window",
        "refused   6 of 10 asked",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    terminal.press(&["Escape"]);
    terminal.wait(&[">user=a"]);
    terminal.press(&["w"]);
    terminal.wait(&["by refused 1h", ">user=a"]);

    terminal.press(&["3"]);
    let screen = terminal.wait(&["[3 Partitions]", "BUCKETS"]);
    let rows = screen
        .iter()
        .filter(|line| line.contains("http://127.0.0.1:"))
        .count();
    assert_eq!(rows, 4, "{screen:?}");
    terminal.press(&["4"]);
    let screen = terminal.wait(&["[4 Replicas]", "memory"]);
    let rows: Vec<_> = screen
        .iter()
        .filter(|line| line.contains("http://127.0.0.1:"))
        .collect();
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|row| row.contains(" ready ") && row.contains("2 (gen. 1)")),
        "{rows:?}"
    );
    terminal.press(&["?"]);
    terminal.wait(&["pause the screen, and go on"]);
    terminal.press(&["Escape"]);

    // Smaller and larger.
    terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    terminal.press(&["1"]);
    let screen = wait_for(PATIENCE, || {
        let screen = terminal.screen();
        (screen.len() == 40 && screen[39].contains("? help")).then_some(screen)
    });
    assert!(screen.is_some(), "{:?}", terminal.screen());
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
            .stderr(std::process::Stdio::null());
        tollgate_test_support::child_process::KillOnDrop(command.spawn_tied().unwrap())
    };
    let service = start();
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["1 of 1 replicas", "edge.user"]);
    drop(service);
    let screen = terminal.wait(&["0 of 1 replicas", "LOST for ", "no replica is connected"]);
    assert!(screen[1].contains(&url), "{screen:?}");
    // The time since then grows.
    terminal.wait(&["LOST for 2 s"]);
    let _service = start();
    let screen = terminal.wait(&["1 of 1 replicas", "edge.user"]);
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
    // tmux names the shell; its child is the program.
    let shell = terminal.tmux(&["list-panes", "-F", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let id = children.split_whitespace().next().expect("the program");
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", id])
            .status()
            .unwrap()
            .success()
    );
    terminal.wait(&["exit 0", "after"]);
}

#[test]
fn a_screen_needs_a_terminal_that_can_show_it() {
    let service = Tollgate::start(LIMITS, &[]);
    let url = admin(&service);
    let (code, stdout, stderr) = crate::commands::tollgate(&["top", "--admin", &url]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("set --once"), "{stderr}");
    let terminal = Terminal::top(&url, "TERM=dumb", "");
    terminal.wait(&["(TERM=dumb) cannot show the screen; set --once", "exit 1"]);
    // Ctrl-C quits, and so does a closed terminal.
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["edge.user"]);
    terminal.press(&["C-c"]);
    terminal.wait(&["exit 0", "after"]);
    let terminal = Terminal::top(&url, "", "");
    terminal.wait(&["edge.user"]);
    let shell = terminal.tmux(&["list-panes", "-F", "#{pane_pid}"]);
    let shell = shell.trim().to_owned();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let id: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
    drop(terminal);
    let gone = || (!std::path::Path::new(&format!("/proc/{id}")).exists()).then_some(());
    assert!(
        wait_for(Duration::from_secs(20), gone).is_some(),
        "{id} still runs"
    );
}
