//! What every call must keep, and the ids of reservations whose callers give none.

use std::fmt::Write as _;

use tollgate_limiter::{EXPIRY_MS_MAX, Otherwise, REGISTER_MAX};

use super::{ApiRequest, ApiStep};

/// The largest number of hits in a call: what a number of JSON holds exactly in every language.
pub(crate) const API_HITS_MAX: u64 = REGISTER_MAX;

/// Most calls of a batch.
pub(crate) const API_CALLS_MAX: usize = 1_000;

/// The longest id of a reservation, in bytes.
pub(crate) const RESERVATION_ID_BYTES_MAX: usize = 256;

/// An id of 128 random bits, which nobody can guess.
///
/// # Errors
///
/// When the system provides no randomness.
pub(crate) fn new_reservation_id() -> Result<String, String> {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).map_err(|error| format!("no random id can be made: {error}"))?;
    let mut id = String::with_capacity(bits.len().saturating_mul(2));
    for byte in bits {
        // A string grows as needed.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

/// Checks a call against the bounds. Messages begin with the field's name.
pub(super) fn validate(call: &ApiRequest<'_>) -> Result<(), String> {
    let mut descriptors = call.request.descriptors();
    if descriptors.any(|descriptor| descriptor.hits.count() > API_HITS_MAX) {
        return Err(format!(
            "hits is more than {API_HITS_MAX}; send less at once"
        ));
    }
    let (id, may_be_empty) = match call.step {
        ApiStep::Check | ApiStep::Peek | ApiStep::Report => return Ok(()),
        ApiStep::Commit { id, otherwise } => (id, otherwise != Otherwise::Unknown),
        ApiStep::Reserve { id, .. } | ApiStep::Extend { id, .. } | ApiStep::Release { id } => {
            (id, false)
        }
    };
    if id.is_empty() && !may_be_empty {
        return Err("reservation is missing; send the id of the reservation".to_owned());
    }
    if id.len() > RESERVATION_ID_BYTES_MAX {
        return Err(format!(
            "reservation has {} bytes; an id has at most {RESERVATION_ID_BYTES_MAX}",
            id.len()
        ));
    }
    if call.step.expires_ms().is_some_and(|ms| ms > EXPIRY_MS_MAX) {
        return Err("expires is longer than a day; extend the reservation later".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_are_text_of_128_bits_and_differ() {
        let ids: Vec<_> = (0..100).map(|_| new_reservation_id().unwrap()).collect();
        for id in &ids {
            assert_eq!(id.len(), 32);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
