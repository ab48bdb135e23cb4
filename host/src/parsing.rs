//! A value that both the command line and the settings of the host parse.

use std::net::SocketAddr;

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
