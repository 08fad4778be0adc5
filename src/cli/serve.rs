//! `tollgate serve [RULES]`: runs the service until a signal.
//!
//! What it deliberately does not do: connect parts (`app`) or daemonise. Process supervision is
//! left to the caller.

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::Context as _;
use clap::CommandFactory as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use super::output::counted;
use super::{Exit, logging};
use crate::admin::LogLevelSwitch;
use crate::app::{App, Listeners};
use crate::clock::SystemClock;
use crate::pipeline::Generation;
use crate::settings::{
    ConfigType, EnvironmentVariables, GrpcTlsSettings, LogFormat, OTEL_VARIABLES, REDIS_VARIABLES,
    Settings, reference_variables, unknown_variables, word,
};
use crate::store::{StoreHealth, StoreStart};
use tollgate_limiter::{Rule, Values};

/// Printed by `serve` without rules: five lines, the last of which works.
const NO_RULES_HELP: &str = "\
error: no rules: RULES, TOLLGATE_RULES and RUNTIME_ROOT are not set.
A rules file limits requests by domain and descriptor. Save this one as rules.yaml:
  {domain: edge, descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}]}
Then start the service with it, or with a directory of rules files:
  tollgate serve rules.yaml";

/// The runtime polls for I/O after this many task polls. Most often fewer tasks are ready, and then
/// it polls at once.
const EVENT_INTERVAL: u32 = 2;

/// Serves until SIGTERM or SIGINT; a second one ends the process at once. SIGHUP reloads the rules.
pub(super) fn run(settings: Settings) -> anyhow::Result<Exit> {
    let from_files = settings.xds.config_type == ConfigType::File;
    let path = settings.rules.path(settings.rules_path.as_deref());
    let no_rules = from_files && path.is_none();
    if no_rules && !settings.force_start_without_initial_config {
        logging::report(settings.log_format, "no rules are set", NO_RULES_HELP);
        return Ok(Exit::Usage);
    }
    let log_level = logging::init(&settings);
    for warning in variable_warnings() {
        tracing::warn!("{warning}");
    }
    raise_descriptor_limit();
    let mut settings = settings;
    settings.store.reference =
        EnvironmentVariables::read(REDIS_VARIABLES, |name| std::env::var(name).ok());
    settings.tracing.otel =
        EnvironmentVariables::read(OTEL_VARIABLES, |name| std::env::var(name).ok());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // When connections keep every thread busy, new bytes are noticed after this many task
        // polls.
        .event_interval(EVENT_INTERVAL)
        .build()
        .context("cannot start the runtime")?;
    let exit = runtime.block_on(serve(settings, log_level));
    // Not dropped: that would wait for reads of rules that may block for ever.
    runtime.shutdown_background();
    exit
}

async fn serve(settings: Settings, log_level: LogLevelSwitch) -> anyhow::Result<Exit> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let listeners = Listeners::bind(&settings).await?;
    let announce = start_line(&listeners, &settings);
    let mut app = App::build(settings, listeners, Arc::new(SystemClock::new()))?;
    let store = Arc::clone(&app.parts.store);
    app.log_level = Some(log_level);
    let (reload, reloads) = mpsc::channel(1);
    let (stop, mut is_stopping) = (Notify::new(), false);
    let started = |rules: &Generation| announce(rules, store.health());
    let mut running = std::pin::pin!(app.run(started, reloads, stop.notified()));
    loop {
        tokio::select! {
            ended = &mut running => {
                ended?;
                return Ok(Exit::Success);
            }
            _ = hang_up.recv() => {
                // A reload that is already queued is enough.
                let _ = reload.try_send(());
                continue;
            }
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {
                if !is_stopping && std::io::stderr().is_terminal() {
                    eprintln!("draining connections; press Ctrl-C again to end at once");
                }
            }
        }
        if std::mem::replace(&mut is_stopping, true) {
            return Ok(Exit::Success);
        }
        stop.notify_one();
    }
}

/// Warnings about variables that have no effect.
fn variable_warnings() -> Vec<String> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set: Vec<String> = set.collect();
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let cli = super::Cli::command();
    let arguments = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    let settings = arguments.filter_map(|setting| setting.get_env()?.to_str());
    let settings: Vec<&str> = settings.collect();
    let mut warnings = reference_variables::warnings(set.iter().copied());
    warnings.extend(unknown_variables::warnings(&set, &settings));
    warnings
}

