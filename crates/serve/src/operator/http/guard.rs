//! Who a client of the HTTP interface is, and what it may do.
//!
//! | client | role |
//! | --- | --- |
//! | on the Unix socket, which the kernel opens for the gateway's user and root alone | `admin` |
//! | with a token of `tokens_file` | that of the token |
//! | with a certificate of `client_ca` | that of its name in `tokens_file`, otherwise `read` |
//! | any other, at a loopback address | `read` |
//! | any other, at another address | none: it sees the page without data, and whether the event loop lives |
//!
//! A wrong token is never taken for no token. [`GUESSES_MAX`] of them in a minute from an address, or an IPv6 network of
//! 64 bits, and its tokens are not looked at for the rest of the minute.

use super::problem::{Fault, GUESSES_MAX};
use super::request::{Bearer, Site};
use crate::aged::Aged;
use crate::config::Http;
use crate::config::http::{Proof, Role, TokenHash, User};
use crate::frontend::socket::{Peer, Socket};
use crate::frontend::tls::{Certificates, TlsError, server_config};
use crate::source::Source;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::sync::Arc;
use weir_flow::clock::Instant;

/// Says who clients are. A reload replaces it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// How connections are encrypted, if they are.
    pub(super) tls: Option<Arc<ServerConfig>>,
    users: Vec<User>,
    hosts: Vec<String>,
    /// What a client at an address may do that proves nothing.
    everybody: Option<Role>,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Its name, if it has proved one.
    pub(super) name: Option<String>,
    /// What it may do.
    pub(super) role: Option<Role>,
}

impl Guard {
    /// Reads certificates and keys.
    pub(crate) fn new(http: &Http) -> Result<Self, TlsError> {
        // Where there are tokens, a client may prove by one what it does not prove by a certificate.
        let any_token = http.users.iter().any(|user| matches!(user.proof, Proof::Token(_)));
        let clients = if any_token { Certificates::Optional } else { Certificates::Required };
        let tls = http.tls.as_ref().map(|tls| server_config(tls, clients)).transpose()?;
        let everybody = (!http.listen.is_remote()).then_some(Role::Read);
        Ok(Self { tls, users: http.users.clone(), hosts: http.hosts.clone(), everybody })
    }

    /// The names that a request may have in `Host`, and its scheme.
    pub(super) fn site(&self, socket: &Socket) -> Site<'_> {
        let local = socket.local().map(|address| address.ip());
        Site { secure: self.tls.is_some(), local, hosts: &self.hosts }
    }

    /// Who has sent a request.
    pub(super) fn admit(
        &self,
        socket: &Socket,
        bearer: &Bearer,
        guesses: &mut Guesses,
        now: Instant,
    ) -> Result<Caller, Fault> {
        if let Peer::Unix { .. } = socket.peer() {
            return Ok(Caller { name: Some("owner".to_owned()), role: Some(Role::Admin) });
        }
        match bearer {
            Bearer::None => Ok(self.shown(socket.peer_certificate())),
            Bearer::Malformed => Err(guesses.wrong(socket.peer().source(), now)),
            Bearer::Token(token) => {
                let source = socket.peer().source();
                guesses.allowed(source, now)?;
                self.bearer(token).ok_or_else(|| guesses.wrong(source, now))
            }
        }
    }

    /// The user of a token. All hashes are compared, so that the time does not depend on which one it is.
    fn bearer(&self, token: &str) -> Option<Caller> {
        let hash = TokenHash::of(token);
        let mut found = None;
        for user in &self.users {
            if matches!(user.proof, Proof::Token(known) if known.is(hash)) {
                found = Some(user);
            }
        }
        found.map(Caller::of)
    }

    /// The user of a certificate: of several the one who may do most.
    fn shown(&self, certificate: Option<&CertificateDer<'_>>) -> Caller {
        let parsed = certificate.and_then(|one| ParsedCertificate::try_from(one).ok());
        let Some(parsed) = parsed else { return Caller { name: None, role: self.everybody } };
        let is = |user: &&User| match &user.proof {
            Proof::Token(_) => false,
            Proof::Certificate(name) => ServerName::try_from(name.as_str())
                .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok()),
        };
        match self.users.iter().filter(is).max_by_key(|user| user.role) {
            Some(user) => Caller::of(user),
            None => Caller { name: Some("a certificate".to_owned()), role: Some(Role::Read) },
        }
    }
}

