//! The package's life by the commands of its guide: installed, asked, changed, upgraded, removed,
//! purged.
//!
//! How: every fenced block of the page that is a command is run in order of its headings, in a
//! shell. What a running systemd would start, reload and stop, the test does (`installed_unit`).
//!
//! What it deliberately does not do: run `make package`, whose package these tests have already.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::polling::until;

use crate::debian::installed_unit::{Service, UNIT, Unit};
use crate::debian::machine::{alone, run, run_to_code};
use crate::debian::package::{NEWER_LINE, NEWER_VERSION, Packages};

const GUIDE: &str = "docs/guides/debian.md";
const RULES: &str = "/etc/tollgate/rules/example.yaml";
const SETTINGS: &str = "/etc/default/tollgate";

/// The guide, the packages that it names, and the service.
struct Operator<'p> {
    guide: String,
    packages: &'p Packages,
    service: Option<Service>,
}

// === impl Operator ===

impl<'p> Operator<'p> {
    fn new(packages: &'p Packages) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self {
            guide: fs::read_to_string(root.join(GUIDE)).expect("the guide"),
            packages,
            service: None,
        }
    }

    /// The fenced blocks under a heading.
    fn blocks(&self, heading: &str) -> Vec<String> {
        let (_, section) = self
            .guide
            .split_once(&format!("\n## {heading}\n"))
            .unwrap_or_else(|| panic!("no heading {heading}"));
        let section = section.split("\n## ").next().expect("a section");
        let blocks = section.split("```text\n").skip(1);
        let blocks = blocks.map(|block| block.split("```").next().expect("a block").to_owned());
        blocks.collect()
    }

    /// Runs the commands under a heading, which must end with these exit codes. Returns the output
    /// of the last one.
    fn follow(&mut self, heading: &str, codes: &[i32]) -> String {
        let blocks = self.blocks(heading).into_iter();
        // Other blocks are files.
        let blocks: Vec<_> = blocks.filter(|block| !block.starts_with('[')).collect();
        let commands = blocks.iter().flat_map(|block| block.lines());
        let ended: Vec<_> = commands.map(|command| self.run(command)).collect();
        let found: Vec<_> = ended.iter().map(|(code, _)| *code).collect();
        assert_eq!(found, codes, "{heading}: {ended:?}");
        ended.into_iter().next_back().expect("a command").1
    }

    /// Runs a command. `apt` answers its own questions, and starts and stops the service as the
    /// maintainer scripts do where systemd runs.
    fn run(&mut self, command: &str) -> (i32, String) {
        match command {
            "make package" | "systemctl daemon-reload" => return (0, String::new()),
            "systemctl reload tollgate" => {
                self.service.as_mut().expect("a service").reload();
                return (0, String::new());
            }
            "systemctl restart tollgate" => {
                self.restart();
                return (0, String::new());
            }
            _ => {}
        }
        let Some(action) = command.strip_prefix("apt ") else {
            return run_to_code(Command::new("sh").args(["-ec", command]));
        };
        if action.starts_with("remove")
            && let Some(service) = self.service.take()
        {
            service.stop();
        }
        let folder = "./target/debian/tollgate_";
        let path = |path: &Path| path.display().to_string();
        let action = action
            .replace(
                &format!("{folder}0.1.0-1_amd64.deb"),
                &path(&self.packages.current),
            )
            .replace(
                &format!("{folder}0.2.0-1_amd64.deb"),
                &path(&self.packages.newer),
            );
        assert!(!action.contains(folder), "{action}");
        let apt = "apt-get --yes --option Dpkg::Options::=--force-confold";
        let ended = run_to_code(Command::new("sh").args(["-ec", &format!("{apt} {action}")]));
        if action.starts_with("install") && ended.0 == 0 {
            self.restart();
        }
        ended
    }

    fn restart(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop();
        }
        self.service = Some(Unit::read().start());
    }
}

/// The limit of the installed example rules, as `hit` prints it.
fn limit(value: &str) -> String {
    let descriptor = format!("generic_key={value}");
    let (code, said) = run_to_code(Command::new("tollgate").args([
        "hit",
        "127.0.0.1:8081",
        "example",
        &descriptor,
    ]));
    assert_eq!(code, 0, "{said}");
    said
}

/// Every file and folder that a package could have, without logs and caches of dpkg, apt and
/// systemctl.
fn files() -> BTreeSet<String> {
    let listed = run(Command::new("find").args([
        "/etc", "/usr", "/var", "/opt", "/srv", "/run", "/home", "-xdev",
    ]));
    let own = [
        "/var/lib/dpkg/",
        "/var/lib/apt/",
        "/var/log/",
        "/var/cache/",
        "/run/systemd",
    ];
    let listed = listed.lines().map(str::to_owned);
    let listed = listed.filter(|path| !own.iter().any(|folder| path.starts_with(folder)));
    listed.collect()
}

fn replace(path: &str, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect(path);
    assert!(text.contains(from), "{path}: {text}");
    fs::write(path, text.replace(from, to)).expect(path);
}

fn version() -> String {
    run(Command::new("dpkg-query").args(["-W", "-f=${Version}", "tollgate"]))
}

