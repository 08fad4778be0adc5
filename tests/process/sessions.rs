//! Sessions: commands and what they print, in the files of `tests/process/sessions`.
//!
//! | line | meaning |
//! | --- | --- |
//! | `NAME.EXTENSION:` | begins a file, which the indented lines after it contain |
//! | `serve RULES FLAGS` | starts a service; `$GRPC`, `$HTTP`, `$ADMIN` are its addresses |
//! | indented, `$ COMMAND` | runs a command in bash, in a folder with the files |
//! | indented, after a command | its stdout, its stderr after `! `, and `? CODE` if it fails |
//! | another | a comment |
//!
//! The addresses of the second service are `$GRPC2` and so on. A time until a reset is `TIME`.
//! A command may take as long as a test waits for anything; `? 124` is a time-out.
//! `WRITE_SNAPSHOTS=1` writes what the commands print into the files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tollgate_test_support::components::repository;
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const FOLDER: &str = "tests/process/sessions";
const INDENT: &str = "    ";

/// A file that a session writes before its next command.
type NewFile = (String, String);

/// A session that runs.
struct Session {
    folder: TempDir,
    services: Vec<Tollgate>,
    /// Variables of the commands: their values in the output are shown as their names.
    variables: Vec<(String, String)>,
}

// === impl Session ===

impl Session {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            services: Vec::new(),
            variables: vec![("ROOT".to_owned(), repository().display().to_string())],
        }
    }

    fn write(&self, file: Option<NewFile>) {
        if let Some((name, text)) = file {
            let text = format!("{}\n", text.trim_end());
            fs::write(self.folder.path().join(name), text).unwrap();
        }
    }

    fn serve(&mut self, words: &str) {
        let mut words = words.split(' ');
        let rules = self.folder.path().join(words.next().unwrap());
        // Paths in flags are those of the folder.
        let path = |word: &str| match Path::new(word).extension() {
            Some(_) => self.folder.path().join(word).display().to_string(),
            None => word.to_owned(),
        };
        let flags: Vec<_> = words.map(path).collect();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let service = Tollgate::start_at(&rules, &flags);
        let number = match self.services.len() {
            0 => String::new(),
            before => (before + 1).to_string(),
        };
        for (name, address) in [
            ("GRPC", service.grpc),
            ("HTTP", service.http),
            ("ADMIN", service.admin),
        ] {
            let variable = (format!("{name}{number}"), address.to_string());
            self.variables.push(variable);
        }
        self.services.push(service);
    }

    /// What a command prints, as a session shows it.
    fn run(&self, command: &str) -> String {
        let programs = Path::new(tollgate_binary()).parent().unwrap();
        let output = Command::new("timeout")
            .args([&PATIENCE.as_secs().to_string(), "bash"])
            .args(["-o", "pipefail", "-c", command])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .envs(self.variables.iter().cloned())
            .output()
            .unwrap();
        let mut shown = String::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            shown.extend([line, "\n"]);
        }
        for line in String::from_utf8(output.stderr).unwrap().lines() {
            shown.extend(["! ", line, "\n"]);
        }
        if !output.status.success() {
            let _ = writeln!(shown, "? {}", output.status.code().unwrap());
        }
        for (name, value) in &self.variables {
            shown = shown.replace(value, &format!("${name}"));
        }
        without_times(&shown)
    }
}

/// The text with `TIME` for each time until a reset.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let words = ["resets in ", "try again in ", "\"until_seconds\":"];
        let time = words.iter().find_map(|words| {
            let (before, time) = line.split_once(words)?;
            let end = time.find(['}', '\n']).unwrap_or(time.len());
            (!time.starts_with("null")).then_some((before, words, &time[end..]))
        });
        match time {
            Some((before, words, after)) => shown.extend([before, words, "TIME", after]),
            None => shown.push_str(line),
        }
    }
    shown
}

/// Runs a session; returns its file as it should be.
fn played(text: &str) -> String {
    let mut session = Session::new();
    let mut file: Option<NewFile> = None;
    let mut after_command = false;
    let mut shown = String::new();
    for line in text.lines() {
        let inside = line.strip_prefix(INDENT);
        if let Some(command) = inside.and_then(|inside| inside.strip_prefix("$ ")) {
            session.write(file.take());
            shown.extend([line, "\n"]);
            for line in session.run(command).lines() {
                shown.extend([format!("{INDENT}{line}").trim_end(), "\n"]);
            }
            after_command = true;
        } else if inside.is_some() || line.is_empty() {
            if let Some((_, text)) = &mut file {
                text.extend([inside.unwrap_or_default(), "\n"]);
            }
            // What the command printed when the file was written.
            if !after_command {
                shown.extend([line, "\n"]);
            }
        } else {
            session.write(file.take());
            if after_command {
                shown.push('\n');
            }
            after_command = false;
            shown.extend([line, "\n"]);
            if let Some(words) = line.strip_prefix("serve ") {
                session.serve(words);
            }
            let name = line.strip_suffix(':').filter(|name| !name.contains(' '));
            file = name.map(|name| (name.to_owned(), String::new()));
        }
    }
    shown
}

fn play(name: &str) {
    let path = repository().join(FOLDER).join(format!("{name}.txt"));
    let text = fs::read_to_string(&path).unwrap();
    let played = played(&text);
    if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
        fs::write(path, played).unwrap();
        return;
    }
    for (number, (written, played)) in text.lines().zip(played.lines()).enumerate() {
        let line = number + 1;
        assert_eq!(written, played, "{FOLDER}/{name}.txt:{line}");
    }
    assert_eq!(text.len(), played.len(), "{FOLDER}/{name}.txt: its end");
}

const SESSIONS: [&str; 9] = [
    "admin",
    "check",
    "convert",
    "explain",
    "hit",
    "limits_from",
    "record",
    "serve",
    "test",
];

#[test]
fn every_session_has_a_test() {
    let files = fs::read_dir(repository().join(FOLDER)).unwrap();
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<_> = files.map(|file| stem(&file.unwrap().path())).collect();
    names.sort();
    assert_eq!(names, SESSIONS);
}

#[test]
fn admin() {
    play("admin");
}

#[test]
fn check() {
    play("check");
}

#[test]
fn convert() {
    play("convert");
}

#[test]
fn explain() {
    play("explain");
}

#[test]
fn hit() {
    play("hit");
}

#[test]
fn limits_from() {
    play("limits_from");
}

#[test]
fn record() {
    play("record");
}

#[test]
fn serve() {
    play("serve");
}

#[test]
fn test() {
    play("test");
}
