//! Bodies of requests: `{"domain", "descriptors": [{"entries": [{"key", "value"}]}], …}`.

use std::num::NonZeroU32;

use serde_json::Value;
use tollgate_limiter::{Entry, Hits, OnExpiry, Otherwise, Request};

use super::duration::expiry_ms;
use super::fields::Fields;
use crate::pipeline::ApiStep;

/// The calls that one body can hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CallKind {
    Check,
    Peek,
    Reserve,
    Extend,
    Commit,
    Release,
}

/// A call, as sent.
#[derive(Debug)]
pub(super) struct SentCall<'v> {
    pub(super) kind: CallKind,
    pub(super) request: Request<'v>,
    /// The id of the reservation; none where one is to be made.
    pub(super) reservation: Option<&'v str>,
    expires_ms: Option<NonZeroU32>,
    on_expiry: Option<OnExpiry>,
    /// Whether the call says how many hits.
    has_hits: bool,
}

const DESCRIPTORS_FORM: &str = r#"[{"entries": [{"key": "KEY", "value": "VALUE"}]}]"#;

// === impl CallKind ===

impl CallKind {
    /// Every call.
    pub(super) const ALL: [Self; 6] = [
        Self::Check,
        Self::Peek,
        Self::Reserve,
        Self::Extend,
        Self::Commit,
        Self::Release,
    ];

    /// Its name in paths and batches.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Reserve => "reserve",
            Self::Extend => "extend",
            Self::Commit => "commit",
            Self::Release => "release",
        }
    }

    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Check | Self::Peek => &["domain", "descriptors", "hits"],
            Self::Reserve => &[
                "domain",
                "descriptors",
                "hits",
                "reservation",
                "expires",
                "on_expiry",
            ],
            Self::Extend => &["domain", "descriptors", "reservation", "expires"],
            Self::Commit => &["domain", "descriptors", "reservation", "hits"],
            Self::Release => &["domain", "descriptors", "reservation"],
        }
    }
}

// === impl SentCall ===

impl<'v> SentCall<'v> {
    /// Reads a call. The error begins with the path of the field that is wrong.
    pub(super) fn read(kind: CallKind, value: &'v Value, path: &str) -> Result<Self, String> {
        let fields = Fields::of(value, path, kind.fields())?;
        let domain = fields
            .text("domain")?
            .filter(|domain| !domain.is_empty())
            .ok_or_else(|| fields.missing("domain", "the domain of the rules"))?;
        let (request, has_hits) = read_request(kind, domain, &fields)?;
        let reservation = fields.text("reservation")?.filter(|id| !id.is_empty());
        if reservation.is_none()
            && matches!(
                kind,
                CallKind::Extend | CallKind::Commit | CallKind::Release
            )
        {
            return Err(fields.missing("reservation", "the id that the reservation was made with"));
        }
        let expires_ms = match fields.text("expires")? {
            None if kind == CallKind::Extend => {
                return Err(fields.missing("expires", "a duration from now, such as \"60s\""));
            }
            None => None,
            Some(text) => {
                let expiry = expiry_ms(text);
                Some(expiry.map_err(|why| format!("{} {why}", fields.path("expires")))?)
            }
        };
        let on_expiry = match fields.text("on_expiry")? {
            None => None,
            Some(name) => Some(OnExpiry::from_name(name).ok_or_else(|| {
                let path = fields.path("on_expiry");
                format!("{path} is unknown; write \"charge\" or \"release\"")
            })?),
        };
        Ok(Self {
            kind,
            request,
            reservation,
            expires_ms,
            on_expiry,
            has_hits,
        })
    }

    /// What the call does, with this id of the reservation.
    pub(super) fn step<'s>(&self, id: &'s str) -> ApiStep<'s> {
        let id = id.as_bytes();
        match self.kind {
            CallKind::Check => ApiStep::Check,
            CallKind::Peek => ApiStep::Peek,
            CallKind::Reserve => ApiStep::Reserve {
                id,
                expires_ms: self.expires_ms,
                on_expiry: self.on_expiry,
                uses_rule_amount: !self.has_hits,
            },
            CallKind::Extend => ApiStep::Extend {
                id,
                // It was required.
                expires_ms: self.expires_ms.unwrap_or(NonZeroU32::MIN),
            },
            CallKind::Commit => ApiStep::Commit {
                id,
                otherwise: Otherwise::Unknown,
            },
            CallKind::Release => ApiStep::Release { id },
        }
    }
}

/// The domain and descriptors of a call, and whether it says how many hits.
fn read_request<'v>(
    kind: CallKind,
    domain: &'v str,
    fields: &Fields<'v>,
) -> Result<(Request<'v>, bool), String> {
    let takes_hits = kind.fields().contains(&"hits");
    let call_hits = fields.hits("hits")?;
    let descriptors = fields
        .list("descriptors")?
        .filter(|descriptors| !descriptors.is_empty())
        .ok_or_else(|| fields.missing("descriptors", DESCRIPTORS_FORM))?;
    let mut request = Request::new(domain.as_bytes());
    let mut with_own_hits = 0_usize;
    for (position, descriptor) in descriptors.iter().enumerate() {
        let path = fields.path(&format!("descriptors[{position}]"));
        let known: &[&str] = if takes_hits {
            &["entries", "hits"]
        } else {
            &["entries"]
        };
        let descriptor = Fields::of(descriptor, &path, known)?;
        let own_hits = descriptor.hits("hits")?;
        with_own_hits = with_own_hits.saturating_add(usize::from(own_hits.is_some()));
        read_entries(&descriptor, &mut request)?;
        let hits = own_hits.or(call_hits).unwrap_or(match kind {
            CallKind::Check | CallKind::Peek => 1,
            _ => 0,
        });
        request.finish_descriptor(Hits::Take(hits), None);
    }
    let has_hits = call_hits.is_some() || with_own_hits == descriptors.len();
    if kind == CallKind::Commit && !has_hits {
        return Err(fields.missing("hits", "the true amount"));
    }
    if kind == CallKind::Reserve && !has_hits && with_own_hits > 0 {
        let why =
            "hits for the call or for every descriptor, or for none to reserve what the rules say";
        return Err(fields.missing("hits", why));
    }
    Ok((request, has_hits))
}

fn read_entries<'v>(descriptor: &Fields<'v>, request: &mut Request<'v>) -> Result<(), String> {
    let entries = descriptor
        .list("entries")?
        .filter(|entries| !entries.is_empty())
        .ok_or_else(|| descriptor.missing("entries", r#"[{"key": "KEY", "value": "VALUE"}]"#))?;
    for (position, entry) in entries.iter().enumerate() {
        let path = descriptor.path(&format!("entries[{position}]"));
        let entry = Fields::of(entry, &path, &["key", "value"])?;
        let key = entry
            .text("key")?
            .filter(|key| !key.is_empty())
            .ok_or_else(|| entry.missing("key", "the key as in the rules"))?;
        let value = entry.text("value")?.unwrap_or_default();
        request.push_entry(Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        });
    }
    Ok(())
}
