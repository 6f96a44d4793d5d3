//! Digests and keys of the CHAP handshake, in either direction
//! (RFC 7143 section 12.1.3, RFC 1994).

use md5::{Digest, Md5};
use sha2::Sha256;

use super::account::Account;
use super::text;

/// Length of the challenges that are made here, in bytes.
pub(crate) const CHALLENGE_LENGTH: usize = 32;
/// Longest challenge that a peer may make, in bytes.
// RFC 7143 section 12.1.3: CHAP_C and CHAP_R hold at most 1024 bytes.
pub(crate) const CHALLENGE_MAX: usize = 1024;
/// A hash function of CHAP, by its number in `CHAP_A`; the order is that of strength.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChapAlgorithm {
    /// MD5 (RFC 7143 section 12.1.3).
    #[default]
    Md5 = 5,
    /// SHA-256 (IANA, PPP authentication algorithms).
    Sha256 = 7,
}

impl ChapAlgorithm {
    /// The strongest of a list that is known here and not weaker than `min`, whatever the order.
    // RFC 7143 section 12.1.3 lets the target choose. The list is not authenticated, so an order protects no secret, and
    // initiators list MD5 first for targets that take the first that they know.
    pub(crate) fn choose(list: &str, min: Self) -> Option<Self> {
        let known = list.split(',').filter_map(|one| match text::number(one) {
            Some(5) => Some(Self::Md5),
            Some(7) => Some(Self::Sha256),
            _ => None,
        });
        known.filter(|&one| one >= min).max()
    }

    // RFC 1994 section 4.1: identifier, secret and challenge, in this order.
    pub(crate) fn response(self, identifier: u8, account: &Account, challenge: &[u8]) -> Vec<u8> {
        let secret = account.secret.bytes();
        match self {
            Self::Md5 => hash::<Md5>(&[&[identifier], secret, challenge]),
            Self::Sha256 => hash::<Sha256>(&[&[identifier], secret, challenge]),
        }
    }
}

fn hash<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let state = parts.iter().fold(D::new(), Digest::chain_update);
    state.finalize().to_vec()
}

/// The CHAP keys of one text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys<'a> {
    pub(crate) algorithms: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) response: Option<&'a str>,
    pub(crate) identifier: Option<&'a str>,
    pub(crate) challenge: Option<&'a str>,
}

impl<'a> Keys<'a> {
    /// Keeps the value of a CHAP key. Returns whether it is one. No key may come twice.
    pub(crate) fn keep(&mut self, key: &str, value: &'a str) -> bool {
        let slot = match key {
            "CHAP_A" => &mut self.algorithms,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            _ => return false,
        };
        *slot = Some(value);
        true
    }

    /// The first key that is there.
    pub(crate) fn first(&self) -> Option<&'static str> {
        [
            (self.algorithms, "CHAP_A"),
            (self.name, "CHAP_N"),
            (self.response, "CHAP_R"),
            (self.identifier, "CHAP_I"),
            (self.challenge, "CHAP_C"),
        ]
        .into_iter()
        .find_map(|(value, key)| value.map(|_| key))
    }
}
