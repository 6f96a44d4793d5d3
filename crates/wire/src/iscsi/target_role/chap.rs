//! CHAP: authenticates an initiator, and on request the target (RFC 7143 section 12.1.3, RFC 1994).

use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::iscsi::account::Account;
use crate::iscsi::chap::{CHALLENGE_LENGTH, CHALLENGE_MAX, ChapAlgorithm, Keys};
use crate::iscsi::{binary, text};

/// Longest name, in bytes (RFC 7143 section 6.1).
pub(super) const NAME_MAX: usize = 255;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChapFault {
    /// A key that is due is missing.
    #[error("{key} is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A key was received out of order.
    #[error("{key} is not due")]
    NotDue {
        /// The key.
        key: &'static str,
    },
    /// A value cannot be read or is too long.
    #[error("{key} has an illegal value")]
    IllegalValue {
        /// The key.
        key: &'static str,
    },
    /// No algorithm in common that is strong enough.
    #[error("the initiator offers no algorithm that is accepted here: {}", accepted(*.min))]
    NoAlgorithm {
        /// The weakest that is accepted.
        min: ChapAlgorithm,
    },
    /// The name has no account that may log in here.
    #[error("account `{}` may not log in here", .name.escape_debug())]
    UnknownAccount {
        /// The name.
        name: String,
    },
    /// The name is known, the response is wrong.
    #[error("wrong response for account `{}`", .account.escape_debug())]
    WrongResponse {
        /// The name of the account.
        account: String,
    },
    /// The initiator requests mutual CHAP, and the target has no credentials.
    #[error("the initiator asks for mutual authentication, which is not configured")]
    NoMutual,
    /// The initiator reflected the target's challenge, to learn the response to it.
    #[error("the initiator sent the target's own challenge back")]
    Reflected,
    /// One secret would serve both directions, so that either side could play the other.
    #[error("account `{}` has the same secret as the target's own account", .account.escape_debug())]
    SameSecret {
        /// The name of the initiator's account.
        account: String,
    },
}

/// The algorithms that are not weaker than this one, for people.
const fn accepted(min: ChapAlgorithm) -> &'static str {
    match min {
        ChapAlgorithm::Md5 => "SHA-256 (7) or MD5 (5)",
        ChapAlgorithm::Sha256 => "SHA-256 (7)",
    }
}

/// The accounts of a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accounts<'a> {
    /// All accounts.
    pub(super) all: &'a [Account],
    /// Indices of the accounts that may log in.
    pub(super) allowed: &'a [usize],
    /// The target's own account.
    pub(super) mutual: Option<usize>,
    /// The weakest algorithm that is accepted.
    pub(super) algorithm_min: ChapAlgorithm,
}

/// The target's answer to one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The handshake continues.
    Challenge(Pairs),
    /// The initiator has authenticated as this account.
    Proven { account: usize, pairs: Pairs },
}

/// Keys and values to send.
pub(super) type Pairs = Vec<(&'static str, String)>;

/// One handshake. It makes one challenge and takes one response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chap {
    challenge: [u8; CHALLENGE_LENGTH],
    /// Chosen when the challenge was made.
    algorithm: Option<ChapAlgorithm>,
}

impl Chap {
    /// A handshake with this challenge, which must be random and used only here.
    pub(super) const fn new(challenge: [u8; CHALLENGE_LENGTH]) -> Self {
        Self { challenge, algorithm: None }
    }

    /// The identifier that goes with the challenge; it need only change with it.
    const fn identifier(&self) -> u8 {
        self.challenge[0]
    }

    /// Whether the initiator's next text has its name and its response.
    pub(super) const fn awaits_response(&self) -> bool {
        self.algorithm.is_some()
    }

    /// Takes the keys of the initiator's next text.
    pub(super) fn step(
        &mut self,
        keys: Keys<'_>,
        accounts: Accounts<'_>,
    ) -> Result<Reply, ChapFault> {
        match self.algorithm {
            None => self.make_challenge(keys, accounts.algorithm_min),
            Some(algorithm) => self.check_response(algorithm, keys, accounts),
        }
    }

