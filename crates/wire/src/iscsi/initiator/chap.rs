//! The initiator's side of the challenge handshake (RFC 7143 section 12.1.3, RFC 1994).

use subtle::ConstantTimeEq;

use super::fault::ChapFault;
use super::settings::Chap;
use crate::iscsi::chap::{CHALLENGE_LENGTH, CHALLENGE_MAX, ChapAlgorithm, Keys};
use crate::iscsi::{binary, text};

/// The algorithms that are offered. MD5 comes first, because targets take the first that they know, and
/// the number of SHA-256 means SHA-1 to some that are older than its registration. Nothing is lost:
/// who can change what a target answers can choose MD5 from any list.
const ALGORITHMS: &str = "5,7";

/// The state of the authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The methods were offered.
    Offered,
    /// The algorithms were offered.
    Asked,
    /// The proof was sent, and the target's is due.
    Proven(ChapAlgorithm),
    /// The authentication is complete.
    Done,
}

/// Keys and values to send.
type Pairs = Vec<(&'static str, String)>;

/// One handshake. It takes one challenge and makes one.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    /// The challenge for the target, used only once.
    challenge: [u8; CHALLENGE_LENGTH],
    state: State,
}

impl Handshake {
    pub(super) const fn new(challenge: [u8; CHALLENGE_LENGTH]) -> Self {
        Self { challenge, state: State::Offered }
    }

    /// The methods to offer. A target that must prove itself is not offered to leave it out.
    pub(super) const fn methods(chap: Option<&Chap>) -> &'static str {
        match chap {
            None => "None",
            Some(Chap { target: None, .. }) => "CHAP,None",
            Some(Chap { target: Some(_), .. }) => "CHAP",
        }
    }

    /// Whether the initiator has nothing more to say in the security stage.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether a request that follows now may ask for the next stage: unless the target's challenge is
    /// still to come.
    pub(super) const fn may_go_on(&self) -> bool {
        !matches!(self.state, State::Asked)
    }

    /// Takes the target's next text in the security stage; returns what to say.
    pub(super) fn step(
        &mut self,
        method: Option<&str>,
        keys: Keys<'_>,
        chap: Option<&Chap>,
    ) -> Result<Pairs, ChapFault> {
        if method.is_some() && self.state != State::Offered {
            return Err(ChapFault::NotDue { key: "AuthMethod" });
        }
        match (&self.state, chap) {
            (State::Offered, _) => {
                if let Some(key) = keys.first() {
                    return Err(ChapFault::NotDue { key });
                }
                self.choose(method.unwrap_or("None"), chap)
            }
            (State::Asked, Some(chap)) => self.prove(keys, chap),
            (State::Proven(algorithm), Some(Chap { target: Some(_), .. })) => {
                self.check(*algorithm, keys, chap).map(|()| Vec::new())
            }
            _ => keys.first().map_or(Ok(Vec::new()), |key| Err(ChapFault::NotDue { key })),
        }
    }

    fn choose(&mut self, method: &str, chap: Option<&Chap>) -> Result<Pairs, ChapFault> {
        match (method, chap) {
            ("None", Some(Chap { target: Some(_), .. })) => Err(ChapFault::NotAuthenticated),
            ("None", _) => {
                self.state = State::Done;
                Ok(Vec::new())
            }
            ("CHAP", Some(_)) => {
                self.state = State::Asked;
                Ok(vec![("CHAP_A", ALGORITHMS.to_owned())])
            }
            _ => Err(ChapFault::NotConfigured { method: method.to_owned() }),
        }
    }

    /// Answers the target's challenge, and makes one if the target must prove itself.
    fn prove(&mut self, keys: Keys<'_>, chap: &Chap) -> Result<Pairs, ChapFault> {
        for (value, key) in [(keys.name, "CHAP_N"), (keys.response, "CHAP_R")] {
            if value.is_some() {
                return Err(ChapFault::NotDue { key });
            }
        }
        let name = keys.algorithms.ok_or(ChapFault::Missing { key: "CHAP_A" })?;
        let algorithm =
            if name.contains(',') { None } else { ChapAlgorithm::choose(name, ChapAlgorithm::Md5) };
        let algorithm = algorithm.ok_or_else(|| ChapFault::Algorithm { name: name.to_owned() })?;
        let identifier = keys.identifier.ok_or(ChapFault::Missing { key: "CHAP_I" })?;
        let identifier = text::number(identifier)
            .and_then(|number| u8::try_from(number).ok())
            .ok_or(ChapFault::IllegalValue { key: "CHAP_I" })?;
        let challenge = keys.challenge.ok_or(ChapFault::Missing { key: "CHAP_C" })?;
        let challenge = binary::decode(challenge, CHALLENGE_MAX)
            .ok_or(ChapFault::IllegalValue { key: "CHAP_C" })?;
        // RFC 7143 section 9.2.1: a challenge is never sent back.
        if challenge == self.challenge {
            return Err(ChapFault::Reflected);
        }

        let response = algorithm.response(identifier, &chap.account, &challenge);
        let mut pairs =
            vec![("CHAP_N", chap.account.name.clone()), ("CHAP_R", binary::encode(&response))];
        if chap.target.is_some() {
            pairs.push(("CHAP_I", self.identifier().to_string()));
            pairs.push(("CHAP_C", binary::encode(&self.challenge)));
            self.state = State::Proven(algorithm);
        } else {
            self.state = State::Done;
        }
        Ok(pairs)
    }

    /// Checks the target's response.
    fn check(
        &mut self,
        algorithm: ChapAlgorithm,
        keys: Keys<'_>,
        chap: Option<&Chap>,
    ) -> Result<(), ChapFault> {
        let stray = Keys { name: None, response: None, ..keys }.first();
        if let Some(key) = stray {
            return Err(ChapFault::NotDue { key });
        }
        let name = keys.name.ok_or(ChapFault::Missing { key: "CHAP_N" })?;
        let response = keys.response.ok_or(ChapFault::Missing { key: "CHAP_R" })?;
        let response = binary::decode(response, CHALLENGE_MAX)
            .ok_or(ChapFault::IllegalValue { key: "CHAP_R" })?;
        let account = chap.and_then(|chap| chap.target.as_ref());
        let account = account.ok_or(ChapFault::NotDue { key: "CHAP_N" })?;
        if account.name != name {
            return Err(ChapFault::WrongName { name: name.to_owned() });
        }
        let expected = algorithm.response(self.identifier(), account, &self.challenge);
        if !bool::from(expected.ct_eq(&response)) {
            return Err(ChapFault::WrongResponse);
        }
        self.state = State::Done;
        Ok(())
    }

    /// The identifier that goes with the challenge; it need only change with it.
    const fn identifier(&self) -> u8 {
        self.challenge[0]
    }
}
