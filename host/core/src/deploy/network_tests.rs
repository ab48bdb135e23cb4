//! Networks as texts, and their addresses, by cases and compared bit by bit for any address.

use proptest::prelude::*;

use super::*;

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

#[test]
fn a_network_has_the_addresses_that_share_its_first_bits() {
    let cases = [
        ("93.184.216.34", "93.184.216.34", true),
        ("93.184.216.34", "93.184.216.35", false),
        ("93.184.216.0/24", "93.184.216.255", true),
        ("93.184.216.77/24", "93.184.216.1", true),
        ("93.184.216.0/24", "93.184.217.0", false),
        ("0.0.0.0/0", "8.8.8.8", true),
        ("0.0.0.0/0", "2606:4700::1", false),
        ("::/0", "2606:4700::1", true),
        ("::/0", "8.8.8.8", false),
        ("2606:4700:1:2::/64", "2606:4700:1:2:ffff::1", true),
        ("2606:4700:1:2::/64", "2606:4700:1:3::1", false),
        // Every spelling of an IPv4 address.
        ("93.184.216.0/24", "::ffff:93.184.216.34", true),
        ("93.184.216.0/24", "2002:5db8:d822::1", true),
        ("93.184.216.0/24", "64:ff9b::93.184.216.34", true),
        ("93.184.216.0/24", "64:ff9b::93.184.217.34", false),
        ("::ffff:93.184.216.0/120", "93.184.216.34", true),
        // The IPv6 address itself counts as well.
        ("2002::/16", "2002:5db8:d822::1", true),
    ];
    for (text, address, expected) in cases {
        assert_eq!(network(text).contains(address.parse().unwrap()), expected, "{text} {address}");
    }
}

#[test]
fn a_text_that_is_no_network_is_refused_with_an_example() {
    let wrong =
        ["", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "::/+1", "::/-1", "10.0.0/8", "a/8"];
    for text in wrong {
        let error = text.parse::<Network>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{text}` is not a network: write ")), "{error}");
    }
    assert_eq!(network("10.1.2.3/8").to_string(), "10.0.0.0/8");
    assert_eq!(network("2001:db8::1").to_string(), "2001:db8::1/128");
}

proptest! {
    #[test]
    fn a_network_has_an_address_if_their_first_bits_are_equal(
        base: u128, flip in 0_u32..128, prefix in 0_u8..=128,
    ) {
        // Outside the IPv6 forms that embed IPv4: the test counts bits of IPv6.
        let base = base >> 4 | 0x3 << 124;
        let other = Ipv6Addr::from_bits(base ^ 1 << flip);
        let found = Network::of(Ipv6Addr::from_bits(base).into(), prefix);
        let is_outside_prefix = 127 - flip >= u32::from(prefix);
        prop_assert_eq!(found.contains(other.into()), is_outside_prefix);
    }

    #[test]
    fn a_network_is_read_as_it_is_written(address: IpAddr, prefix: u8) {
        let network = Network::of(address, prefix);
        prop_assert_eq!(network.to_string().parse(), Ok(network));
        prop_assert!(network.contains(address));
    }
}
