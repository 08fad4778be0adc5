//! Redis and Valkey in the table of backends: which URLs and variables name one.

use std::sync::Arc;

use super::target::{Password, ReferenceVariables, Secret, Servers, Target, TargetError};
use super::{RedisSetup, RedisStore, SystemResolver};
use tollgate_store::{Backend, BuildError, Setup, SharedSettings, StoreBuilder, StoreWithWorkers};

/// Redis or Valkey: one server, a primary with sentinels, or a cluster.
pub static BACKEND: Backend = Backend {
    name: "redis",
    url_forms: &[
        "redis://",
        "rediss://",
        "redis+unix://",
        "redis+sentinel://",
        "redis+cluster://",
    ],
    accepts_scheme: Target::accepts_scheme,
    configure,
    configure_from_variables: Some(configure_from_variables),
};

fn configure(settings: &SharedSettings) -> Result<Box<dyn StoreBuilder>, BuildError> {
    let target = Target::of_url(&settings.url);
    let target = target.map_err(|error| BuildError(format!("--store: {error}")))?;
    if target.holds_password() {
        return Err(BuildError(
            "--store: a URL with a password shows it in process lists and shell histories; put the password in a file and \
             set --store-password-file"
                .to_owned(),
        ));
    }
    Ok(Box::new(setup(settings, target, None)?))
}

/// `REDIS_URL` and its companions. `REDIS_PERSECOND_URL` names a second server for limits per
/// second.
fn configure_from_variables(
    settings: &SharedSettings,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Box<dyn StoreBuilder>>, BuildError> {
    if variable("REDIS_URL").is_none() {
        return Ok(None);
    }
    let target = target_of_variables(variable, "REDIS_")?;
    let per_second = match variable("REDIS_PERSECOND") {
        Some(text) if truth(&text)? => Some(target_of_variables(variable, "REDIS_PERSECOND_")?),
        _ => None,
    };
    Ok(Some(Box::new(setup(settings, target, per_second)?)))
}

fn setup(
    settings: &SharedSettings,
    mut target: Target,
    per_second: Option<Target>,
) -> Result<RedisSetup, BuildError> {
    if let Some(user) = &settings.user {
        target.login.user = Some(user.clone());
    }
    if let Some(file) = &settings.password_file {
        target.login.password = Password::File(file.clone());
    }
    let is_cluster = |target: &Target| matches!(target.servers, Servers::Cluster { .. });
    if settings.reference_keys
        && (is_cluster(&target) || per_second.as_ref().is_some_and(is_cluster))
    {
        return Err(BuildError(
            "--store-keys reference does not work in a cluster, where a reference counter is in another slot each window; leave it \
             out (windows start anew once), or migrate on a single server"
                .to_owned(),
        ));
    }
    Ok(RedisSetup {
        target,
        per_second,
        settings: settings.clone(),
        resolver: Arc::new(SystemResolver),
    })
}

/// The server that the reference's variables with this prefix name.
fn target_of_variables(
    variable: &dyn Fn(&str) -> Option<String>,
    prefix: &str,
) -> Result<Target, BuildError> {
    let get = |name: &str| variable(&format!("{prefix}{name}"));
    let variables = ReferenceVariables {
        url: Secret::new(get("URL").unwrap_or_default()),
        kind: get("TYPE"),
        socket_type: get("SOCKET_TYPE"),
        auth: get("AUTH").map(Secret::new),
        sentinel_auth: get("SENTINEL_AUTH").map(Secret::new),
        tls: get("TLS"),
    };
    Target::of_reference(&variables).map_err(|error| {
        BuildError(match error {
            TargetError::InvalidWord(words) => words.to_owned(),
            TargetError::List => format!(
                "{prefix}URL: it names several servers; set {prefix}TYPE to CLUSTER for nodes of a cluster, or to SENTINEL for \
                 the name of the primary and its sentinels"
            ),
            error => format!("{prefix}URL: {error}"),
        })
    })
}

fn truth(text: &str) -> Result<bool, BuildError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(BuildError(
            "REDIS_PERSECOND must be true or false".to_owned(),
        )),
    }
}

// === impl RedisSetup ===

impl StoreBuilder for RedisSetup {
    fn build(&self, setup: &Setup) -> Result<StoreWithWorkers, BuildError> {
        let (store, workers) = RedisStore::build(setup, self)?;
        Ok((Arc::new(store), workers))
    }
}