/// Writes the line that says what started, once there are rules, whatever the log level. As text, a
/// command to try follows.
fn start_line(
    listeners: &Listeners,
    settings: &Settings,
) -> impl FnOnce(&Generation, Option<StoreHealth>) + use<> {
    let version = env!("CARGO_PKG_VERSION");
    let format = settings.log_format;
    let address = |listener: &TcpListener| {
        let address = listener.local_addr();
        address.map_or_else(|error| error.to_string(), |address| address.to_string())
    };
    let admin = listeners.admin.as_ref().map_or("none".to_owned(), address);
    let mut addresses = vec![
        ("gRPC", listeners.grpc.display_address()),
        ("HTTP", address(&listeners.http)),
        ("admin", admin),
    ];
    let prometheus = listeners.prometheus.as_ref();
    addresses.extend(prometheus.map(|listener| ("metrics", address(listener))));
    let ingresses = listeners.ingresses.iter();
    addresses.extend(ingresses.map(|(ingress, listener)| (ingress.name(), address(listener))));
    // `hit` does not support unix sockets.
    let reachable = listeners.grpc.address().map(|address| {
        let address = address.to_string();
        let address = address.replace("0.0.0.0", "127.0.0.1");
        address.replace("[::]", "[::1]")
    });
    let mode = word(&settings.store.store_mode);
    let hit_options = hit_tls_options(&settings.grpc_tls);
    let source = match settings.xds.config_type {
        ConfigType::File => "file",
        ConfigType::GrpcXdsSotw => "resource",
    };
    move |generation, store| {
        let (sources, domains) = (generation.sources, generation.rules.domain_count());
        let limits = generation.rules.written_rules().count();
        if format == LogFormat::Json {
            let mut fields = serde_json::Map::new();
            let mut field = |name: &str, value: serde_json::Value| {
                fields.insert(name.to_owned(), value);
            };
            field("version", version.into());
            for (port, address) in addresses {
                field(&port.to_ascii_lowercase(), address.into());
            }
            field(&format!("{source}s"), sources.into());
            field("domains", domains.into());
            field("limits", limits.into());
            if store.is_some() {
                field("store_mode", mode.into());
            }
            let store = store.map_or("memory".to_owned(), |store| store.address);
            field("store", store.into());
            return logging::announce("tollgate started", fields);
        }
        let addresses = addresses.iter();
        let addresses = addresses.map(|(port, address)| format!("{port} {address}"));
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let (sources, domains) = (counted(sources, source), counted(domains, "domain"));
        let limits = counted(limits, "limit");
        let store = store.map_or("memory".to_owned(), |store| {
            let state = match store.start {
                // The connection is made beside the start. What fails is logged.
                StoreStart::Connecting | StoreStart::Used => "",
                StoreStart::Failed => ", not reached yet",
            };
            format!("{}, {mode} mode{state}", store.address)
        });
        eprintln!(
            "tollgate {version} listens: {addresses}, rules: {sources}, {domains}, {limits}, store: {store}"
        );
        let rules = generation.rules.rules().iter();
        let mut rules = rules.filter(|rule| rule.lines.is_none());
        if let (Some(reachable), Some(example)) = (reachable, rules.find_map(example_hit)) {
            eprintln!("try: tollgate hit {reachable} {example}{hit_options}");
        }
    }
}

/// Options of `hit` that only the operator knows: CA bundle and server name of the certificate.
fn hit_tls_options(tls: &GrpcTlsSettings) -> &'static str {
    match (tls.grpc_server_use_tls, &tls.grpc_client_tls_cacert) {
        (false, _) => "",
        (true, None) => " --cacert FILE --server-name NAME",
        (true, Some(_)) => " --cacert FILE --server-name NAME --client-cert FILE --client-key FILE",
    }
}

/// A domain and descriptor that match a rule; none if that takes a regular expression.
fn example_hit(rule: &Rule) -> Option<String> {
    let entries = rule.path.iter().map(|level| {
        let value = match &*level.values {
            Values::Any => "x".to_owned(),
            Values::Text(value) => value.clone(),
            Values::List(values) => values.first()?.clone(),
            Values::Prefixes(prefixes) => prefixes.first()?.address().to_string(),
            Values::Regex(_) => return None,
        };
        Some(format!("{}={value}", level.key))
    });
    let entries: Option<Vec<_>> = entries.collect();
    Some(format!("{} {}", rule.domain, entries?.join(",")))
}

/// Raises the soft limit of file descriptors: each connection is one, and the usual limit of 1,024
/// is below the connection limits.
fn raise_descriptor_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::debug!(limit, "raised the limit of file descriptors"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of file descriptors"),
    }
}