impl Caller {
    fn of(user: &User) -> Self {
        Self { name: Some(user.name.clone()), role: Some(user.role) }
    }

    /// Refuses what needs a stronger role.
    pub(super) fn may(&self, needed: Option<Role>) -> Result<(), Fault> {
        match needed {
            Some(needed) if self.role < Some(needed) => match self.name {
                None => Err(Fault::NoProof(needed)),
                Some(_) => Err(Fault::Role(needed)),
            },
            _ => Ok(()),
        }
    }
}

/// Wrong tokens of this minute, by origin.
#[derive(Debug)]
pub(super) struct Guesses {
    counts: Aged<Source, Guessed>,
}

#[derive(Clone, Copy, Debug)]
struct Guessed {
    minute: u64,
    count: u32,
}

impl Guesses {
    pub(super) fn new() -> Self {
        Self { counts: Aged::new(SOURCES_MAX) }
    }

    /// Refuses an origin that has guessed too often in this minute.
    fn allowed(&self, source: Source, now: Instant) -> Result<(), Fault> {
        let known = self.counts.get(&source);
        let spent =
            known.is_some_and(|(_, one)| one.minute == minute(now) && one.count >= GUESSES_MAX);
        if spent { Err(Fault::TooManyGuesses) } else { Ok(()) }
    }

    /// Counts a wrong token.
    fn wrong(&mut self, source: Source, now: Instant) -> Fault {
        if let Err(fault) = self.allowed(source, now) {
            return fault;
        }
        let minute = minute(now);
        self.counts.update(source, now, |known| match known {
            Some((_, one)) if one.minute == minute => Guessed { count: one.count + 1, ..one },
            _ => Guessed { minute, count: 1 },
        });
        Fault::WrongToken
    }
}

const fn minute(now: Instant) -> u64 {
    now.as_nanos() / 60_000_000_000
}

/// Origins whose wrong tokens are counted; beyond it the one that has guessed longest ago is forgotten.
const SOURCES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::clock::Duration;

    fn source(last: u8) -> Source {
        Source::of(std::net::Ipv4Addr::new(192, 0, 2, last).into())
    }

    /// An address has ten guesses in a minute; another has its own, and the next minute has ten more.
    #[test]
    fn guesses_of_an_address_are_bounded() {
        let mut guesses = Guesses::new();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        for _ in 0..GUESSES_MAX {
            assert_eq!(guesses.allowed(source(1), at(60)), Ok(()));
            assert_eq!(guesses.wrong(source(1), at(60)), Fault::WrongToken);
        }
        assert_eq!(guesses.allowed(source(1), at(119)), Err(Fault::TooManyGuesses));
        assert_eq!(guesses.wrong(source(1), at(119)), Fault::TooManyGuesses);
        assert_eq!(guesses.allowed(source(2), at(119)), Ok(()));
        assert_eq!(guesses.allowed(source(1), at(120)), Ok(()));
    }

    /// A role may do what weaker ones may. Who has proved nothing is asked for a proof, others are refused.
    #[test]
    fn roles_are_ordered() {
        let caller = |name: Option<&str>, role| Caller { name: name.map(str::to_owned), role };
        for role in Role::ALL {
            for needed in Role::ALL {
                let allowed = caller(Some("a"), Some(role)).may(Some(needed));
                assert_eq!(allowed, if role >= needed { Ok(()) } else { Err(Fault::Role(needed)) });
            }
        }
        let nobody = caller(None, None);
        assert_eq!(nobody.may(None), Ok(()));
        assert_eq!(nobody.may(Some(Role::Read)), Err(Fault::NoProof(Role::Read)));
        let reads = caller(None, Some(Role::Read)).may(Some(Role::Admin));
        assert_eq!(reads, Err(Fault::NoProof(Role::Admin)));
    }
}
