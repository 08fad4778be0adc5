//! The store that the settings ask for.
//!
//! By default it is in memory. With a Redis URL it is Redis, with a store of this replica behind
//! it, for domains whose rules or settings say `local` when Redis fails.
//!
//! What it deliberately does not do: connect. A service starts without Redis.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::AppError;
use crate::keyed_hash::KeyedHash;
use crate::settings::{
    EnvironmentVariables, NamingSettings, STORE_DEADLINE_MS, StoreKeys, StoreMode, StoreSettings,
};
use crate::store::failover::FailoverStore;
use crate::store::lease::{self, LeasedStore};
use crate::store::redis::{
    Certificates, Password, RedisSetup, ReferenceVariables, Secret, Servers, Target, TargetError,
    bucket_name, reference_name,
};
use crate::store::{BuildError, Setup, Store, Worker, backend};
use tollgate_limiter::key::BucketIdentity;
use tollgate_limiter::{Allowance, Entry, LeasePolicy, Rule};

/// The digest's key where none is given: no secret, but the same on every replica.
const PUBLIC_KEY: [u8; 16] = *b"tollgate-buckets";

/// How many leases are held, in all partitions: some 25 MB when all are.
const LEASES_MAX: usize = 100_000;

/// How long a key must be, in bytes.
const HASH_KEY_BYTES_MIN: usize = 16;

/// A store, and the workers of each store that it is made of.
pub(super) type Built = (Arc<dyn Store>, Vec<Vec<Worker>>);

/// Where the shared store is; none when nothing says so.
pub(super) fn redis(settings: &StoreSettings) -> Result<Option<RedisSetup>, AppError> {
    let Some(mut target) = target(settings)? else {
        return Ok(None);
    };
    if let Some(user) = &settings.store_user {
        target.login.user = Some(user.clone());
    }
    if let Some(file) = &settings.store_password_file {
        target.login.password = Password::File(file.clone());
    }
    let per_second = match settings.reference.get("REDIS_PERSECOND") {
        Some(said) if settings.url.is_none() && truth(said)? => {
            Some(of_reference(&settings.reference, "REDIS_PERSECOND_")?)
        }
        _ => None,
    };
    let reference_keys = settings.naming.store_keys == StoreKeys::Reference;
    let is_cluster = |target: &Target| matches!(target.servers, Servers::Cluster { .. });
    if reference_keys && (is_cluster(&target) || per_second.as_ref().is_some_and(is_cluster)) {
        return Err(AppError::Store(
            "--store-keys reference: not in a cluster, where a counter of the reference lies in another slot each window; leave it \
             out, and windows begin anew once, or move over on one server"
                .to_owned(),
        ));
    }
    let ours = settings.redis_tls_client_cert.clone();
    let deadline_ms = settings.store_deadline_ms;
    if deadline_ms > STORE_DEADLINE_MS {
        tracing::warn!(
            "--store-deadline-ms {deadline_ms}: Envoy waits 20 ms for an answer unless its filter's timeout says otherwise"
        );
    }
    Ok(Some(RedisSetup {
        target,
        per_second,
        certificates: Certificates {
            authorities: settings.redis_tls_cacert.clone(),
            ours: ours.zip(settings.redis_tls_client_key.clone()),
            any_host_name: settings.redis_tls_skip_hostname_verification,
        },
        prefix: settings.naming.cache_key_prefix.clone(),
        reference_keys,
        deadline: Duration::from_millis(deadline_ms),
        queue_bytes_max: settings.store_queue_max,
        over_limit_cache: Duration::from_millis(settings.store_over_limit_cache_ms),
    }))
}

/// The store, and the workers that it and the one behind it need.
pub(super) fn build(setup: &Setup, settings: &StoreSettings) -> Result<Built, AppError> {
    let build = |name| {
        let backend = backend(name).ok_or_else(|| BuildError(format!("no store `{name}`")));
        backend
            .and_then(|backend| (backend.build)(setup))
            .map_err(|error| AppError::Store(error.to_string()))
    };
    let (memory, workers) = build("memory")?;
    if setup.redis.is_none() {
        if is_leased(settings) {
            tracing::warn!(
                "--store-mode leased: there is no shared store to take from, so limits are this replica's own; give one with --store"
            );
        }
        if settings.naming.store_keys == StoreKeys::Reference {
            tracing::warn!(
                "--store-keys reference: there is no shared store, so no counter is continued; give one with --store"
            );
        }
        return Ok((memory, vec![workers]));
    }
    let (mut shared, shared_workers) = build("redis")?;
    let mut all = vec![workers, shared_workers];
    if is_leased(settings) {
        let partitions = setup.memory.partitions.max(1);
        let bounds = lease::LeaseLimits {
            age_max_us: settings.lease_age_max_ms.saturating_mul(1_000),
            ahead_hits_max: settings.lease_hits_max,
            leases_max: LEASES_MAX / partitions,
        };
        let (leases, workers) = LeasedStore::pair(
            &shared,
            bounds,
            partitions,
            setup.memory.queue_checks_max,
            &setup.clock,
            &setup.metrics,
        );
        shared = Arc::new(leases);
        let workers = workers.into_iter();
        all.push(
            workers
                .map(|worker| Box::pin(worker.run()) as Worker)
                .collect(),
        );
    }
    let store = FailoverStore::new(shared, memory, setup.metrics.store.clone());
    Ok((Arc::new(store), all))
}

