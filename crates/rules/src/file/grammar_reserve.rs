//! The grammar of reservations and prices: fields of a limit.

use crate::file::grammar_field::{Field, Kind, Mapping, tollgate};
use tollgate_limiter::{EstimateScope, OnExpiry};

pub(super) const COST: Field = tollgate(
    "cost",
    Kind::Decimal,
    "The price of a hit, with at most six decimals. What a request costs is rounded up. Default: 1.",
);

pub(super) const BUDGET: Field = tollgate(
    "budget",
    Kind::Text,
    "The name of a bucket that limits share whose descriptors differ only in their last entry.",
);

pub(super) const RESERVE_OF_LIMIT: Field = tollgate(
    "reserve",
    Kind::Mapping(&RESERVE),
    "Requests take an estimate before, and settle the true amount after.",
);

/// The reservations of a limit.
pub(crate) static RESERVE: Mapping = Mapping {
    name: "reserve",
    about: "Reservations: an amount is taken under an id, and settled by the true amount.",
    fields: &[
        tollgate(
            "key",
            Kind::Text,
            "The key of the last entry of a descriptor, whose value is the id. Default: only the API reserves.",
        ),
        tollgate(
            "amount",
            Kind::Amount,
            "How much to reserve, in units of the limit: a number, or p50 to p99 of what commits said.",
        ),
        tollgate(
            "floor",
            Kind::Integer(1..=u32::MAX),
            "The least that is reserved by a learnt amount, and the amount at first. Default: 1.",
        ),
        tollgate(
            "ceiling",
            Kind::Integer(1..=u32::MAX),
            "The most that is reserved by a learnt amount. Default: what the limit can hold.",
        ),
        tollgate(
            "per",
            Kind::Enum {
                words: || EstimateScope::ALL.map(EstimateScope::name).to_vec(),
                ignore_case: false,
            },
            "Whose commits an amount is learnt from: the rule's or each key's. Default: rule.",
        ),
        tollgate(
            "expires",
            Kind::Duration,
            "How long a reservation is open unless it is settled, from 1s to 24h. Default: 60s.",
        ),
        tollgate(
            "on_expiry",
            Kind::Enum {
                words: || OnExpiry::ALL.map(OnExpiry::name).to_vec(),
                ignore_case: false,
            },
            "What happens to the hits of a reservation that expires: charge or release. Default: charge.",
        ),
    ],
};
