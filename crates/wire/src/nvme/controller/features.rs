//! Features: what a host can set.

use std::time::Duration;

use super::events::Event;
use super::notices::of_one;
use super::{Action, Controller, View};
use crate::nvme::event::Completion;
use crate::nvme::pdu::{Sqe, Transfer};
use crate::nvme::status::Status;

/// The values of a controller's features.
#[derive(Debug)]
pub(super) struct Features {
    /// Keep alive timeout; `None` without a timer.
    pub(super) kato: Option<Duration>,
    /// Events that the host wants.
    pub(super) events: u32,
    /// The host retries a command after the delay that its status names (ACRE).
    retry_delays: bool,
}

impl Features {
    pub(super) fn new(is_discovery: bool, kato_ms: u32) -> Self {
        // A host that does not keep its discovery controller alive forgets it.
        let kato = match (is_discovery, kato_ms) {
            (true, 0) => Some(DISCOVERY_SILENCE),
            (_, kato_ms) => timeout(kato_ms),
        };
        Self { kato, events: 0, retry_delays: false }
    }

    /// The values after a reset. The keep alive timeout is Connect's, and stays.
    pub(super) const fn reset(&mut self) {
        self.events = 0;
        self.retry_delays = false;
    }
}

/// A keep alive timeout: rounded up to whole seconds, up to 10 minutes.
fn timeout(kato_ms: u32) -> Option<Duration> {
    let seconds = kato_ms.div_ceil(KEEP_ALIVE_UNIT_MS).min(KEEP_ALIVE_MAX_S);
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

impl Controller {
    /// The keep alive timeout, rounded; `None` without a timer.
    pub const fn keep_alive(&self) -> Option<Duration> {
        self.features.kato
    }

    /// Whether the host retries a command after the delay that its status names.
    pub const fn retries_delayed(&self) -> bool {
        self.features.retry_delays
    }

    /// The events that this kind of controller has (OAES).
    pub(super) fn events_offered(&self) -> u32 {
        if self.is_discovery() {
            Event::DiscoveryChange.bit()
        } else {
            Event::NamespaceAttribute.bit() | Event::AnaChange.bit()
        }
    }

    pub(super) fn get_features(
        &self,
        sqe: &Sqe,
        transfer: Transfer,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        // A feature that is a value has no data, and a host that expects some would get none.
        let value = |value| match transfer.to_host() {
            None | Some(0) => Ok(Action::Complete(Completion::value(value))),
            Some(_) => Err(Status::SGL_LENGTH_INVALID),
        };
        let id = sqe.cdw(10) as u8;
        match id {
            id::EVENTS => value(self.features.events),
            id::KEEP_ALIVE => value(self.features.kato.map_or(0, |kato| kato.as_millis() as u32)),
            _ if self.is_discovery() => Err(Status::INVALID_FIELD),
            id::QUEUES => value(self.queues(self.limits.queues - 1)),
            id::WRITE_CACHE => value(1),
            _ if id::FIXED.contains(&id) => value(0),
            id::HOST_BEHAVIOUR => {
                let mut data = [0; HOST_BEHAVIOUR_LENGTH];
                data[0] = self.features.retry_delays.into();
                answer(transfer, &data)
            }
            id::RESERVATION_NOTICES => value(self.masked_notices(sqe.nsid(), view)?),
            id::RESERVATION_PERSISTENCE => {
                value(0)?;
                of_one(sqe.nsid(), view)?;
                Ok(Action::Persistence { nsid: sqe.nsid(), set: None })
            }
            // EXHID: over fabrics the identifier has 16 bytes.
            id::HOST_ID if sqe.cdw(11) & 1 == 1 => answer(transfer, &self.host_id),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set_features(
        &mut self,
        sqe: &Sqe,
        transfer: Transfer,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        let done = |value| Ok(Action::Complete(Completion::value(value)));
        let id = sqe.cdw(10) as u8;
        let value = sqe.cdw(11);
        let is_known = id::ALL.contains(&id)
            && (!self.is_discovery() || matches!(id, id::EVENTS | id::KEEP_ALIVE));
        if !is_known {
            return Err(Status::INVALID_FIELD);
        }
        if sqe.cdw(10) & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let has_data = transfer.from_host().is_some_and(|length| length > 0);
        if has_data && id != id::HOST_BEHAVIOUR {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        match id {
            id::QUEUES => {
                let (submission, completion) = (value as u16, (value >> 16) as u16);
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let granted = submission.min(completion).min(self.limits.queues - 1);
                done(self.queues(granted))
            }
            id::EVENTS => {
                // Bits 7:0 are critical warnings, of which there are none.
                if value & !(self.events_offered() | CRITICAL_WARNINGS) != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                self.features.events = value;
                self.events.keep(value);
                done(0)
            }
            id::KEEP_ALIVE => {
                self.features.kato = match (self.is_discovery(), value) {
                    (true, 0) => Some(DISCOVERY_SILENCE),
                    (_, value) => timeout(value),
                };
                done(0)
            }
            id::HOST_BEHAVIOUR if transfer.from_host() == Some(HOST_BEHAVIOUR_LENGTH as u32) => {
                Ok(Action::Gather(HOST_BEHAVIOUR_LENGTH as u32))
            }
            id::HOST_BEHAVIOUR => Err(Status::SGL_LENGTH_INVALID),
            id::RESERVATION_NOTICES => self.mask_notices(sqe.nsid(), value, view),
            id::RESERVATION_PERSISTENCE => {
                of_one(sqe.nsid(), view)?;
                Ok(Action::Persistence { nsid: sqe.nsid(), set: Some(value & 1 != 0) })
            }
            // The identifier is Connect's.
            id::HOST_ID => Err(Status::SEQUENCE_ERROR),
            _ => Err(Status::FEATURE_NOT_CHANGEABLE),
        }
    }

    /// Continues an admin command whose data was gathered.
    pub fn gathered(&mut self, sqe: &Sqe, data: &[u8]) -> Action {
        // Host Behavior Support is the one command that gathers.
        debug_assert_eq!(sqe.cdw(10) as u8, id::HOST_BEHAVIOUR);
        match data.first() {
            Some(0) => self.features.retry_delays = false,
            Some(1) => self.features.retry_delays = true,
            _ => return Action::failed(Status::INVALID_FIELD),
        }
        Action::Complete(Completion::SUCCESS)
    }

    /// Numbers of queues, zero-based: as many submission as completion queues.
    fn queues(&self, granted: u16) -> u32 {
        let granted = u32::from(granted.min(self.limits.queues - 1));
        granted | granted << 16
    }
}

/// Data of a feature, for which the host must have exactly the right room.
fn answer(transfer: Transfer, data: &[u8]) -> Result<Action, Status> {
    if transfer.to_host() != Some(data.len() as u32) {
        return Err(Status::SGL_LENGTH_INVALID);
    }
    Ok(Action::data(data))
}

/// Feature identifiers.
pub(super) mod id {
    pub(super) const ARBITRATION: u8 = 0x01;
    pub(super) const POWER: u8 = 0x02;
    pub(super) const TEMPERATURE: u8 = 0x04;
    pub(super) const ERROR_RECOVERY: u8 = 0x05;
    pub(super) const WRITE_CACHE: u8 = 0x06;
    pub(super) const QUEUES: u8 = 0x07;
    pub(super) const WRITE_ATOMICITY: u8 = 0x0a;
    pub(in super::super) const EVENTS: u8 = 0x0b;
    pub(in super::super) const KEEP_ALIVE: u8 = 0x0f;
    pub(super) const HOST_BEHAVIOUR: u8 = 0x16;
    pub(super) const HOST_ID: u8 = 0x81;
    pub(super) const RESERVATION_NOTICES: u8 = 0x82;
    pub(super) const RESERVATION_PERSISTENCE: u8 = 0x83;

    /// Those that are always zero.
    pub(super) const FIXED: [u8; 5] =
        [ARBITRATION, POWER, TEMPERATURE, ERROR_RECOVERY, WRITE_ATOMICITY];
    /// All, in ascending order.
    pub(in super::super) const ALL: [u8; 13] = [
        ARBITRATION,
        POWER,
        TEMPERATURE,
        ERROR_RECOVERY,
        WRITE_CACHE,
        QUEUES,
        WRITE_ATOMICITY,
        EVENTS,
        KEEP_ALIVE,
        HOST_BEHAVIOUR,
        HOST_ID,
        RESERVATION_NOTICES,
        RESERVATION_PERSISTENCE,
    ];
    /// Those of which each namespace has its own.
    pub(in super::super) const OF_NAMESPACES: [u8; 2] =
        [RESERVATION_NOTICES, RESERVATION_PERSISTENCE];
}

/// Dword 10 of Set Features: the value outlives a reset (SV).
const SAVE: u32 = 1 << 31;
/// Critical warnings in the mask of events.
const CRITICAL_WARNINGS: u32 = 0xff;
/// Granularity of the keep alive timer, in milliseconds.
const KEEP_ALIVE_UNIT_MS: u32 = 1000;
/// Longest keep alive timeout, in seconds.
const KEEP_ALIVE_MAX_S: u32 = 600;
/// How long a host without a keep alive timeout may be silent towards a discovery controller.
const DISCOVERY_SILENCE: Duration = Duration::from_mins(2);
/// Length of the data of Host Behavior Support, in bytes.
const HOST_BEHAVIOUR_LENGTH: usize = 512;
