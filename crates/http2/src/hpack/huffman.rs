//! Huffman code of strings (RFC 7541, section 5.2 and appendix B).
//!
//! How: the code is canonical: codes of one length count up with their symbols, and each length
//! continues where the shorter one ended. So the lengths are the whole table; where each length
//! begins is computed from them at compile time. Codes of at most eight bits, nearly all that occur
//! in headers, are looked up by their first byte.
//!
//! Strings of responses are not encoded: they are short and sent by index.

/// Length of each byte's code in bits; the last is that of the end of a string.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

/// The longest code, in bits.
const BITS_MAX: usize = 30;

/// The symbol EOS, which must not occur in a string.
const END: u16 = 256;

/// The symbols in the order of their codes, and where each length begins.
struct CanonicalCode {
    symbols: [u16; 257],
    /// By length: the first code, how many there are, where their symbols begin.
    of_length: [(u32, u32, usize); BITS_MAX + 1],
    /// By a byte: the symbol whose code it begins with, and that code's length; 0 if it is longer.
    of_byte: [(u8, u8); 256],
}

static CANONICAL_CODE: CanonicalCode = canonical_code();

// Run by the compiler, which reports an index out of bounds.
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
const fn canonical_code() -> CanonicalCode {
    let mut code_table = CanonicalCode {
        symbols: [0; 257],
        of_length: [(0, 0, 0); BITS_MAX + 1],
        of_byte: [(0, 0); 256],
    };
    let (mut code, mut position, mut length) = (0_u32, 0, 1);
    while length <= BITS_MAX {
        code <<= 1;
        let (first, start) = (code, position);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code_table.symbols[position] = symbol as u16;
                if length <= 8 {
                    let spare = 8 - length;
                    let mut byte = (code as usize) << spare;
                    while byte < (code as usize + 1) << spare {
                        code_table.of_byte[byte] = (symbol as u8, length as u8);
                        byte += 1;
                    }
                }
                code += 1;
                position += 1;
            }
            symbol += 1;
        }
        code_table.of_length[length] = (first, code - first, start);
        length += 1;
    }
    code_table
}

/// Decodes a string behind what `into` holds. None if it is invalid: it ends in the middle of a
/// code, has more than seven bits of padding, padding that is not a prefix of EOS, or EOS itself.
pub(super) fn decode(text: &[u8], into: &mut Vec<u8>) -> Option<()> {
    // Bits that were read and not yet decoded, at the top.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut text = text.iter();
    loop {
        while count <= 56 {
            let Some(byte) = text.next() else { break };
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        if count == 0 {
            return Some(());
        }
        let (symbol, length) = next(bits)?;
        if u32::from(length) > count {
            // What is left is padding: fewer than eight bits, all of them set.
            return (count < 8 && bits == !(u64::MAX >> count)).then_some(());
        }
        if symbol == END {
            return None;
        }
        into.push(u8::try_from(symbol).ok()?);
        bits <<= length;
        count -= u32::from(length);
    }
}

/// The symbol whose code comes next, and the code's length.
fn next(bits: u64) -> Option<(u16, u8)> {
    let (symbol, length) = *CANONICAL_CODE.of_byte.get((bits >> 56) as usize)?;
    if length != 0 {
        return Some((u16::from(symbol), length));
    }
    for length in 9..=BITS_MAX {
        let code = u32::try_from(bits >> (64 - length)).ok()?;
        let (first, count, start) = *CANONICAL_CODE.of_length.get(length)?;
        let position = code.wrapping_sub(first);
        if position < count {
            let symbol = CANONICAL_CODE
                .symbols
                .get(start.checked_add(position as usize)?)?;
            return Some((*symbol, u8::try_from(length).ok()?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes bit by bit.
    fn encode(text: &[u8]) -> Vec<u8> {
        let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let length = LENGTHS[usize::from(*byte)] as usize;
            let (first, _, start) = CANONICAL_CODE.of_length[length];
            let offset = CANONICAL_CODE.symbols[start..]
                .iter()
                .position(|symbol| *symbol == u16::from(*byte))
                .unwrap();
            bits = (bits << length) | (u64::from(first) + offset as u64);
            count += length;
            while count >= 8 {
                count -= 8;
                bytes.push(u8::try_from((bits >> count) & 0xff).unwrap());
            }
            bits &= (1 << count) - 1;
        }
        if count > 0 {
            let padding = 0xff >> count;
            bytes.push(u8::try_from(bits << (8 - count)).unwrap() | padding);
        }
        bytes
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(bytes, &mut text).map(|()| text)
    }

    // The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        let examples: [(&[u8], &str); 5] = [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f],
                "custom-key",
            ),
            (&[0x64, 0x02], "302"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04,
                    0x0b, 0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (bytes, text) in examples {
            assert_eq!(decoded(bytes).unwrap(), text.as_bytes(), "{text}");
            assert_eq!(encode(text.as_bytes()), bytes, "{text}");
        }
    }

    #[test]
    fn every_byte_is_decoded_at_every_position() {
        for byte in 0..=u8::MAX {
            for before in [&b""[..], b"0", b"00", b"a-", b"\x00"] {
                let text = [before, &[byte], before, &[byte, b'z']].concat();
                assert_eq!(decoded(&encode(&text)).unwrap(), text);
            }
        }
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    #[test]
    fn invalid_strings_are_refused() {
        // A whole byte of padding; padding that is no prefix of EOS; EOS itself; half a code.
        for bytes in [
            &[0xff][..],
            &[0x64, 0x02, 0xff],
            &[0b0000_0000],
            &[0xff, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xfc],
            &[0xfe],
        ] {
            assert_eq!(decoded(bytes), None, "{bytes:x?}");
        }
    }
}
