//! Classifies addresses as public, private or reserved: the registries of special addresses as a table.
//!
//! An address that embeds another one is judged by the embedded one. Knows nothing about what an operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::allowlist::Network;

/// The class of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressClass {
    /// Reachable from anywhere.
    Public,
    /// In a private network: an operator may want to call a host there.
    Private(&'static str),
    /// Never a regular service: allowed only if the operator lists this very network.
    Reserved(&'static str),
}

/// The first row that contains an address decides.
const V4: &[(Network, AddressClass)] = &[
    (Network::v4(168, 63, 129, 16, 32), AddressClass::Reserved("cloud metadata")),
    (Network::v4(100, 100, 100, 200, 32), AddressClass::Reserved("cloud metadata")),
    (Network::v4(169, 254, 0, 0, 16), AddressClass::Reserved("link-local and cloud metadata")),
    (Network::v4(10, 0, 0, 0, 8), AddressClass::Private("private")),
    (Network::v4(172, 16, 0, 0, 12), AddressClass::Private("private")),
    (Network::v4(192, 168, 0, 0, 16), AddressClass::Private("private")),
    (Network::v4(127, 0, 0, 0, 8), AddressClass::Private("loopback")),
    (Network::v4(100, 64, 0, 0, 10), AddressClass::Private("shared by a carrier")),
    (Network::v4(0, 0, 0, 0, 8), AddressClass::Reserved("this host")),
    (Network::v4(192, 0, 0, 0, 24), AddressClass::Reserved("protocol assignments")),
    (Network::v4(192, 88, 99, 0, 24), AddressClass::Reserved("6to4 relays")),
    (Network::v4(198, 18, 0, 0, 15), AddressClass::Reserved("benchmarks")),
    (Network::v4(192, 0, 2, 0, 24), AddressClass::Reserved("documentation")),
    (Network::v4(198, 51, 100, 0, 24), AddressClass::Reserved("documentation")),
    (Network::v4(203, 0, 113, 0, 24), AddressClass::Reserved("documentation")),
    (Network::v4(224, 0, 0, 0, 4), AddressClass::Reserved("multicast")),
    (Network::v4(240, 0, 0, 0, 4), AddressClass::Reserved("reserved and broadcast")),
];

/// The first row that contains an address decides; an address in no row is public only if it is global unicast.
const V6: &[(Network, AddressClass)] = &[
    (Network::v6([0, 0, 0], 1, 128), AddressClass::Private("loopback")),
    (Network::v6([0, 0, 0], 0, 128), AddressClass::Reserved("unspecified")),
    (Network::v6([0xfd00, 0x0ec2, 0], 0x254, 128), AddressClass::Reserved("cloud metadata")),
    (Network::v6([0xfd20, 0x00ce, 0], 0x254, 128), AddressClass::Reserved("cloud metadata")),
    (Network::v6([0xfc00, 0, 0], 0, 7), AddressClass::Private("unique local")),
    (Network::v6([0xfe80, 0, 0], 0, 10), AddressClass::Reserved("link-local")),
    (Network::v6([0xfec0, 0, 0], 0, 10), AddressClass::Reserved("site-local")),
    (Network::v6([0xff00, 0, 0], 0, 8), AddressClass::Reserved("multicast")),
    (Network::v6([0x0064, 0xff9b, 0], 0, 96), AddressClass::Reserved("NAT64")),
    (Network::v6([0x0064, 0xff9b, 1], 0, 48), AddressClass::Reserved("NAT64")),
    (Network::v6([0x2001, 0, 0], 0, 32), AddressClass::Reserved("Teredo")),
    (Network::v6([0x2001, 0, 0], 0, 23), AddressClass::Reserved("protocol assignments")),
    (Network::v6([0x2001, 0x0db8, 0], 0, 32), AddressClass::Reserved("documentation")),
    (Network::v6([0x3fff, 0, 0], 0, 20), AddressClass::Reserved("documentation")),
];

/// All addresses that are routed between networks today.
const GLOBAL_UNICAST: Network = Network::v6([0x2000, 0, 0], 0, 3);
/// `::a.b.c.d`, long deprecated.
const V4_COMPATIBLE: Network = Network::v6([0, 0, 0], 0, 96);
/// The IPv4 address of the gateway is in the second and third group.
const SIX_TO_FOUR: Network = Network::v6([0x2002, 0, 0], 0, 16);

/// The class of an address.
pub(super) fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(_) => lookup(V4, address).unwrap_or(AddressClass::Public),
        IpAddr::V6(v6) => match lookup(V6, address) {
            Some(class) => class,
            None => match embedded_v4(v6) {
                Some(inner) => classify(IpAddr::V4(inner)),
                None if GLOBAL_UNICAST.contains(address) => AddressClass::Public,
                None => AddressClass::Reserved("not global unicast"),
            },
        },
    }
}

fn lookup(table: &[(Network, AddressClass)], address: IpAddr) -> Option<AddressClass> {
    table.iter().find(|(network, _)| network.contains(address)).map(|(_, class)| *class)
}

/// The IPv4 address that packets to this address are forwarded to.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let from = |bits: u128| u32::try_from(bits & u128::from(u32::MAX)).ok().map(Ipv4Addr::from_bits);
    if SIX_TO_FOUR.contains(IpAddr::V6(address)) {
        return from(bits >> 80);
    }
    if V4_COMPATIBLE.contains(IpAddr::V6(address)) {
        return from(bits);
    }
    address.to_ipv4_mapped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn public_neighbours_of_special_networks_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "3ffe::1",
        ] {
            assert_eq!(classify(address.parse().unwrap()), AddressClass::Public, "{address}");
        }
    }

    #[test]
    fn metadata_and_link_local_addresses_are_never_merely_private() {
        for address in [
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "2002:a9fe:a9fe::",
            "192.0.0.192",
            "0.0.0.0",
            "::",
        ] {
            assert!(matches!(classify(address.parse().unwrap()), AddressClass::Reserved(_)), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.1", "100.64.0.1", "fd00::1", "::1", "::ffff:10.0.0.1"] {
            assert!(matches!(classify(address.parse().unwrap()), AddressClass::Private(_)), "{address}");
        }
    }

    #[test]
    fn an_address_that_is_not_global_unicast_is_not_public() {
        for address in
            ["100::1", "::ffff:0:8.8.8.8", "5f00::1", "4000::1", "64:ff9b::808:808", "1::1", "2001:10::1"]
        {
            assert!(matches!(classify(address.parse().unwrap()), AddressClass::Reserved(_)), "{address}");
        }
    }

    proptest! {
        #[test]
        fn an_embedded_address_is_judged_as_itself(bits: u32) {
            // The smallest two in the compatible form are the unspecified and the loopback address of IPv6.
            let v4 = Ipv4Addr::from_bits(bits.max(2));
            let of = classify(IpAddr::V4(v4));
            let wide = u128::from(v4.to_bits());
            prop_assert_eq!(classify(IpAddr::V6(v4.to_ipv6_mapped())), of);
            prop_assert_eq!(classify(IpAddr::V6(Ipv6Addr::from_bits(wide))), of);
            prop_assert_eq!(classify(IpAddr::V6(Ipv6Addr::from_bits((0x2002 << 112) | (wide << 80)))), of);
        }
    }
}
