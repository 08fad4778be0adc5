//! What gRPC adds to HTTP/2, as far as any unary method needs it.
//!
//! Source: the protocol's specification, `doc/PROTOCOL-HTTP2.md` of grpc/grpc.

/// Length of what is in front of a message: a flag and the message's length, in bytes.
pub const MESSAGE_HEAD_BYTES: usize = 5;

/// Content types of calls whose messages are protocol buffers, the default.
pub(crate) const CONTENT_TYPES: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

/// The longest valid `grpc-timeout`: eight digits and a unit.
pub(crate) const TIMEOUT_BYTES_MAX: usize = 9;

/// Reads a `grpc-timeout` header: up to eight digits and a unit.
///
/// In microseconds, rounded up; none if it is invalid.
#[must_use]
pub fn timeout_us(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() >= TIMEOUT_BYTES_MAX {
        return None;
    }
    let mut amount: u64 = 0;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| digit & 0x0f)?;
        amount = amount.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    match unit {
        b'H' => amount.checked_mul(3_600_000_000),
        b'M' => amount.checked_mul(60_000_000),
        b'S' => amount.checked_mul(1_000_000),
        b'm' => amount.checked_mul(1_000),
        b'u' => Some(amount),
        b'n' => Some(amount.div_ceil(1_000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_read_as_the_protocol_writes_them() {
        for (header, us) in [
            ("20m", Some(20_000)),
            ("1S", Some(1_000_000)),
            ("5u", Some(5)),
            ("1n", Some(1)),
            ("2M", Some(120_000_000)),
            ("99999999H", Some(359_999_996_400_000_000)),
            ("123456789m", None),
            ("m", None),
            ("", None),
            ("-1m", None),
            ("20", None),
            ("é", None),
        ] {
            assert_eq!(timeout_us(header.as_bytes()), us, "{header}");
        }
    }
}
