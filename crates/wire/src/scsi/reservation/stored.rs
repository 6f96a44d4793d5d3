//! Encoding of the reservations that survive a loss of power.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 6 | `weir-pr` |
//! | 7 | version: 2 if an NVMe host is registered, else 1, which older releases read |
//! | 8 to 11 | length of the whole, in bytes |
//! | 12 | 1 if anything outlives a loss of power (APTPL), else 0, and nothing but zeros follows |
//! | 13 | type of the persistent reservation, or 0 |
//! | 14 to 15 | number of registrations |
//!
//! Registrations follow in ascending order of their nexus, and then of their NVMe host: the key, 8 bytes; 1 if it is
//! the only holder's, else 0; in version 2 the kind, 0 for a nexus and 1 for a host. Then for a nexus the ISID, 6
//! bytes, and the initiator's name and the target's name, each after two bytes with its length; for a host its
//! identifier, 16 bytes. Numbers are big-endian.

use super::keys::Keys;
use super::rules::Kind;
use super::transport_id::NAME_LENGTH_MAX;
use super::{Persistent, REGISTRATIONS_MAX, Reservations};
use crate::scsi::nexus::{InitiatorPort, Nexus, Registrant, RegistrantRef};

/// The error of invalid stored reservations. Positions are in bytes from their beginning. Do not use a unit whose
/// reservations cannot be read until an operator has restored or removed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are something else.
    #[error("these are no stored reservations, which begin with `weir-pr`")]
    Foreign,
    /// A later version of Weir wrote them.
    #[error("stored reservations of version {found}, only versions 1 and {VERSION} can be read")]
    Version {
        /// The version.
        found: u8,
    },
    /// They were cut off or something was added.
    #[error("stored reservations of {found} bytes that say they have {said}")]
    Length {
        /// The length that they give.
        said: usize,
        /// The number of bytes.
        found: usize,
    },
    /// A field reaches beyond the end.
    #[error("the field at byte {at} of stored reservations reaches beyond their end")]
    CutOff {
        /// Offset of the field.
        at: usize,
    },
    /// Something follows the last registration.
    #[error("stored reservations end at byte {at}, but more follows")]
    Surplus {
        /// Offset of their end.
        at: usize,
    },
    /// A field has a value that it cannot have.
    #[error("byte {at} of stored reservations begins a field with an impossible value")]
    Value {
        /// Offset of the field.
        at: usize,
    },
    /// A registration is not behind the one before it.
    #[error("the registration at byte {at} of stored reservations is out of order or there twice")]
    Order {
        /// Its offset.
        at: usize,
    },
    /// The persistent reservation does not have the holders that its type asks for.
    #[error(
        "a stored reservation of type {kind} with {holders} single holders and {registrations} registrations"
    )]
    Holders {
        /// The type, or 0 if there is no reservation.
        kind: u8,
        /// The number of registrations that claim to be the only holder.
        holders: usize,
        /// The number of registrations.
        registrations: usize,
    },
}

