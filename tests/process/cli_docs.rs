//! Shell completions and man pages: real shells load and complete, `man` renders without warnings.
//!
//! `make deps` installs the shells and man.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use tollgate_test_support::tollgate_process::tollgate_binary;

#[path = "../../examples/cli_docs.rs"]
mod generator;

fn generated() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    generator::write(folder.path()).unwrap();
    folder
}

/// Runs a program whose absence is a failure: `make deps` installs it.
fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; run `make deps`"));
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{command:?}: {stdout}{stderr}");
    assert_eq!(stderr, "", "{command:?}");
    stdout
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn files_have_the_names_that_debian_loads() {
    let folder = generated();
    let completions = names(&folder.path().join("completions"));
    assert_eq!(completions, ["_tollgate", "tollgate", "tollgate.fish"]);
    let pages = names(&folder.path().join("man"));
    let commands = [
        "",
        "-check",
        "-completions",
        "-decisions",
        "-explain",
        "-hit",
        "-override",
        "-override-set",
        "-reset",
        "-schema",
        "-serve",
        "-shadow",
        "-tap",
        "-test",
        "-top",
    ];
    for command in commands {
        let page = format!("tollgate{command}.1");
        assert!(pages.contains(&page), "{page}: {pages:?}");
    }
    // A second run replaces the files of an earlier one.
    fs::write(folder.path().join("man/old.1"), "").unwrap();
    generator::write(folder.path()).unwrap();
    assert_eq!(names(&folder.path().join("man")), pages);
}

#[test]
fn the_command_prints_the_completions_of_the_package() {
    let folder = generated();
    let printed = |shell| run(Command::new(tollgate_binary()).args(["completions", shell]));
    for (shell, name) in [
        ("bash", "tollgate"),
        ("zsh", "_tollgate"),
        ("fish", "tollgate.fish"),
    ] {
        let file = fs::read_to_string(folder.path().join("completions").join(name)).unwrap();
        assert!(printed(shell) == file, "{shell}");
    }
    for shell in ["elvish", "powershell"] {
        assert!(printed(shell).contains("drain-delay"), "{shell}");
    }
}

#[test]
fn bash_completes_a_flag_and_a_value() {
    let folder = generated();
    let script = r#"
        source "$1"
        complete_words() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _tollgate tollgate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[@]}"
        }
        complete -p tollgate >/dev/null
        complete_words tollgate serve --drain-d
        complete_words tollgate serve --log-format js
        complete_words tollgate che
    "#;
    let file = folder.path().join("completions/tollgate");
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-eu", "-c", script, "bash"]).arg(file);
    assert_eq!(run(&mut bash), "--drain-delay\njson\ncheck\n");
}

#[test]
fn fish_completes_a_flag_and_a_value() {
    let folder = generated();
    let script = "source $argv[1]
        complete -C 'tollgate serve --drain-d'
        complete -C 'tollgate serve --log-format js'
        complete -C 'tollgate che'";
    let home = tempfile::tempdir().unwrap();
    let mut fish = Command::new("fish");
    fish.args(["--no-config", "-c", script])
        .arg(folder.path().join("completions/tollgate.fish"))
        .env("HOME", home.path());
    let completed = run(&mut fish);
    let found: Vec<_> = completed
        .lines()
        .map(|line| line.split('\t').next())
        .collect();
    assert_eq!(
        found,
        [Some("--drain-delay"), Some("json"), Some("check")],
        "{completed}"
    );
}

/// zsh completes in a terminal only, so one zsh types into another one on a pseudo-terminal. What
/// it shows is read until a mark that the inner zsh prints.
#[test]
fn zsh_completes_a_flag_and_a_value() {
    let folder = generated();
    let script = r#"
        zmodload zsh/zpty
        zpty inner "zsh -f -i"
        zpty -w inner "PS1='' PS2='' TERM=dumb; unsetopt prompt_cr prompt_sp zle_bracketed_paste; fpath=($1 \$fpath)"
        zpty -w inner "autoload -Uz compinit && compinit -u -d $2/dump && bindkey '^I' expand-or-complete"
        zpty -w inner "tollgate() { print -r -- \"typed <\$*>\" }"
        for words in "serve --drain-d" "serve --log-format js" "chec"; do
            zpty -w -n inner "tollgate $words"$'\t'$'\n'
        done
        zpty -w inner "print -r -- e''nd"
        zpty -r -m inner shown "*end*"
        print -r -- "$shown"
        zpty -d inner
    "#;
    let home = tempfile::tempdir().unwrap();
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", script, "zsh"])
        .arg(folder.path().join("completions"))
        .arg(home.path())
        .env("HOME", home.path())
        .env("TERM", "dumb");
    let shown = run(&mut zsh);
    for typed in ["serve --drain-delay", "serve --log-format json", "check"] {
        assert!(
            shown.contains(&format!("typed <{typed}>")),
            "{typed}: {shown}"
        );
    }
}

#[test]
fn man_renders_every_page_without_warnings() {
    let folder = generated();
    for page in names(&folder.path().join("man")) {
        let mut man = Command::new("man");
        man.args(["--warnings=w", "--pager=cat", "-l"])
            .arg(folder.path().join("man").join(&page))
            .env("MANWIDTH", "100");
        let shown = run(&mut man);
        let name = page.trim_end_matches(".1");
        assert!(shown.contains(name), "{page}: {shown}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
            assert!(
                shown.contains(&format!("\n{section}\n")),
                "{page}: {section}: {shown}"
            );
        }
        if name == "tollgate-serve" {
            for part in [
                "LISTENERS",
                "SHARED STORE",
                "--drain-delay",
                "TOLLGATE_DRAIN_DELAY",
            ] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
    }
}