#[test]
fn the_guide_installs_changes_upgrades_removes_and_purges_the_package() {
    alone(|packages| {
        let before = files();
        let mut operator = Operator::new(packages);

        // Installed: enabled, complete, valid for systemd. It answers.
        let said = operator.follow("Install", &[0, 0, 3]);
        assert_eq!(said.lines().count(), 11, "{said}");
        let enabled = run(Command::new("systemctl").args(["is-enabled", "tollgate"]));
        assert_eq!(enabled.trim(), "enabled");
        run(Command::new("systemd-analyze").args(["verify", "--man=no", UNIT]));
        installed_files_are_complete(&before);

        // Changed rules are checked and read.
        replace(RULES, "requests_per_unit: 10", "requests_per_unit: 7");
        operator.follow("Change the rules", &[0, 0]);
        until("the changed rules are in use", || {
            if limit("a").contains(" of 7 per minute") {
                Ok(())
            } else {
                Err(Service::log())
            }
        });

        // A setting applies after a restart.
        replace(SETTINGS, "LOG_LEVEL=info", "LOG_LEVEL=debug");
        operator.follow("Change a setting", &[0]);
        assert!(Service::log().contains("DEBUG"), "{}", Service::log());

        // Upgraded: edited files stay, and the newer version of the rules lies beside them.
        operator.follow("Upgrade", &[0]);
        assert_eq!(version(), format!("{NEWER_VERSION}-1"));
        assert!(
            fs::read_to_string(RULES)
                .unwrap()
                .contains("requests_per_unit: 7")
        );
        assert!(
            fs::read_to_string(SETTINGS)
                .unwrap()
                .contains("LOG_LEVEL=debug")
        );
        let newer = fs::read_to_string(format!("{RULES}.dpkg-dist")).unwrap();
        assert!(newer.starts_with(NEWER_LINE), "{newer}");
        assert!(limit("b").contains("6 left of 7 per minute"));

        // Removed: only configuration is left. Purged: nothing is.
        let [remove, purge] = &operator.blocks("Remove")[..] else {
            panic!("two blocks");
        };
        let (code, said) = operator.run(remove.trim());
        assert_eq!(code, 0, "{said}");
        for (path, is_left) in [
            ("/usr/bin/tollgate", false),
            (UNIT, false),
            (RULES, true),
            (SETTINGS, true),
        ] {
            assert_eq!(Path::new(path).exists(), is_left, "{path}");
        }
        let (code, said) = operator.run(purge.trim());
        assert_eq!(code, 0, "{said}");
        let after = files();
        let left: Vec<_> = after.difference(&before).collect();
        assert!(left.is_empty(), "{left:?}");
        let lost: Vec<_> = before.difference(&after).collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}

/// The files of the guide's table are installed, with man pages and completions of each command.
fn installed_files_are_complete(before: &BTreeSet<String>) {
    let added: BTreeSet<_> = files().difference(before).cloned().collect();
    for path in [
        "/usr/bin/tollgate",
        RULES,
        SETTINGS,
        UNIT,
        "/usr/share/man/man1/tollgate.1.gz",
        "/usr/share/man/man1/tollgate-serve.1.gz",
        "/usr/share/man/man1/tollgate-hit.1.gz",
        "/usr/share/bash-completion/completions/tollgate",
        "/usr/share/zsh/vendor-completions/_tollgate",
        "/usr/share/fish/vendor_completions.d/tollgate.fish",
        "/usr/share/doc/tollgate/copyright",
        "/usr/share/doc/tollgate/changelog.gz",
        "/usr/share/doc/tollgate/changelog.Debian.gz",
    ] {
        assert!(added.contains(path), "{path} in {added:?}");
    }
    let conffiles = run(Command::new("dpkg-query").args(["-W", "-f=${Conffiles}", "tollgate"]));
    let conffiles = conffiles
        .lines()
        .filter_map(|line| line.trim().split(' ').next());
    let conffiles: BTreeSet<_> = conffiles.filter(|path| !path.is_empty()).collect();
    assert_eq!(conffiles, BTreeSet::from([RULES, SETTINGS]));
}

#[test]
fn certificates_are_passed_as_credentials() {
    alone(|packages| {
        run(Command::new("dpkg").arg("-i").arg(&packages.current));
        let mut operator = Operator::new(packages);
        let authority = Authority::new("tollgate");
        let secret = Secret::new(&authority.signs(&["limits.example"]), &authority.pem);
        fs::create_dir_all("/etc/tollgate/tls").unwrap();
        for name in ["tls.crt", "tls.key"] {
            let file = format!("/etc/tollgate/tls/{name}");
            fs::copy(secret.path(name), &file).unwrap();
            run(Command::new("chmod").args(["600", &file]));
        }
        let drop_ins = Path::new("/etc/systemd/system/tollgate.service.d");
        fs::create_dir_all(drop_ins).unwrap();
        let blocks = operator.blocks("TLS files");
        assert!(blocks[0].starts_with("[Service]\n"), "{blocks:?}");
        fs::write(drop_ins.join("tls.conf"), &blocks[0]).unwrap();
        run(Command::new("systemd-analyze").args(["verify", "--man=no", UNIT]));
        operator.follow("TLS files", &[0, 0]);
        let ca = secret.file("ca.crt");
        let hit = ["hit", "127.0.0.1:8081", "example", "generic_key=a"];
        let plain = run_to_code(Command::new("tollgate").args(hit));
        assert_eq!(plain.0, 4, "{}", plain.1);
        let by_tls = ["--cacert", &ca, "--server-name", "limits.example"];
        let said = run(Command::new("tollgate").args(hit).args(by_tls));
        assert!(said.starts_with("OK "), "{said}");
        operator.service.take().expect("a service").stop();
    });
}
