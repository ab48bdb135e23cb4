//! Tables of public and other addresses, and of host patterns with what they permit.

use super::*;

#[test]
fn only_public_addresses_are_public() {
    let public = [
        "1.1.1.1",
        "93.184.216.34",
        "168.63.129.15",
        "192.88.98.255",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ];
    for address in public {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
    let other = [
        "0.0.0.0",
        "10.1.2.3",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "168.63.129.16",
        "192.88.99.1",
        "192.88.99.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::808:808",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd12::1",
        "ff02::1",
        "64:ff9b::7f00:1",
        "::ffff:168.63.129.16",
        "2002:a83f:8110::1",
        "64:ff9b::168.63.129.16",
        "64:ff9b::192.88.99.1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001::1",
        "2001:db8::1",
        "3fff::1",
        "100::1",
    ];
    for address in other {
        assert!(!is_public(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn patterns_match_names_ports_and_nothing_else() {
    let list = |patterns: &[&str]| -> Vec<HostPattern> {
        patterns.iter().map(|p| p.parse().unwrap()).collect()
    };
    let cases = [
        (vec![], "example.com", 443, Permission::Denied),
        (vec!["example.com"], "example.com", 443, Permission::Public),
        (vec!["example.com"], "EXAMPLE.com.", 443, Permission::Public),
        (vec!["example.com"], "example.com", 8443, Permission::Denied),
        (vec!["example.com:8443"], "example.com", 8443, Permission::Public),
        (vec!["example.com"], "www.example.com", 443, Permission::Denied),
        (vec!["example.com"], "example.com.evil.net", 443, Permission::Denied),
        (vec!["*.example.com"], "a.b.example.com", 443, Permission::Public),
        (vec!["*.example.com"], "example.com", 443, Permission::Denied),
        (vec!["*.example.com"], "evilexample.com", 443, Permission::Denied),
        (vec!["127.0.0.1:9000"], "127.0.0.1", 9000, Permission::AnyAddress),
        (vec!["127.0.0.1:9000"], "localhost", 9000, Permission::Denied),
        (vec!["[::1]:9000"], "[::1]", 9000, Permission::AnyAddress),
        (vec!["::1"], "[::1]", 443, Permission::AnyAddress),
        (vec!["hub.lan:80!private"], "hub.lan", 80, Permission::AnyAddress),
    ];
    for (patterns, host, port, expected) in cases {
        assert_eq!(permission(&list(&patterns), host, port, 443), expected, "{patterns:?} {host}");
    }
    for wrong in ["", "*", "*.", "a b", "http://x", "x:port", "x:0", "*.127.0.0.1", ".x"] {
        assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
    }
}
