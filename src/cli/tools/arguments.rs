//! Arguments that several commands have: descriptors, rules, files, and TLS options.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use crate::admin_api::parse_entries;
use crate::cli::Exit;
use crate::cli::output::{Reported, stderr_is_coloured};
use crate::grpc_client::ClientTls;
use crate::rules::path::{ReadError, RulesPath, Source, read_all, read_one};
use crate::rules::reload::{self, LoadError, Rules};
use crate::settings::RulesSettings;
use crate::tls::ClientFiles;

/// Standard input, as an argument and in messages.
pub(super) const STDIN: (&str, &str) = ("-", "<stdin>");

/// Options that enable TLS.
pub(super) const BY_TLS: [&str; 2] = ["tls", "cacert"];

// The names are those of other clients, except for the client key: `explain --key` has another
// meaning. No option disables the verification of certificates: an unverified service may be an
// impostor.

/// TLS options: CA bundle, client certificate, server name.
#[derive(Args, Clone, Debug)]
#[command(
    next_help_heading = "TLS",
    group(ArgGroup::new("by_tls").args(BY_TLS).multiple(true))
)]
pub(super) struct TlsOptions {
    /// Connect with TLS; trusts the system roots if --cacert is not set
    #[arg(long)]
    tls: bool,

    /// CA bundle (PEM) for the service's certificate; implies --tls
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Client certificate (PEM), for a service that requires one
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_key",
        requires = "by_tls"
    )]
    client_cert: Option<PathBuf>,

    /// Private key (PEM) of --client-cert
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,

    /// Name that the service's certificate must have; default: the host of the address
    #[arg(long, value_name = "NAME", requires = "by_tls")]
    server_name: Option<String>,
}

/// One descriptor, as typed and as entries.
#[derive(Clone, Debug)]
pub(super) struct DescriptorArgument {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

/// Parses a descriptor: `key=value,key=value`, with `\,` for a comma of a value. An entry without
/// `=`, which is often a typing error, is refused: with an empty value it would ask about another
/// descriptor.
pub(super) fn parse_descriptor(text: &str) -> Result<DescriptorArgument, String> {
    let pairs = parse_entries(text).map_err(|entry| {
        if entry.starts_with('=') {
            return format!("the entry {entry:?} has no key; write KEY=VALUE,KEY=VALUE");
        }
        format!(
            "the entry {entry:?} has no `=`; write KEY=VALUE,KEY=VALUE, KEY= for an empty value, or \\, for a comma of a value"
        )
    })?;
    let text = text.to_owned();
    Ok(DescriptorArgument { text, pairs })
}

/// Loads rules as `serve` would, and prints their warnings, or all errors.
pub(super) fn load_rules(rules: &Path, settings: &RulesSettings) -> anyhow::Result<Rules> {
    match reload::load(&RulesPath::Path(rules.to_owned()), settings.into()) {
        Ok(rules) => {
            for warning in &rules.loaded.warnings {
                eprintln!("{}\n", warning.render(stderr_is_coloured()));
            }
            Ok(rules)
        }
        Err(LoadError::Diagnostics(report)) => {
            eprintln!("{}\n", report.render(stderr_is_coloured()));
            eprintln!("error: the rules are invalid");
            Err(Reported(Exit::Failure).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Why flags are no settings, in one line.
pub(super) fn settings_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_owned()
}

/// Reads a file, or standard input.
pub(super) fn read_file(path: &Path) -> Result<Source, ReadError> {
    if path == Path::new(STDIN.0) {
        return read_all(Path::new(STDIN.1), std::io::stdin().lock());
    }
    read_one(path)
}

// === impl TlsOptions ===

impl TlsOptions {
    /// TLS of the connection; none if it is plain.
    pub(super) fn tls(&self) -> Option<ClientTls> {
        (self.tls || self.cacert.is_some()).then(|| self.https())
    }

    /// TLS of an address whose scheme is https.
    pub(super) fn https(&self) -> ClientTls {
        ClientTls {
            files: ClientFiles {
                ca_bundle: self.cacert.clone(),
                identity: self.client_cert.clone().zip(self.client_key.clone()),
                ca_setting: "--cacert FILE",
            },
            name: self.server_name.clone(),
        }
    }
}