/// Whether hits are taken from the shared store in advance.
pub(super) fn is_leased(settings: &StoreSettings) -> bool {
    settings.store_mode == StoreMode::Leased
}

/// Says which rules are decided by the shared store check by check, though leases were asked for.
pub(super) fn warn_about_rules_without_leases(rules: &[Rule]) {
    let exact: Vec<&Rule> = rules
        .iter()
        .filter(|rule| match &rule.allowance {
            Allowance::Limited { algorithm, .. } => algorithm.lease_policy() == LeasePolicy::Never,
            Allowance::Unlimited => false,
        })
        .collect();
    let Some(first) = exact.first() else {
        return;
    };
    tracing::warn!(
        "--store-mode leased: {} of {} rules are decided in exact mode, since their algorithms allow no leases: `{}` \
         is the first; fixed_window, sliding_window without segments and token_bucket allow them",
        exact.len(),
        rules.len(),
        first.full_name(),
    );
}

/// The hash that buckets are found by: where they are shared, the same on every replica.
pub(super) fn hash(settings: &StoreSettings, shared: bool) -> Result<KeyedHash, AppError> {
    if !shared {
        return KeyedHash::random().map_err(AppError::Randomness);
    }
    if settings.naming.store_hash_key_file.is_none() {
        tracing::warn!(
            "buckets are named by a digest under a key that everybody knows: callers who choose their own values could make \
             buckets meet; give all replicas the same secret with --store-hash-key-file"
        );
    }
    shared_hash(&settings.naming)
}

/// The hash that replicas agree on.
fn shared_hash(naming: &NamingSettings) -> Result<KeyedHash, AppError> {
    let Some(file) = &naming.store_hash_key_file else {
        return Ok(KeyedHash::with_secret(PUBLIC_KEY));
    };
    let key = read(file)?;
    let key = key.trim_ascii_end();
    if key.len() < HASH_KEY_BYTES_MIN {
        return Err(AppError::Store(format!(
            "{}: a key of {} bytes is too short; --store-hash-key-file wants {HASH_KEY_BYTES_MIN} at least",
            file.display(),
            key.len()
        )));
    }
    Ok(KeyedHash::derived_from(key))
}

/// What buckets are called in a shared store, for people.
pub struct BucketNames {
    hash: KeyedHash,
    prefix: String,
    reference_keys: bool,
}

/// What a bucket is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BucketName {
    /// So.
    Whole(String),
    /// So, and behind it stands the second in which the window begins.
    Before(String),
}

impl BucketNames {
    /// Names as replicas with these settings give them.
    ///
    /// # Errors
    ///
    /// When the key's file cannot be read or is too short.
    pub fn new(naming: &NamingSettings) -> Result<Self, AppError> {
        Ok(Self {
            hash: shared_hash(naming)?,
            prefix: naming.cache_key_prefix.clone(),
            reference_keys: naming.store_keys == StoreKeys::Reference,
        })
    }

    /// The bucket that a rule counts these entries in; none where it counts nothing. `alone`: no
    /// other limit stands on the same descriptor.
    pub fn of(
        &self,
        domain: &[u8],
        entries: &[Entry<'_>],
        rule: &Rule,
        alone: bool,
    ) -> Option<BucketName> {
        let Allowance::Limited { limit, algorithm } = &rule.allowance else {
            return None;
        };
        let identity = BucketIdentity {
            domain,
            entries,
            algorithm: *algorithm,
            limit,
            rule: Some(rule),
        };
        if self.reference_keys
            && alone
            && let Some(text) = identity.reference_key()
        {
            return Some(BucketName::Before(reference_name(&self.prefix, &text)));
        }
        let name = bucket_name(&self.prefix, identity.key(&self.hash));
        Some(BucketName::Whole(name))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, AppError> {
    std::fs::read(file).map_err(|error| AppError::Store(format!("{}: {error}", file.display())))
}

fn target(settings: &StoreSettings) -> Result<Option<Target>, AppError> {
    if let Some(url) = &settings.url {
        let target = Target::of_url(url);
        let target = target.map_err(|error| AppError::Store(format!("--store: {error}")))?;
        if target.holds_password() {
            return Err(AppError::Store(
                "--store: a password does not belong there, where process lists and shells show it; put it in a file and \
                 give that with --store-password-file"
                    .to_owned(),
            ));
        }
        return Ok(Some(target));
    }
    match settings.reference.get("REDIS_URL") {
        None => Ok(None),
        Some(_) => of_reference(&settings.reference, "REDIS_").map(Some),
    }
}

/// The store that the reference's variables of this beginning name.
fn of_reference(reference: &EnvironmentVariables, beginning: &str) -> Result<Target, AppError> {
    let get = |name: &str| reference.get(&format!("{beginning}{name}"));
    let names = ReferenceVariables {
        url: Secret::new(get("URL").unwrap_or_default()),
        kind: get("TYPE").map(str::to_owned),
        socket_type: get("SOCKET_TYPE").map(str::to_owned),
        auth: get("AUTH").map(Secret::new),
        sentinel_auth: get("SENTINEL_AUTH").map(Secret::new),
        tls: get("TLS").map(str::to_owned),
    };
    Target::of_reference(&names).map_err(|error| {
        AppError::Store(match error {
            TargetError::InvalidWord(words) => words.to_owned(),
            error => format!("{beginning}URL: {error}"),
        })
    })
}

fn truth(text: &str) -> Result<bool, AppError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(AppError::Store(
            "REDIS_PERSECOND must be true or false".to_owned(),
        )),
    }
}
