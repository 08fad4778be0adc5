//! The installed unit: its settings, and the process that systemd would start.
//!
//! How: it reads the unit and its drop-ins, and does what `Environment`, `EnvironmentFile`,
//! `LoadCredential`, `RuntimeDirectory`, `ExecStart` and `ExecReload` say. The process runs as an
//! unprivileged user without capabilities, as with `DynamicUser` and an empty bounding set.
//!
//! What it deliberately does not do: apply the sandbox.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command};

use tollgate_test_support::child_process::KillOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;

use crate::debian::machine::run;

/// Where the package has the unit, and where drop-ins of the operator are.
pub(crate) const UNIT: &str = "/usr/lib/systemd/system/tollgate.service";
const DROP_INS: &str = "/etc/systemd/system/tollgate.service.d";

/// User and group of the process, from the range that systemd uses for `DynamicUser`.
const USER: u32 = 61_234;

const CREDENTIALS: &str = "/run/credentials/tollgate.service";
const LOG: &str = "/tmp/tollgate.log";

/// The settings of the unit, in order.
pub(crate) struct Unit(Vec<(String, String)>);

/// The running service.
pub(crate) struct Service {
    process: KillOnDrop,
    reload: String,
}

// === impl Unit ===

impl Unit {
    pub(crate) fn read() -> Self {
        let mut files = vec![UNIT.into()];
        if let Ok(drop_ins) = fs::read_dir(DROP_INS) {
            files.extend(drop_ins.map(|file| file.expect("a file").path()));
        }
        files.sort();
        let texts = files
            .iter()
            .map(|file| fs::read_to_string(file).expect("a unit"));
        let texts: Vec<_> = texts.collect();
        let lines = texts.iter().flat_map(|text| text.lines());
        let lines = lines.filter(|line| !line.starts_with('#'));
        let settings = lines.filter_map(|line| line.split_once('='));
        let owned = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(owned.collect())
    }

    fn all<'u>(&'u self, name: &str) -> impl Iterator<Item = &'u str> {
        let settings = self.0.iter().filter(move |(key, _)| key == name);
        settings.map(|(_, value)| value.as_str())
    }

    /// The only value of a setting.
    pub(crate) fn only(&self, name: &str) -> &str {
        let values: Vec<_> = self.all(name).collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values[0]
    }

    /// Variables of the process: those of the unit, then those of its file.
    fn variables(&self) -> Vec<(String, String)> {
        let file = self.only("EnvironmentFile");
        let file = fs::read_to_string(file.trim_start_matches('-')).unwrap_or_default();
        let lines = file.lines().filter(|line| !line.starts_with('#'));
        let lines = self.all("Environment").chain(lines);
        let variables = lines.filter_map(|line| line.split_once('='));
        let owned = variables.map(|(name, value)| (name.into(), value.replace("%d", CREDENTIALS)));
        owned.collect()
    }

    /// Starts the service and waits until it is ready.
    pub(crate) fn start(&self) -> Service {
        let own = |path: &str| chown(path, Some(USER), Some(USER)).expect("its owner");
        for setting in self.all("LoadCredential") {
            let (name, file) = setting.split_once(':').expect("a name and a file");
            fs::create_dir_all(CREDENTIALS).expect("a folder");
            let credential = format!("{CREDENTIALS}/{name}");
            fs::copy(file, &credential).expect("a credential");
            own(&credential);
        }
        let folder = format!("/run/{}", self.only("RuntimeDirectory"));
        fs::create_dir_all(&folder).expect("a folder");
        own(&folder);
        let log = fs::File::create(LOG).expect("a log");
        let child = Command::new("setpriv")
            .arg(format!("--reuid={USER}"))
            .arg(format!("--regid={USER}"))
            .args(["--clear-groups", "--no-new-privs"])
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .args(self.only("ExecStart").split(' '))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin")
            .envs(self.variables())
            .stderr(log)
            .spawn_tied();
        let service = Service {
            process: KillOnDrop(child.expect("setpriv runs")),
            reload: self.only("ExecReload").to_owned(),
        };
        let address = "127.0.0.1:8080".parse().expect("an address");
        until("the service is ready", || {
            // The port may not be open yet.
            if TcpStream::connect(address).is_ok() && http(address, "GET", "/readyz", "").0 == 200 {
                Ok(())
            } else {
                Err(Service::log())
            }
        });
        service
    }
}

// === impl Service ===

impl Service {
    pub(crate) fn log() -> String {
        fs::read_to_string(LOG).expect("a log")
    }

    fn process(&mut self) -> &mut Child {
        &mut self.process.0
    }

    /// What `systemctl reload` runs.
    pub(crate) fn reload(&mut self) {
        let id = self.process().id().to_string();
        let command = self.reload.replace("$MAINPID", &id);
        run(Command::new("sh").args(["-c", &command]));
    }

    /// What `systemctl stop` does.
    pub(crate) fn stop(mut self) {
        let id = self.process().id().to_string();
        run(Command::new("kill").args(["-TERM", &id]));
        let status = until("the service ends", || {
            let status = self.process().try_wait().expect("its status");
            status.ok_or_else(Self::log)
        });
        assert!(status.success(), "{}", Self::log());
        // systemd removes them.
        let _ = fs::remove_dir_all("/run/tollgate");
        let _ = fs::remove_dir_all(Path::new(CREDENTIALS));
    }
}
