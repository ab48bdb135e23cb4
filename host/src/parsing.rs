//! Values that both the command line and the settings of the host parse.

use std::net::SocketAddr;

/// A whole number from `min` to `max`.
///
/// # Errors
/// A sentence with the bounds.
pub(crate) fn whole_number<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    let number = number.and_then(|number: u64| T::try_from(number).ok());
    number.ok_or_else(|| format!("write a whole number from {min} to {max}, without a unit"))
}

/// An address with a port.
///
/// # Errors
/// A sentence with examples.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "write an address and a port, such as 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080";
    text.parse().map_err(|_| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::1]:80").is_ok());
        for wrong in ["8080", ":8080", "localhost:8080", "127.0.0.1"] {
            assert!(address(wrong).unwrap_err().contains("such as 127.0.0.1:8080"), "{wrong}");
        }
    }
}
