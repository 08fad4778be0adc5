//! What `serve`, `hit` and `tap` show on a terminal only.

use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::admin_commands::{LIMITS, admin};
use crate::process::top::Terminal;

/// Green and red, as tmux writes them.
const PASSED: &str = "\u{1b}[32mOK";
const REFUSED: &str = "\u{1b}[31mOVER";

#[test]
fn ctrl_c_says_how_to_end_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, LIMITS).unwrap();
    // The shell goes on after Ctrl-C. Without the second one the stop would take ten minutes.
    let command = format!(
        "trap : INT; {} serve {} --grpc-host 127.0.0.1 --grpc-port 0 --host 127.0.0.1 --port 0 \
         --debug-port 0 --drain-delay 10m; echo \"exit $?\"; exec sleep 600",
        tollgate_binary(),
        rules.display()
    );
    let terminal = Terminal::start(120, 24, &command);
    terminal.wait(&["1 domain"]);
    terminal.press(&["C-c"]);
    terminal.wait(&["draining connections; press Ctrl-C again to end at once"]);
    terminal.press(&["C-c"]);
    terminal.wait(&["exit 0"]);
}

#[test]
fn hit_and_tap_colour_verdicts() {
    let service = Tollgate::start(LIMITS, &[]);
    let (binary, grpc, admin) = (tollgate_binary(), service.grpc, admin(&service));
    let open = |variables: &str, streams: u64| {
        let command = format!("{variables} {binary} tap --admin {admin}");
        let terminal = Terminal::start(120, 24, &command);
        until("the stream is open", || {
            service.metric("tollgate_event_streams") == streams
        });
        terminal
    };
    let (tap, plain) = (open("", 1), open("NO_COLOR=1", 2));
    let hit = format!("{binary} hit {grpc} edge user=ann --repeat 3; exec sleep 600");
    let hit = Terminal::start(120, 24, &hit);
    for (terminal, is_coloured) in [(&hit, true), (&tap, true), (&plain, false)] {
        terminal.wait(&["OK", "OVER"]);
        let styled = terminal.styled();
        for coloured in [PASSED, REFUSED] {
            assert_eq!(styled.contains(coloured), is_coloured, "{styled:?}");
        }
    }
}
