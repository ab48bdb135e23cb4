//! Refused addresses in each spelling, and the interfaces of a machine that the test makes up.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use if_addrs::{Ifv4Addr, Ifv6Addr};

use super::*;

fn networks(texts: &[&str]) -> Vec<Network> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn own_addresses_neighbours_and_what_is_denied_are_refused_in_every_spelling() {
    let own = networks(&["93.184.216.34", "45.33.32.0/24", "2606:4700:1:2::/64"]);
    let policy = AddressPolicy::with_list(&networks(&["104.16.0.0/12", "2620:4f::/32"]), {
        move || Ok(own.clone())
    });
    let cases = [
        ("93.184.216.35", Ok(())),
        ("45.33.33.1", Ok(())),
        ("2606:4700:1:3::1", Ok(())),
        ("10.0.0.1", Err(Reason::NotPublic)),
        ("168.63.129.16", Err(Reason::NotPublic)),
        ("93.184.216.34", Err(Reason::Own)),
        ("45.33.32.255", Err(Reason::Own)),
        ("2606:4700:1:2:abcd::1", Err(Reason::Own)),
        ("::ffff:93.184.216.34", Err(Reason::Own)),
        ("64:ff9b::45.33.32.7", Err(Reason::Own)),
        ("2002:5db8:d822::7", Err(Reason::Own)),
        ("104.31.255.255", Err(Reason::Denied)),
        ("::ffff:104.16.0.1", Err(Reason::Denied)),
        ("2002:6810:1::", Err(Reason::Denied)),
        ("64:ff9b::104.16.0.1", Err(Reason::Denied)),
        ("2620:4f:8000::1", Err(Reason::Denied)),
    ];
    for (address, expected) in cases {
        assert_eq!(policy.check(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn interfaces_are_listed_again_and_the_last_list_outlives_a_failure() {
    static LISTED: AtomicUsize = AtomicUsize::new(0);
    let policy = AddressPolicy::with_list(&[], || match LISTED.fetch_add(1, Ordering::Relaxed) {
        0 => Err(io::ErrorKind::PermissionDenied.into()),
        1 => Ok(vec![]),
        2 => Ok(networks(&["93.184.216.34"])),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    });
    let address = "93.184.216.34".parse().unwrap();
    let unknown = Reason::Unknown("permission denied".to_owned());
    assert_eq!(policy.check(address), Err(unknown), "without any list every address is refused");
    let start = Instant::now();
    let is_own = |seconds| {
        let own = policy.own.get(start + Duration::from_secs(seconds)).unwrap();
        own.iter().any(|network| network.contains(address))
    };
    let seen = [0, 1, 3, 4, 60, 61].map(is_own);
    assert_eq!(seen, [false, false, true, true, true, true]);
    assert_eq!(LISTED.load(Ordering::Relaxed), 4, "once in two seconds");
}

#[test]
fn an_interface_has_its_address_and_its_neighbours() {
    let v4 = |ip: Ipv4Addr, prefixlen| {
        let netmask = Ipv4Addr::UNSPECIFIED;
        IfAddr::V4(Ifv4Addr { ip, netmask, prefixlen, broadcast: None })
    };
    let v6 = |ip: Ipv6Addr, prefixlen| {
        let netmask = Ipv6Addr::UNSPECIFIED;
        IfAddr::V6(Ifv6Addr { ip, netmask, prefixlen, broadcast: None })
    };
    let cases = [
        (v4("93.184.216.34".parse().unwrap(), 24), vec!["93.184.216.34", "93.184.216.0/24"]),
        (v4("93.184.216.34".parse().unwrap(), 32), vec!["93.184.216.34", "93.184.216.34"]),
        (v6("2606:4700::7".parse().unwrap(), 64), vec!["2606:4700::7", "2606:4700::/64"]),
        // A tunnel that takes everything has no neighbours.
        (v4("93.184.216.34".parse().unwrap(), 0), vec!["93.184.216.34"]),
        (v6("2606:4700::7".parse().unwrap(), 3), vec!["2606:4700::7"]),
    ];
    for (address, expected) in cases {
        let found: Vec<_> = networks_of(&address).collect();
        assert_eq!(found, networks(&expected), "{address:?}");
    }
    let here = own_networks().unwrap();
    assert!(here.iter().any(|network| network.contains(Ipv4Addr::LOCALHOST.into())));
}
