//! The address of the client, behind trusted proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;

use crate::Error;

/// A block of addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressBlock {
    address: IpAddr,
    prefix: u8,
}

impl AddressBlock {
    /// Reads an address or a CIDR block.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let invalid = || {
            Error::argument(format!(
                "invalid trusted proxy {text:?}; write an address or a CIDR block"
            ))
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if written.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| invalid())?,
            None => longest,
        };
        if prefix > longest {
            return Err(invalid());
        }
        // Clients are compared as IPv4, so IPv4-mapped blocks are as well.
        let address = written.to_canonical();
        let mapped = written.is_ipv6() && address.is_ipv4() && prefix >= 96;
        Ok(if mapped {
            Self {
                address,
                prefix: prefix - 96,
            }
        } else {
            Self {
                address: written,
                prefix,
            }
        })
    }

    fn contains(self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(block), IpAddr::V4(other)) => {
                let differ = block.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(block), IpAddr::V6(other)) => {
                let differ = block.to_bits() ^ other.to_bits();
                differ
                    .checked_shr(128 - u32::from(self.prefix))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

/// The client's address: the connection's, or the rightmost of `X-Forwarded-For` that is no
/// trusted proxy.
pub(crate) fn remote_address(
    peer: SocketAddr,
    headers: &HeaderMap,
    trusted: &[AddressBlock],
) -> IpAddr {
    let is_trusted = |address| trusted.iter().any(|block| block.contains(address));
    let mut client = peer.ip().to_canonical();
    if !is_trusted(client) {
        return client;
    }
    let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    for value in values.into_iter().rev() {
        let Ok(value) = value.to_str() else {
            return client;
        };
        for text in value.rsplit(',') {
            let Some(address) = parse_address(text.trim()) else {
                return client;
            };
            client = address;
            if !is_trusted(client) {
                return client;
            }
        }
    }
    client
}

/// Reads an address, with or without brackets, port and zone.
fn parse_address(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let complete = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return parse_v6(address).filter(|_| complete);
    }
    if text.matches(':').count() > 1 {
        return parse_v6(text);
    }
    let address = match text.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        Some(_) => return None,
        None => text,
    };
    address.parse().ok().map(IpAddr::V4)
}

fn parse_v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address
        .parse::<Ipv6Addr>()
        .ok()
        .map(|address| IpAddr::V6(address).to_canonical())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}
