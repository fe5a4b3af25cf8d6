//! The operator's allowlist: networks, and hosts that may resolve to private addresses.
//!
//! An entry that is not clearly one or the other is rejected rather than guessed at. Knows nothing about which
//! addresses need to be on the list.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::Host;

/// One entry of the allowlist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowEntry {
    /// These addresses, whatever their class.
    Network(Network),
    /// This host, even if its name resolves to a private address. Reserved addresses stay denied: link-local ones,
    /// those of cloud metadata services, multicast.
    Host(String),
}

/// Why a text is not an entry of the allowlist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllowEntryError {
    /// Neither a host nor a network.
    #[error("{text:?} is neither a host, an address nor a network such as 10.0.0.0/8")]
    Malformed { text: String },
    /// An address with bits beyond the prefix: a host of the network, or a mistake in the prefix.
    #[error("{text:?} names a host inside the network: write {network}, or the address alone")]
    HostBits {
        text: String,
        /// The network that was probably meant.
        network: Network,
    },
}

impl FromStr for AllowEntry {
    type Err = AllowEntryError;

    /// Parses `10.0.0.0/8`, `fd00::/8`, `127.0.0.1`, `::1` or `ledger.internal`.
    fn from_str(text: &str) -> Result<Self, AllowEntryError> {
        let malformed = || AllowEntryError::Malformed { text: text.to_owned() };
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| malformed())?;
            let prefix: u8 = prefix.parse().map_err(|_| malformed())?;
            let network = Network::new(address, prefix).ok_or_else(malformed)?;
            return if network.address == address {
                Ok(Self::Network(network))
            } else {
                Err(AllowEntryError::HostBits { text: text.to_owned(), network })
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(Network::single_address(address)));
        }
        host_name(text).map(Self::Host).ok_or_else(malformed)
    }
}

/// A host name in the normal form used for comparisons: lower case, ASCII, no trailing dot. None for addresses, and for
/// texts that are no host name: a pattern would be accepted and match nothing.
fn host_name(text: &str) -> Option<String> {
    if text.contains('*') {
        return None;
    }
    match Host::parse(text).ok()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_owned()).filter(|name| !name.is_empty()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

/// A host, name or address, in the normal form used for comparisons.
pub(super) fn normalize_host(host: &str) -> String {
    let bare_v6 = || host.parse::<IpAddr>().map(|address| address.to_string());
    match Host::parse(host) {
        Ok(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
        Ok(Host::Ipv4(address)) => address.to_string(),
        Ok(Host::Ipv6(address)) => address.to_string(),
        Err(_) => bare_v6().unwrap_or_else(|_| host.to_owned()),
    }
}

/// A block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network with this prefix that contains the address; none if the prefix is longer than an address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let host_bits = 32_u32.checked_sub(u32::from(prefix))?;
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let host_bits = 128_u32.checked_sub(u32::from(prefix))?;
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Some(Self { address, prefix })
    }

    /// The network of one address.
    pub fn single_address(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// A network of IPv4, for tables: nothing is masked.
    pub(super) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    /// A network of IPv6 by its first three and its last group, for tables: nothing is masked.
    pub(super) const fn v6(first: [u16; 3], last: u16, prefix: u8) -> Self {
        let [a, b, c] = first;
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last)), prefix }
    }

    /// True if the address is in the network. IPv4 and IPv6 addresses are never in each other's networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self::new(address, self.prefix).is_some_and(|network| network.address == self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_network_an_address_or_a_host() {
        for (text, network) in
            [("10.0.0.0/8", "10.0.0.0/8"), ("127.0.0.1", "127.0.0.1/32"), ("::1", "::1/128")]
        {
            let Ok(AllowEntry::Network(read)) = text.parse() else { panic!("{text}") };
            assert_eq!(read.to_string(), network);
        }
        assert_eq!("Ledger.Internal.".parse(), Ok(AllowEntry::Host("ledger.internal".to_owned())));
    }

    #[test]
    fn an_ambiguous_entry_is_rejected() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "a b",
            "127.1",
            "0x7f000001",
            "http://x/",
            "*.internal",
        ] {
            assert!(matches!(text.parse::<AllowEntry>(), Err(AllowEntryError::Malformed { .. })), "{text}");
        }
        let error = "10.1.2.3/8".parse::<AllowEntry>().unwrap_err();
        assert!(error.to_string().contains("10.0.0.0/8"), "{error}");
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_neighbours() {
        let network = Network::new("172.16.0.0".parse().unwrap(), 12).unwrap();
        for (address, inside) in [
            ("172.16.0.0", true),
            ("172.31.255.255", true),
            ("172.15.255.255", false),
            ("172.32.0.0", false),
            ("::ac10:0", false),
        ] {
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{address}");
        }
        let everything = Network::new("0.0.0.0".parse().unwrap(), 0).unwrap();
        assert!(everything.contains("255.255.255.255".parse().unwrap()));
        assert!(!everything.contains("::1".parse().unwrap()));
    }
}
