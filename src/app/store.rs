//! Builds the store that the settings name.
//!
//! Without `--store` buckets are in memory. With it they are in the shared store, and a memory
//! store behind it decides checks of domains with `on_store_failure: local`. Nothing here connects:
//! the service starts without its shared store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::AppError;
use super::hash_key::read_hash_key;
use super::snapshot::{Loading, SnapshotParts, Snapshots};
use crate::keyed_hash::KeyedHash;
use crate::pipeline::Generations;
use crate::settings::{
    NamingSettings, STORE_DEADLINE_MS, Settings, StoreKeys, StoreMode, StoreSettings,
};
use crate::store::lease::{self, LeasedStore};
use crate::store::memory::MemoryStore;
use crate::store::snapshot::LockedPath;
use crate::store::{
    Backend, BuildError, Setup, SharedSettings, Store, StoreBuilder, TlsFiles, Worker, memory,
};
use crate::store_redis::{self, FailoverStore, bucket_name, reference_key, reference_name};
use tollgate_limiter::key::BucketIdentity;
use tollgate_limiter::{Allowance, Entry, LeasePolicy, Rule};

/// Every backend. The first is the default and needs no URL.
pub static BACKENDS: &[&Backend] = &[&memory::BACKEND, &store_redis::BACKEND];

/// The default hash key: not a secret, but the same on every replica.
const PUBLIC_KEY: [u8; 16] = *b"tollgate-buckets";

/// How many leases all partitions hold together: some 25 MB.
const LEASES_MAX: usize = 100_000;

/// A store, and the workers of each store that it is made of.
pub(super) type Built = (Arc<dyn Store>, Vec<Vec<Worker>>);

/// A store, the hash of its keys, and what writes its snapshots.
pub(super) struct Opened {
    pub(super) store: Built,
    pub(super) hash: KeyedHash,
    pub(super) snapshots: Option<Snapshots>,
}

/// Opens the store that the settings name, and loads its snapshot with the overrides in it.
pub(super) fn open(
    setup: &Setup,
    settings: &Settings,
    generations: &Arc<Generations>,
) -> Result<Opened, AppError> {
    let shared = configure(&settings.store)?;
    let Some(path) = &settings.snapshot.path else {
        return Ok(Opened {
            store: build(setup, shared.as_deref(), &settings.store)?,
            hash: hash(&settings.store, shared.is_some())?,
            snapshots: None,
        });
    };
    if shared.is_some() {
        return Err(AppError::Setting(
            "--snapshot keeps buckets in memory, and --store keeps them elsewhere; remove one of the two"
                .to_owned(),
        ));
    }
    let Setup {
        clock,
        metrics,
        memory,
        recorder,
    } = setup;
    metrics.show(crate::metrics::Part::Snapshots);
    warn_without_store(&settings.store);
    let (store, mut workers) = MemoryStore::recorded(memory, clock, metrics, recorder.as_ref());
    let naming = &settings.store.naming;
    let configured = naming.store_hash_key_file.is_some();
    let configured = configured.then(|| shared_hash(naming)).transpose()?;
    let path = LockedPath::new(path).map_err(|error| {
        let help = "give each process a regular file of its own, or a path where none is yet";
        AppError::Setting(format!("--snapshot {error}; {help}"))
    })?;
    if let Some(error) = path.lock_failure() {
        let snapshot = path.path().display();
        tracing::warn!(%snapshot, %error, "cannot lock the snapshot; let no other process use it");
    }
    let loading = Loading {
        path: path.path(),
        configured,
        clock,
        metrics,
        generations,
    };
    let hash = match loading.load(&mut workers).or(configured) {
        Some(hash) => hash,
        None => KeyedHash::random().map_err(AppError::Randomness)?,
    };
    let snapshots = Snapshots::new(SnapshotParts {
        path,
        interval: Duration::from_secs(settings.snapshot.interval_seconds),
        copier: store.copier(),
        hash,
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        generations: Arc::clone(generations),
        is_stopping: AtomicBool::new(false),
    });
    let workers = workers.into_iter();
    let workers = workers.map(|worker| Box::pin(worker.run()) as Worker);
    Ok(Opened {
        store: (Arc::new(store), vec![workers.collect()]),
        hash,
        snapshots: Some(snapshots),
    })
}