impl Reservations {
    /// Encodes the state that must survive a loss of power, for [`decode`](Self::decode). At most about 64 KiB.
    pub fn encode(&self) -> Vec<u8> {
        let with_hosts = self.survives && self.keys.has_hosts();
        let version = if with_hosts { VERSION } else { VERSION_OF_NEXUSES };
        let mut bytes = [TAG.as_slice(), &[version], &[0; 8]].concat();
        if self.survives {
            bytes[12] = 1;
            bytes[13] = self.persistent.as_ref().map_or(0, |persistent| persistent.kind.code());
            bytes[14..16].copy_from_slice(&(self.keys.len() as u16).to_be_bytes());
            let held = self.persistent.as_ref();
            for (who, key) in self.keys.iter() {
                bytes.extend_from_slice(&key.to_be_bytes());
                bytes.push(held.is_some_and(|held| held.is_held_alone_by(who)).into());
                if with_hosts {
                    bytes.push(matches!(who, RegistrantRef::Nvme(_)).into());
                }
                match who {
                    RegistrantRef::Scsi(nexus) => {
                        bytes.extend_from_slice(&nexus.initiator.isid);
                        for name in [&nexus.initiator.name, &nexus.target] {
                            bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
                            bytes.extend_from_slice(name.as_bytes());
                        }
                    }
                    RegistrantRef::Nvme(host) => bytes.extend_from_slice(host),
                }
            }
        }
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// The state after a loss of power: what [`encode`](Self::encode) kept, with PRGENERATION
    /// zero.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take() != Ok(*TAG) {
            return Err(DecodeError::Foreign);
        }
        let [version] = reader.take()?;
        if !matches!(version, VERSION_OF_NEXUSES | VERSION) {
            return Err(DecodeError::Version { found: version });
        }
        let said = u32::from_be_bytes(reader.take()?) as usize;
        if said != bytes.len() {
            return Err(DecodeError::Length { said, found: bytes.len() });
        }
        let survives = reader.flag()?;
        let [code] = reader.take()?;
        let kind = Kind::from_code(code);
        if code != 0 && (kind.is_none() || !survives) {
            return Err(DecodeError::Value { at: 13 });
        }
        let count = usize::from(u16::from_be_bytes(reader.take()?));
        if count > REGISTRATIONS_MAX || count > 0 && !survives {
            return Err(DecodeError::Value { at: 14 });
        }
        let mut keys = Keys::default();
        let mut holders = Vec::new();
        let mut last: Option<Registrant> = None;
        for _ in 0..count {
            let at = reader.at;
            let key = u64::from_be_bytes(reader.take()?);
            if key == 0 {
                return Err(DecodeError::Value { at });
            }
            let holds = reader.flag()?;
            let who = if version == VERSION && reader.flag()? {
                Registrant::Nvme(reader.take()?)
            } else {
                let isid = reader.take()?;
                let initiator = InitiatorPort { isid, name: reader.name()? };
                Registrant::Scsi(Nexus { initiator, target: reader.name()? })
            };
            if last.is_some_and(|last| last >= who) {
                return Err(DecodeError::Order { at });
            }
            if holds {
                holders.push(who.clone());
            }
            last = Some(who.clone());
            keys.insert(who, key);
        }
        if (version == VERSION) != keys.has_hosts() {
            return Err(DecodeError::Value { at: 7 });
        }
        if reader.at != bytes.len() {
            return Err(DecodeError::Surplus { at: reader.at });
        }
        let wrong =
            DecodeError::Holders { kind: code, holders: holders.len(), registrations: count };
        let holder = holders.pop();
        let fits = match kind {
            None => holder.is_none(),
            Some(kind) if kind.is_all_registrants() => holder.is_none() && count > 0,
            Some(_) => holder.is_some(),
        };
        if !fits || !holders.is_empty() {
            return Err(wrong);
        }
        let persistent = kind.map(|kind| Persistent { kind, holder });
        Ok(Self { keys, persistent, survives, ..Self::default() })
    }
}

/// Takes fields from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let at = self.at;
        self.at += length;
        self.bytes.get(at..self.at).ok_or(DecodeError::CutOff { at })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut field = [0; N];
        field.copy_from_slice(self.slice(N)?);
        Ok(field)
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        let at = self.at;
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(DecodeError::Value { at }),
        }
    }

    fn name(&mut self) -> Result<String, DecodeError> {
        let at = self.at;
        let length = usize::from(u16::from_be_bytes(self.take()?));
        if !(1..=NAME_LENGTH_MAX).contains(&length) {
            return Err(DecodeError::Value { at });
        }
        let name = str::from_utf8(self.slice(length)?);
        name.map(str::to_owned).map_err(|_| DecodeError::Value { at })
    }
}

const TAG: &[u8; 7] = b"weir-pr";
const VERSION: u8 = 2;
/// The version without NVMe hosts.
const VERSION_OF_NEXUSES: u8 = 1;
