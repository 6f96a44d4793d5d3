//! `[http]`: where operators ask the gateway over HTTP, and who may do what there.

use super::Tls;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use subtle::ConstantTimeEq;

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens.
    pub listen: HttpListen,
    /// TLS; without it the listener is on this machine.
    pub tls: Option<Tls>,
    /// Who may do more than everybody.
    pub users: Vec<User>,
    /// Names of this gateway in URLs, besides addresses and those of loopback.
    pub hosts: Vec<String>,
}

/// Where the HTTP interface listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpListen {
    /// An address; port 0 takes a free one, reported when ready.
    Tcp(SocketAddr),
    /// A Unix socket, to which only the gateway's own user may connect.
    Unix(PathBuf),
}

impl HttpListen {
    /// Whether other machines can reach it.
    pub fn is_remote(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What a user may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See the state of the gateway.
    Read,
    /// Give orders that cost no data: to paths and to write-back.
    Operate,
    /// Reload the configuration, stop the gateway, give up data.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Admin];

    /// Its name in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// A person or program with a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name for the log.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// How the user proves to be that.
    pub proof: Proof,
}

/// How a user proves to be that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// With the token of this hash.
    Token(TokenHash),
    /// With a certificate that has this name among its subject alternative names.
    Certificate(String),
}

/// The SHA-256 of a token. The token cannot be found from it: a token has 32 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// That of a token as clients send it.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Whether both are equal. The time does not depend on where they differ.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// As `parse` reads it.
impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The token of these random bytes, which is shown once and kept by its user alone.
pub fn token_of(random: &[u8; 32]) -> String {
    format!("{TOKEN_PREFIX}{}", hex(random))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Programs that search files for secrets recognise tokens by it.
const TOKEN_PREFIX: &str = "weir_";

#[cfg(test)]
mod tests {
    use super::*;

    /// A token has the hash that was stored for it, in either case of digits; no other token has it, and no other text
    /// is a hash.
    #[test]
    fn tokens_have_hashes() {
        let (one, other) = (token_of(&[7; 32]), token_of(&[8; 32]));
        assert_eq!(one.len(), "weir_".len() + 64);
        let stored = TokenHash::of(&one).to_string();
        let hash = TokenHash::parse(&stored).unwrap();
        assert!(TokenHash::of(&one).is(hash) && !TokenHash::of(&other).is(hash));
        assert_eq!(TokenHash::parse(&stored.to_uppercase()), Some(hash));
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), known);
        for bad in ["", &stored[1..], &format!("{stored}0"), &stored.replace(&stored[..1], "+")] {
            assert_eq!(TokenHash::parse(bad), None, "{bad}");
        }
    }

    /// Roles are ordered, and have the names that files use.
    #[test]
    fn roles_have_an_order() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Admin);
        for role in Role::ALL {
            assert_eq!(Role::named(role.as_str()), Some(role));
        }
        assert_eq!(Role::named("root"), None);
    }
}
