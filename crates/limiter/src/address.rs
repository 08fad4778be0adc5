//! IP addresses in values, and prefixes of addresses.
//!
//! Why: one address has many spellings (`::1`, `0:0::1`; `10.0.0.1`, `::ffff:10.0.0.1`). A client
//! must not pass a limit for an address or a prefix by choosing another spelling. How: a value is
//! parsed once, an IPv4 address mapped into IPv6 becomes the IPv4 address, and from then on only
//! numbers are compared.
//!
//! What it deliberately does not do: resolve names, accept zones, ports or brackets, or do any I/O:
//! `core::net` only parses and formats.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;

/// An IP address. An IPv4 address mapped into IPv6 is stored as IPv4.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// An IPv4 address as a number.
    V4(u32),
    /// An IPv6 address as a number.
    V6(u128),
}

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix {
    /// The bits after the prefix are zero.
    address: Address,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PrefixError {
    /// The part before the `/` is not an address.
    NoAddress,
    /// The part after the `/` is not a whole number, or more than this.
    Length(u8),
    /// Bits are set beyond the prefix.
    HostBits {
        /// The prefix without those bits.
        network: Prefix,
        /// The address as a prefix of full length.
        host: Prefix,
    },
}

/// The longest spelling of an address in bytes: eight groups, the last two written as IPv4.
const TEXT_BYTES_MAX: usize = 45;

/// The number of bits before the IPv4 address in an IPv6 address that maps it.
const MAPPED_BITS: u8 = 96;

// === impl Address ===

impl Address {
    /// The address that a value spells, if any.
    pub fn parse(value: &[u8]) -> Option<Self> {
        Some(Self::parse_unmapped(value)?.unmapped())
    }

    /// The address as written: a mapped address stays IPv6.
    fn parse_unmapped(value: &[u8]) -> Option<Self> {
        if value.len() > TEXT_BYTES_MAX {
            return None;
        }
        let text = str::from_utf8(value).ok()?;
        if text.contains(':') {
            let address: Ipv6Addr = text.parse().ok()?;
            Some(Self::V6(address.to_bits()))
        } else {
            let address: Ipv4Addr = text.parse().ok()?;
            Some(Self::V4(address.to_bits()))
        }
    }

    fn unmapped(self) -> Self {
        match self {
            Self::V4(_) => self,
            Self::V6(bits) => match Ipv6Addr::from_bits(bits).to_ipv4_mapped() {
                Some(address) => Self::V4(address.to_bits()),
                None => self,
            },
        }
    }

    /// The number of bits in the address.
    const fn bits(self) -> u8 {
        match self {
            Self::V4(_) => 32,
            Self::V6(_) => 128,
        }
    }

    /// The prefix of this length that contains the address. The length is capped at that of the
    /// address.
    pub fn prefix(self, length: u8) -> Prefix {
        let length = length.min(self.bits());
        let beyond = u32::from(self.bits().saturating_sub(length));
        let address = match self {
            Self::V4(bits) => Self::V4(bits & u32::MAX.checked_shl(beyond).unwrap_or(0)),
            Self::V6(bits) => Self::V6(bits & u128::MAX.checked_shl(beyond).unwrap_or(0)),
        };
        Prefix { address, length }
    }

    /// The prefix that replaces the address in a bucket's identity: the whole address or, of
    /// IPv6, the first `ipv6_prefix` bits.
    pub fn bucket_prefix(self, ipv6_prefix: Option<u8>) -> Prefix {
        match self {
            Self::V4(_) => self.prefix(self.bits()),
            Self::V6(_) => self.prefix(ipv6_prefix.unwrap_or(self.bits())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(bits) => Ipv4Addr::from_bits(*bits).fmt(f),
            Self::V6(bits) => Ipv6Addr::from_bits(*bits).fmt(f),
        }
    }
}

// === impl Prefix ===

impl Prefix {
    /// Parses a prefix: an address, `/` and a number of bits, or an address alone. A prefix of a
    /// mapped address that is longer than 96 bits becomes the IPv4 prefix.
    ///
    /// # Errors
    ///
    /// Why the text is not a prefix.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address = Address::parse_unmapped(address.as_bytes()).ok_or(PrefixError::NoAddress)?;
        let most = address.bits();
        let length = match length {
            None => most,
            // The parser would accept a sign.
            Some(length) if length.starts_with(|first: char| first.is_ascii_digit()) => length
                .parse()
                .ok()
                .filter(|length| *length <= most)
                .ok_or(PrefixError::Length(most))?,
            Some(_) => return Err(PrefixError::Length(most)),
        };
        let network = address.prefix(length).unmapped();
        if network.address == address.unmapped() {
            Ok(network)
        } else {
            let host = address.prefix(most).unmapped();
            Err(PrefixError::HostBits { network, host })
        }
    }

    fn unmapped(self) -> Self {
        let address = self.address.unmapped();
        match self.length.checked_sub(MAPPED_BITS) {
            Some(length) if address != self.address => Self { address, length },
            _ => self,
        }
    }

    /// The first address of the prefix.
    pub const fn address(self) -> Address {
        self.address
    }

    /// The number of bits that its addresses share.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The prefix that is one bit shorter; none when it has no bits.
    pub fn shorter(self) -> Option<Self> {
        Some(self.address.prefix(self.length.checked_sub(1)?))
    }

    /// The two prefixes that are one bit longer; none when it is a single address.
    pub fn halves(self) -> Option<[Self; 2]> {
        let length = self.length.checked_add(1)?;
        let bit = u32::from(self.address.bits().checked_sub(length)?);
        let high = match self.address {
            Address::V4(bits) => Address::V4(bits | 1_u32.checked_shl(bit)?),
            Address::V6(bits) => Address::V6(bits | 1_u128.checked_shl(bit)?),
        };
        Some([self.address, high].map(|address| Self { address, length }))
    }

    /// Whether it is an IPv6 prefix.
    pub const fn is_v6(self) -> bool {
        matches!(self.address, Address::V6(_))
    }
}

/// `10.0.0.0/8`. A single address has no length, except with `{:#}`.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.length == self.address.bits() && !f.alternate() {
            Ok(())
        } else {
            write!(f, "/{}", self.length)
        }
    }
}