    fn make_challenge(
        &mut self,
        mut keys: Keys<'_>,
        min: ChapAlgorithm,
    ) -> Result<Reply, ChapFault> {
        let list = keys.algorithms.take().ok_or(ChapFault::Missing { key: "CHAP_A" })?;
        if let Some(key) = keys.first() {
            return Err(ChapFault::NotDue { key });
        }
        let algorithm = ChapAlgorithm::choose(list, min).ok_or(ChapFault::NoAlgorithm { min })?;
        self.algorithm = Some(algorithm);
        Ok(Reply::Challenge(vec![
            ("CHAP_A", (algorithm as u8).to_string()),
            ("CHAP_I", self.identifier().to_string()),
            ("CHAP_C", binary::encode(&self.challenge)),
        ]))
    }

    fn check_response(
        &self,
        algorithm: ChapAlgorithm,
        keys: Keys<'_>,
        accounts: Accounts<'_>,
    ) -> Result<Reply, ChapFault> {
        if keys.algorithms.is_some() {
            return Err(ChapFault::NotDue { key: "CHAP_A" });
        }
        let name = keys.name.ok_or(ChapFault::Missing { key: "CHAP_N" })?;
        let response = keys.response.ok_or(ChapFault::Missing { key: "CHAP_R" })?;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(ChapFault::IllegalValue { key: "CHAP_N" });
        }
        let response = binary::decode(response, CHALLENGE_MAX)
            .ok_or(ChapFault::IllegalValue { key: "CHAP_R" })?;
        let asked = Asked::read(keys)?;

        let index = self.find(algorithm, name, &response, accounts)?;
        let account = &accounts.all[index];
        let mut pairs = Vec::new();
        if let Some(asked) = asked {
            let own = &accounts.all[accounts.mutual.ok_or(ChapFault::NoMutual)?];
            // RFC 7143 section 9.2.1: a challenge must not come back, and each direction has a
            // separate secret.
            if asked.challenge == self.challenge {
                return Err(ChapFault::Reflected);
            }
            if bool::from(own.secret.bytes().ct_eq(account.secret.bytes())) {
                return Err(ChapFault::SameSecret { account: account.name.clone() });
            }
            let response = algorithm.response(asked.identifier, own, &asked.challenge);
            pairs.push(("CHAP_N", own.name.clone()));
            pairs.push(("CHAP_R", binary::encode(&response)));
        }
        Ok(Reply::Proven { account: index, pairs })
    }

    /// The account of the name and the response. All accounts that may log in are tried, for any name, so that the
    /// time does not reveal which names exist.
    fn find(
        &self,
        algorithm: ChapAlgorithm,
        name: &str,
        response: &[u8],
        accounts: Accounts<'_>,
    ) -> Result<usize, ChapFault> {
        const NONE: u64 = u64::MAX;
        let mut found = NONE;
        let mut named = NONE;
        for &index in accounts.allowed {
            let account = &accounts.all[index];
            let expected = algorithm.response(self.identifier(), account, &self.challenge);
            let is_named = account.name.as_bytes().ct_eq(name.as_bytes());
            let is_right = expected.ct_eq(response);
            named.conditional_assign(&(index as u64), is_named);
            found.conditional_assign(&(index as u64), is_named & is_right);
        }
        if found != NONE {
            Ok(found as usize)
        } else if named != NONE {
            Err(ChapFault::WrongResponse { account: name.to_owned() })
        } else {
            Err(ChapFault::UnknownAccount { name: name.to_owned() })
        }
    }
}

/// The initiator's challenge to the target.
struct Asked {
    identifier: u8,
    challenge: Vec<u8>,
}

impl Asked {
    fn read(keys: Keys<'_>) -> Result<Option<Self>, ChapFault> {
        let (identifier, challenge) = match (keys.identifier, keys.challenge) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(ChapFault::Missing { key: "CHAP_C" }),
            (None, Some(_)) => return Err(ChapFault::Missing { key: "CHAP_I" }),
            (Some(identifier), Some(challenge)) => (identifier, challenge),
        };
        let identifier = text::number(identifier)
            .and_then(|number| u8::try_from(number).ok())
            .ok_or(ChapFault::IllegalValue { key: "CHAP_I" })?;
        let challenge = binary::decode(challenge, CHALLENGE_MAX)
            .ok_or(ChapFault::IllegalValue { key: "CHAP_C" })?;
        Ok(Some(Self { identifier, challenge }))
    }
}

#[cfg(test)]
mod tests;
