//! Names and secrets for the CHAP handshake.

use std::fmt;

/// A CHAP name and its secret (RFC 7143 section 12.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The CHAP name, 1 to 255 bytes.
    pub name: String,
    /// The CHAP secret.
    pub secret: Secret,
}

/// A CHAP secret: 12 to 255 bytes (RFC 7143 section 9.2.1 asks for 96 bits). Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes; `None` if they are fewer than 12 or more than 255.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (SECRET_MIN..=SECRET_MAX).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The bytes, for computing a response.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Shortest secret, in bytes.
const SECRET_MIN: usize = 12;
/// Longest secret, in bytes: what fits a text value.
const SECRET_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret has a valid length, and `Debug` does not print it.
    #[test]
    fn secrets_are_long_and_silent() {
        assert_eq!(Secret::new(*b"elevenbytes"), None);
        assert_eq!(Secret::new(vec![b'x'; 256]), None);
        let secret = Secret::new(*b"twelve bytes").unwrap();
        assert!(!format!("{secret:?}").contains("twelve"));
        assert_eq!(secret.bytes(), b"twelve bytes");
    }
}
