//! Requests, as a file of tests has them: a short form, a long form, protobuf JSON.

use prost::Message as _;

use crate::proto::envoy::extensions::common::ratelimit::v3 as common;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::r#type::v3::RateLimitUnit;
use crate::rule_tests::test_file::{Descriptor, Override, Request};
use crate::simulation::ReservationStep;
use tollgate_limiter::Unit;

/// What stands for the number of the request in a value.
const NUMBER: &str = "{n}";

/// Parses `DOMAIN KEY=VALUE,KEY=VALUE; KEY=VALUE`.
pub(super) fn short_form(text: &str) -> Result<Request, String> {
    let (domain, descriptors) = text
        .trim()
        .split_once(char::is_whitespace)
        .ok_or("a request needs a domain and a descriptor: `DOMAIN KEY=VALUE,KEY=VALUE`")?;
    let descriptors = descriptors.split(';').map(descriptor);
    Ok(Request {
        domain: domain.to_owned(),
        descriptors: descriptors.collect::<Result<_, _>>()?,
        ..Request::default()
    })
}

fn descriptor(text: &str) -> Result<Descriptor, String> {
    let entries = text.split(',').map(str::trim).map(|entry| {
        let excerpt = crate::rules::excerpt::excerpt(entry);
        match entry.split_once('=') {
            None => Err(format!(
                "the entry '{excerpt}' has no `=`; write `KEY=` for an empty value"
            )),
            Some(("", _)) => Err(format!("the entry '{excerpt}' has no key")),
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        }
    });
    Ok(Descriptor {
        entries: entries.collect::<Result<_, _>>()?,
        ..Descriptor::default()
    })
}

// === impl Request ===

impl Request {
    /// A request with one descriptor.
    pub(super) fn of_one(domain: &str, entries: &[(String, String)]) -> Self {
        let descriptor = Descriptor {
            entries: entries.to_vec(),
            ..Descriptor::default()
        };
        Self {
            domain: domain.to_owned(),
            descriptors: vec![descriptor],
            ..Self::default()
        }
    }

    /// The name of the step that sends it.
    pub(super) fn action(&self) -> &'static str {
        match &self.call {
            None if self.is_refund => "refund",
            None => "ask",
            Some(call) => call.step.action(),
        }
    }

    /// What the request of this number does with which reservation; none for a request of Envoy.
    pub(super) fn call_of(&self, number: u32) -> Option<(ReservationStep, String)> {
        let call = self.call.as_ref()?;
        let id = call.id.replace(NUMBER, &number.to_string());
        Some((call.step, id))
    }

    /// Whether each request of a step is another one.
    fn is_numbered(&self) -> bool {
        let mut entries = self.descriptors.iter().flat_map(|one| &one.entries);
        entries.any(|(_, value)| value.contains(NUMBER))
    }

    /// The request with this number.
    fn numbered(&self, number: u32) -> Self {
        let mut request = self.clone();
        let entries = request.descriptors.iter_mut();
        for (_, value) in entries.flat_map(|one| &mut one.entries) {
            *value = value.replace(NUMBER, &number.to_string());
        }
        request
    }

    fn encode(&self) -> Vec<u8> {
        if let Some(encoded) = &self.encoded {
            return encoded.clone();
        }
        let descriptors = self.descriptors.iter().map(|one| {
            let entries =
                one.entries
                    .iter()
                    .map(|(key, value)| common::rate_limit_descriptor::Entry {
                        key: key.clone().into(),
                        value: value.clone().into(),
                    });
            common::RateLimitDescriptor {
                entries: entries.collect(),
                limit: one.limit.map(encoded_override),
                hits_addend: one.hits.or(self.hits).map(u64::from),
                is_negative_hits: self.is_refund,
            }
        });
        let request = RateLimitRequest {
            domain: self.domain.clone().into(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        request.encode_to_vec()
    }

    /// The request of this number, as its message has it.
    pub(super) fn shown(&self, message: &[u8], number: u32) -> Self {
        if self.encoded.is_none() {
            return self.numbered(number);
        }
        let request = RateLimitRequest::decode(message).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let descriptors = request.descriptors.iter().map(|one| {
            let entries = one.entries.iter();
            let entries = entries.map(|entry| (text(&entry.key), text(&entry.value)));
            Descriptor {
                entries: entries.collect(),
                ..Descriptor::default()
            }
        });
        Self {
            domain: text(&request.domain),
            descriptors: descriptors.collect(),
            ..Self::default()
        }
    }

    /// Its short form.
    pub(super) fn text(&self) -> String {
        let descriptors = self.descriptors.iter().map(|one| {
            let entries = one.entries.iter();
            let entries = entries.map(|(key, value)| format!("{key}={value}"));
            entries.collect::<Vec<_>>().join(",")
        });
        let descriptors = descriptors.collect::<Vec<_>>().join("; ");
        format!("{} {descriptors}", self.domain)
    }
}

/// The messages of a step's requests. If they are all the same, one is encoded.
pub(super) struct Messages {
    is_numbered: bool,
    message: Vec<u8>,
}

/// The messages of requests that differ only in their numbers.
pub(super) fn encoded_once(request: &Request) -> Messages {
    let is_numbered = request.is_numbered();
    Messages {
        is_numbered,
        message: if is_numbered {
            Vec::new()
        } else {
            request.encode()
        },
    }
}

// === impl Messages ===

impl Messages {
    /// The message of this number.
    pub(super) fn message(&mut self, request: &Request, number: u32) -> &[u8] {
        if self.is_numbered {
            self.message = request.numbered(number).encode();
        }
        &self.message
    }
}

fn encoded_override(limit: Override) -> common::rate_limit_descriptor::RateLimitOverride {
    let unit = match limit.unit {
        Unit::Second => RateLimitUnit::Second,
        Unit::Minute => RateLimitUnit::Minute,
        Unit::Hour => RateLimitUnit::Hour,
        Unit::Day => RateLimitUnit::Day,
        // Envoy has no name for it, and a file of tests cannot say it.
        Unit::Week => RateLimitUnit::Unknown,
        Unit::Month => RateLimitUnit::Month,
        Unit::Year => RateLimitUnit::Year,
    };
    common::rate_limit_descriptor::RateLimitOverride {
        requests_per_unit: limit.requests_per_unit,
        unit: unit.into(),
        unit_multiplier: limit.unit_multiplier,
    }
}

/// The units that a limit of a request may have.
pub(super) fn carried_units() -> impl Iterator<Item = Unit> {
    Unit::ALL.into_iter().filter(|unit| *unit != Unit::Week)
}
