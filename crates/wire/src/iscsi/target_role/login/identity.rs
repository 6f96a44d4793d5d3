//! Identifies the initiator and the target of a login (RFC 7143 section 6.3.1).

use super::LoginFault;
use crate::iscsi::target_role::{Connection, TargetEntry};
use crate::iscsi::text;

/// Longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
const NAME_LENGTH_MAX: usize = 223;

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Handles a key that identifies the initiator or the target; returns whether it is one. Some initiators repeat
    /// these keys in the operational stage, which is accepted if the values are unchanged.
    pub(super) fn identity_key(&mut self, key: &str, value: &str) -> Result<bool, LoginFault> {
        let login = &mut self.login;
        let is_same = match key {
            "InitiatorName" if login.initiator.is_empty() && !login.identified => {
                if value.is_empty() || value.len() > NAME_LENGTH_MAX {
                    return Err(LoginFault::IllegalValue { key: key.to_owned() });
                }
                login.initiator = value.to_ascii_lowercase();
                true
            }
            "InitiatorName" => login.initiator.eq_ignore_ascii_case(value),
            "TargetName" => fix(&mut login.target_name, value, login.identified),
            "SessionType" => fix(&mut login.session_type, value, login.identified),
            _ => return Ok(false),
        };
        if is_same { Ok(true) } else { Err(LoginFault::NameChanged { key: key.to_owned() }) }
    }

    /// Remembers the initiator's name of a login that is refused, for the shell.
    pub(super) fn note_initiator(&mut self, incoming: &[u8]) {
        let Ok(mut pairs) = text::pairs(incoming) else { return };
        let name = pairs.find_map(|(key, value)| (key == "InitiatorName").then_some(value));
        if let Some(name) = name.filter(|name| name.len() <= NAME_LENGTH_MAX) {
            self.login.initiator = name.to_ascii_lowercase();
        }
    }

    /// Ends the first text: the names must be there now, and the target must be one that this
    /// initiator may use.
    pub(super) fn identify(&mut self) -> Result<(), LoginFault> {
        let login = &mut self.login;
        // RFC 7143 section 6.3.1: InitiatorName always, TargetName in a normal session.
        if login.initiator.is_empty() {
            return Err(LoginFault::KeyMissing { key: "InitiatorName" });
        }
        // RFC 7143 section 13.21: the default is a normal session.
        login.is_discovery = match &**login.session_type.get_or_insert_with(|| "Normal".to_owned())
        {
            "Normal" => false,
            "Discovery" => true,
            other => return Err(LoginFault::SessionType { name: other.to_owned() }),
        };
        if !login.is_discovery {
            let name = login.target_name.as_deref();
            let name = name.ok_or(LoginFault::KeyMissing { key: "TargetName" })?;
            let is_meant = |entry: &TargetEntry| entry.iqn.eq_ignore_ascii_case(name);
            // A target that was removed keeps its place; one of the same name may follow it.
            let found = |removed: bool| {
                let matches = |entry| is_meant(entry) && entry.removed == removed;
                self.node.targets.iter().position(matches)
            };
            let index = found(false).or_else(|| found(true));
            let index = index.ok_or_else(|| LoginFault::NoSuchTarget { name: name.to_owned() })?;
            check_entry(&self.node.targets[index], &login.initiator)?;
            login.target = Some(index);
        }
        login.identified = true;
        Ok(())
    }

    /// Declares the portal group tag and the alias of the target.
    pub(super) fn introduce(&mut self) {
        let Some(index) = self.login.target else { return };
        let outgoing = &mut self.login.outgoing;
        // RFC 7143 section 13.9: the tag goes into the first response that follows TargetName.
        text::push(outgoing, "TargetPortalGroupTag", &self.node.portal_group.to_string());
        // RFC 7143 section 13.6.
        if let Some(alias) = &self.node.targets[index].alias {
            text::push(outgoing, "TargetAlias", alias);
        }
    }
}

/// Stores a value, which may be given until the end of the first text. Returns whether it is accepted.
fn fix(slot: &mut Option<String>, value: &str, is_fixed: bool) -> bool {
    match slot {
        Some(known) => known == value,
        None if is_fixed => false,
        None => {
            *slot = Some(value.to_owned());
            true
        }
    }
}

/// Whether the initiator may use the target. This check precedes the authentication, which RFC 7143 permits: a
/// refusal then costs no extra round trip.
fn check_entry(entry: &TargetEntry, initiator: &str) -> Result<(), LoginFault> {
    let target = || entry.iqn.clone();
    if !entry.is_for(initiator) {
        return Err(LoginFault::NotAdmitted { target: target() });
    }
    if entry.removed {
        return Err(LoginFault::Removed { target: target() });
    }
    match &entry.redirect {
        None if entry.unavailable => Err(LoginFault::Unavailable { target: target() }),
        None => Ok(()),
        Some(redirect) => Err(LoginFault::Redirected {
            target: target(),
            portal: redirect.portal.clone(),
            permanent: redirect.permanent,
        }),
    }
}
