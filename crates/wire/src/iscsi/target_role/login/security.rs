//! The security stage: the authentication method and its keys (RFC 7143 sections 6.3.2 and 12.1).

use super::{LoginFault, SECURITY};
use crate::iscsi::chap::Keys;
use crate::iscsi::target_role::chap::{Accounts, Chap, ChapFault, NAME_MAX, Reply};
use crate::iscsi::target_role::{Authentication, Connection, Node};
use crate::iscsi::text;

/// The state of the authentication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Security {
    /// No method was chosen.
    #[default]
    Open,
    /// The handshake is in progress.
    Shaking(Chap),
    /// The initiator has authenticated, or no authentication was required.
    Done,
}

/// The authentication that a session requires.
fn demanded(node: &Node, target: Option<usize>) -> &Authentication {
    target.map_or(&node.discovery, |target| &node.targets[target].authentication)
}

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    fn must_authenticate(&self) -> bool {
        !demanded(&self.node, self.login.target).accounts.is_empty()
    }

    /// Answers `AuthMethod`.
    pub(super) fn choose_method(&mut self, list: &str) -> Result<(), LoginFault> {
        if self.login.stage != SECURITY {
            return Err(LoginFault::KeyOutOfPlace { key: "AuthMethod".to_owned() });
        }
        let (method, next) = if self.must_authenticate() {
            ("CHAP", Security::Shaking(Chap::new(self.challenge)))
        } else {
            ("None", Security::Done)
        };
        // RFC 7143 section 6.2.1: of a list, the first value that the responder can and may use.
        // With accounts that is CHAP alone, without there is nothing to authenticate.
        if list.split(',').all(|one| one != method) {
            return Err(LoginFault::NoMethod { needed: method });
        }
        text::push(&mut self.login.outgoing, "AuthMethod", method);
        self.login.security = next;
        Ok(())
    }

    /// Takes the CHAP keys of one text. `was` is how far the authentication had come before it:
    /// the method is agreed on before its keys come.
    pub(super) fn authenticate(&mut self, keys: Keys<'_>, was: Security) -> Result<(), LoginFault> {
        let Security::Shaking(mut chap) = was else {
            let stray = keys.first().map(|key| ChapFault::NotDue { key }.into());
            return stray.map_or(Ok(()), Err);
        };
        if keys.first().is_none() {
            return Err(LoginFault::NotAuthenticated);
        }
        let demanded = demanded(&self.node, self.login.target);
        let accounts = Accounts {
            all: &self.node.accounts,
            allowed: &demanded.accounts,
            mutual: demanded.mutual,
            algorithm_min: self.limits.chap_algorithm_min,
        };
        let pairs = match chap.step(keys, accounts)? {
            Reply::Challenge(pairs) => {
                self.login.security = Security::Shaking(chap);
                pairs
            }
            Reply::Proven { account, pairs } => {
                self.login.security = Security::Done;
                self.login.account = Some(self.node.accounts[account].name.clone());
                pairs
            }
        };
        for (key, value) in pairs {
            text::push(&mut self.login.outgoing, key, &value);
        }
        Ok(())
    }

    /// The account of which a text has the name and the response, while it is due. A name that no account can have
    /// is none.
    pub(super) fn offered_account<'a>(&self, incoming: &'a [u8]) -> Option<&'a str> {
        let Security::Shaking(chap) = self.login.security else { return None };
        let mut pairs = text::pairs(incoming).ok()?;
        let name = pairs.find_map(|(key, value)| (key == "CHAP_N").then_some(value))?;
        (chap.awaits_response() && (1..=NAME_MAX).contains(&name.len())).then_some(name)
    }

    /// A login that starts behind the security stage, or leaves it early, is not authenticated.
    fn check_proof(&self) -> Result<(), LoginFault> {
        let is_open = matches!(self.login.security, Security::Open);
        if is_open && self.must_authenticate() { Err(LoginFault::NotAuthenticated) } else { Ok(()) }
    }

    /// Checks that a request outside of the security stage is authenticated.
    pub(super) fn check_stage(&self) -> Result<(), LoginFault> {
        if self.login.stage == SECURITY { Ok(()) } else { self.check_proof() }
    }

    /// The stage that a request may enter: none while the authentication is in progress.
    // RFC 7143 section 6.3: the target agrees to a transit by T in its response, or stays.
    pub(super) fn transit(&self, wanted: Option<u8>) -> Result<Option<u8>, LoginFault> {
        if wanted.is_some() {
            self.check_proof()?;
        }
        let is_shaking = matches!(self.login.security, Security::Shaking(_));
        Ok(if is_shaking { None } else { wanted })
    }
}
