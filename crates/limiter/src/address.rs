//! IP addresses in values, and prefixes that hold them.
//!
//! Why: one address has many spellings (`::1`, `0:0::1`; `10.0.0.1`, `::ffff:10.0.0.1`), and a limit for an address, or
//! for all of a prefix, must not be passed by choosing another. How: a value is read once, an IPv4 address mapped into
//! IPv6 becomes the IPv4 address, and from then on only numbers are compared.
//!
//! What it deliberately does not do: resolve names, take zones, ports or brackets, or do any I/O: `core::net` is text
//! and numbers only.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;

/// An address, of which an IPv4 one mapped into IPv6 is the IPv4 one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Address {
    /// Version 4, as a number.
    V4(u32),
    /// Version 6, as a number.
    V6(u128),
}

/// All addresses that begin with the same so many bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Prefix {
    /// The rest of it is zeros.
    address: Address,
    length: u8,
}

/// Why a text is no prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PrefixError {
    /// What stands before the `/` is no address.
    NoAddress,
    /// What stands after the `/` is no whole number, or more than this.
    Length(u8),
    /// Bits are set beyond the prefix.
    HostBits {
        /// The prefix without them.
        network: Prefix,
        /// The address alone.
        host: Prefix,
    },
}

/// The longest spelling of an address: eight groups of which the last two are written as version 4.
const TEXT_BYTES_MAX: usize = 45;

/// How many bits come before the version 4 address in a version 6 one that maps it.
const MAPPED_BITS: u8 = 96;

// === impl Address ===

impl Address {
    /// The address that a value spells, if it is one.
    pub fn parse(value: &[u8]) -> Option<Self> {
        Some(Self::parse_unmapped(value)?.unmapped())
    }

    /// As written: a mapped address stays one.
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

    /// How many bits it has.
    const fn bits(self) -> u8 {
        match self {
            Self::V4(_) => 32,
            Self::V6(_) => 128,
        }
    }

    /// The prefix of so many bits, or of all there are, that it lies in.
    pub fn prefix(self, length: u8) -> Prefix {
        let length = length.min(self.bits());
        let beyond = u32::from(self.bits().saturating_sub(length));
        let address = match self {
            Self::V4(bits) => Self::V4(bits & u32::MAX.checked_shl(beyond).unwrap_or(0)),
            Self::V6(bits) => Self::V6(bits & u128::MAX.checked_shl(beyond).unwrap_or(0)),
        };
        Prefix { address, length }
    }

    /// What the limits of an address count by: itself, or, of version 6 only, its first so many bits.
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
    /// The prefix that a text spells: an address, `/` and a number of bits, or an address alone. Of mapped addresses 96
    /// bits are the map's own, and what is longer is the version 4 prefix.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address = Address::parse_unmapped(address.as_bytes()).ok_or(PrefixError::NoAddress)?;
        let most = address.bits();
        let length = match length {
            None => most,
            // A sign would be taken by the parser.
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

    /// Its first address.
    pub const fn address(self) -> Address {
        self.address
    }

    /// How many bits its addresses share.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Whether it is of version 6.
    pub const fn is_v6(self) -> bool {
        matches!(self.address, Address::V6(_))
    }
}

/// `10.0.0.0/8`; an address alone without its length, but by `{:#}`.
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