/// The shared store that the settings name; none when they name none.
fn configure(settings: &StoreSettings) -> Result<Option<Box<dyn StoreBuilder>>, AppError> {
    let ours = settings.redis_tls_client_cert.clone();
    let deadline_ms = settings.store_deadline_ms;
    let shared = SharedSettings {
        url: settings.url.clone().unwrap_or_default().0,
        user: settings.store_user.clone(),
        password_file: settings.store_password_file.clone(),
        tls_files: TlsFiles {
            ca_bundle: settings.redis_tls_cacert.clone(),
            client_certificate: ours.zip(settings.redis_tls_client_key.clone()),
            skip_hostname_verification: settings.redis_tls_skip_hostname_verification,
        },
        key_prefix: settings.naming.cache_key_prefix.clone(),
        reference_keys: settings.naming.store_keys == StoreKeys::Reference,
        deadline: Duration::from_millis(deadline_ms),
        lookup_timeout: Duration::from_millis(settings.store_lookup_timeout_ms),
        queue_bytes_max: settings.store_queue_max,
        over_limit_cache: Duration::from_millis(settings.store_over_limit_cache_ms),
    };
    let builder = if settings.url.is_some() {
        let backend = backend_of(&shared.url)
            .map_err(|error| AppError::Setting(format!("--store: {error}")))?;
        Some((backend.configure)(&shared)?)
    } else {
        let variable = |name: &str| settings.reference.get(name).map(str::to_owned);
        let mut found = None;
        for configure in BACKENDS
            .iter()
            .filter_map(|backend| backend.configure_from_variables)
        {
            found = configure(&shared, &variable)?;
            if found.is_some() {
                break;
            }
        }
        found
    };
    if builder.is_some() && deadline_ms > STORE_DEADLINE_MS {
        tracing::warn!(
            store_deadline_ms = deadline_ms,
            "--store-deadline-ms is long: Envoy waits 20 ms by default; raise its filter's timeout too"
        );
    }
    Ok(builder)
}

/// The backend that a URL names. The error lists the schemes and does not repeat the URL, which may
/// contain a password.
fn backend_of(url: &str) -> Result<&'static Backend, BuildError> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let accepts = |backend: &&&Backend| scheme.is_some_and(backend.accepts_scheme);
    BACKENDS.iter().find(accepts).copied().ok_or_else(|| {
        let forms = BACKENDS.iter().flat_map(|backend| backend.url_forms);
        let forms: Vec<&str> = forms.copied().collect();
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        BuildError(format!(
            "it must begin with {} or {last} (valkey may stand for redis)",
            others.join(", ")
        ))
    })
}

/// Builds the store, and the workers of each store that it is made of.
fn build(
    setup: &Setup,
    shared: Option<&dyn StoreBuilder>,
    settings: &StoreSettings,
) -> Result<Built, AppError> {
    let memory = memory::BACKEND.build(&SharedSettings::default(), setup);
    let (memory, workers) = memory?;
    let Some(shared) = shared else {
        warn_without_store(settings);
        return Ok((memory, vec![workers]));
    };
    let (mut shared, shared_workers) = shared.build(setup)?;
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

/// Logs which settings have no effect without a shared store.
fn warn_without_store(settings: &StoreSettings) {
    if is_leased(settings) {
        tracing::warn!(
            "--store-mode leased has no effect without a shared store: each replica has its own limits; set --store"
        );
    }
    if settings.naming.store_keys == StoreKeys::Reference {
        tracing::warn!(
            "--store-keys reference has no effect without a shared store: no counter is continued; set --store"
        );
    }
}

/// Whether hits are taken from the shared store in advance.
pub(super) fn is_leased(settings: &StoreSettings) -> bool {
    settings.store_mode == StoreMode::Leased
}

/// Logs which rules use exact mode although leased mode was set.
pub(super) fn warn_about_rules_without_leases(rules: &[Rule]) {
    let exact: Vec<&Rule> = rules
        .iter()
        .filter(|rule| match &rule.allowance {
            Allowance::Limited { algorithm, .. } => {
                algorithm.facts().lease_policy == LeasePolicy::Never || rule.reserve.is_some()
            }
            Allowance::Unlimited => false,
        })
        .collect();
    let Some(first) = exact.first() else {
        return;
    };
    tracing::warn!(
        rules = exact.len(),
        of = rules.len(),
        first = first.full_name(),
        "some rules use exact mode despite --store-mode leased; only fixed_window, sliding_window without segments \
         and token_bucket allow leases, and rules with `reserve` do not",
    );
}

/// The hash of bucket keys. With a shared store it is the same on every replica.
fn hash(settings: &StoreSettings, shared: bool) -> Result<KeyedHash, AppError> {
    if !shared {
        return KeyedHash::random().map_err(AppError::Randomness);
    }
    if settings.naming.store_hash_key_file.is_none() {
        tracing::warn!(
            "default hash key in use: clients can craft key collisions; set --store-hash-key-file to one secret on all \
             replicas"
        );
    }
    shared_hash(&settings.naming)
}

/// The hash that all replicas share.
fn shared_hash(naming: &NamingSettings) -> Result<KeyedHash, AppError> {
    let Some(file) = &naming.store_hash_key_file else {
        return Ok(KeyedHash::with_secret(PUBLIC_KEY));
    };
    let key = read_hash_key(file, "--store-hash-key-file")?;
    Ok(KeyedHash::derived_from(&key))
}

/// The names of buckets in a shared store, for `tollgate explain`.
pub struct BucketNames {
    hash: KeyedHash,
    prefix: String,
    reference_keys: bool,
}

/// The name of a bucket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BucketName {
    /// The whole name.
    Whole(String),
    /// The name without the second in which the window begins.
    Before(String),
}

impl BucketNames {
    /// The names that replicas with these settings use.
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

    /// The bucket of a rule for these entries; none where the rule has no limit. `alone`: the
    /// descriptor has no other limit.
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
            && let Some(text) = reference_key(&identity)
        {
            return Some(BucketName::Before(reference_name(&self.prefix, &text)));
        }
        let name = bucket_name(&self.prefix, identity.key(&self.hash));
        Some(BucketName::Whole(name))
    }
}
