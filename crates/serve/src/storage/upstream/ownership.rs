//! The owner of each unit: one gateway, by a persistent reservation; and what the loss of it means.
//!
//! The units of volumes with a log are claimed before the gateway serves, on every path; a path that connects later
//! claims before it is used ([`claim`](super::claim)); so does every path of an upstream that is away at the start.
//! From then on the reservation is read once a second, and at once
//! when a target refuses a command for it or reports a change. When another gateway has it the upstream is fenced for
//! good: its sessions end, every operation there fails, and the volume is withdrawn from hosts. Only an operator and
//! a restart undo that.

use super::{fold, volume_on};
use crate::config::{Config, Fence, Upstream};
use crate::identity::identity;
use crate::storage::log_device::Logged;
use std::fmt;
use thiserror::Error;
use tracing::{error, info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::rng::mix;

/// A unit that this gateway must not write to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("volume `{volume}`: upstream `{upstream}` must not be written to: {why}")]
pub struct Unowned {
    /// The volume.
    pub volume: String,
    /// Its upstream.
    pub upstream: String,
    /// Why not.
    pub why: Denied,
}

/// The ownership of a unit, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The gateway's key; `None` before the unit was claimed.
    pub(crate) key: Option<u64>,
    /// Whether the unit is the gateway's.
    pub(crate) standing: Standing,
}

/// Whether a unit is the gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is reserved for the gateway.
    Held,
    /// The gateway serves since then and could not claim the unit yet.
    Unclaimed {
        /// Since when.
        since: Instant,
        /// Why not.
        why: String,
    },
    /// Another gateway owns it, or may, and this one waits for a move: there is no session with it.
    Standby {
        /// Since when.
        since: Instant,
        /// The key of the gateway that has it, if that is known.
        holder: Option<u64>,
    },
    /// It is not the gateway's, for good.
    Fenced {
        /// Since when.
        since: Instant,
        /// The key of the gateway that has it, if that is known.
        holder: Option<u64>,
        /// Why the unit could not be claimed; `None` if it was the gateway's.
        why: Option<Denied>,
    },
}

/// The ownership of one unit by this gateway, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The lower 48 bits of the gateway's keys.
    pub(super) id: u64,
    /// The log has data that is nowhere else.
    pub(super) dirty: bool,
    /// Keys that the operator lets it take over from; 0 for no owner.
    pub(super) expected: Vec<u64>,
    /// Its key, once it is known.
    pub(super) key: Option<u64>,
    /// The reservation is its own.
    pub(super) holds: bool,
    /// Since when it is not any more, and the key of the new holder.
    pub(super) lost: Option<(Instant, Option<u64>)>,
    /// Why it could not become the owner.
    pub(super) denied: Option<Denied>,
    /// How it changes hands by a planned move.
    pub(super) turn: Turn,
    /// Since when the gateway serves: a denial fences the upstream then, and fails the start before.
    serves_since: Option<Instant>,
    /// When the reservation is read again.
    check_at: Instant,
    /// The target keeps registrations over a loss of power, as far as it has not said otherwise.
    pub(super) survives: bool,
    /// It knows PREEMPT AND ABORT, as far as it has not said otherwise.
    pub(super) aborts: bool,
}

/// How a unit changes hands by a planned move (`weir_flow::site`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Its volume stays at this gateway.
    Never,
    /// Its volume may be moved. A claim that another gateway's key denies is no error.
    Ready,
    /// Another gateway may take it over from this one's key, just now.
    Given,
    /// Another gateway owns it, or may: no session is started.
    Away {
        /// Since when.
        since: Instant,
        /// Its key, if that is known.
        holder: Option<u64>,
    },
    /// It may be claimed from exactly this key.
    Granted(u64),
}

/// The owner of each upstream's unit, by its index; `None` where the unit is not reserved.
pub(crate) fn owners(config: &Config, logs: &[Option<Logged>]) -> Vec<Option<Owner>> {
    let node = identity();
    let owner = |(index, upstream): (usize, &Upstream)| {
        let volume = volume_on(config, index)?;
        let name = &config.volumes[volume].name;
        let log = logs.get(volume).copied().flatten();
        let wanted = match upstream.fence {
            Fence::Auto => log.is_some(),
            Fence::On => true,
            Fence::Off => false,
        };
        if !wanted {
            if log.is_some() {
                warn!(
                    volume = name,
                    upstream = upstream.name,
                    "another gateway could write there: `fence = \"off\"`"
                );
            }
            return None;
        }
        // The gateway that has the log is the same gateway on any machine.
        let id = if let Some(log) = log {
            let number = u128::from_be_bytes(log.id);
            mix(number as u64 ^ mix((number >> 64) as u64))
        } else {
            let initiator = upstream.initiator_name.as_deref().unwrap_or(&node);
            fold(&[initiator, &upstream.name, name])
        };
        let expected = config.take_over.iter().filter(|&&(of, _)| of == volume);
        let expected = expected.map(|&(_, key)| key).collect();
        let mut owner = Owner::new(id, log.is_some_and(|log| log.dirty), expected);
        if config.volumes[volume].movable {
            owner.turn = Turn::Ready;
        }
        Some(owner)
    };
    config.upstreams.iter().enumerate().map(owner).collect()
}

/// Another gateway has the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenOver {
    /// Its key, if it is known.
    pub(super) by: Option<u64>,
}

/// What becomes of the reservation when the gateway stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Nothing is to be done.
    None,
    /// The registrations are cleared with this key.
    Clear(u64),
}

impl Owner {
    /// An owner with this identity, whose last part is unique among gateways.
    pub(crate) fn new(identity: u64, dirty: bool, expected: Vec<u64>) -> Self {
        Self {
            id: identity & ID,
            dirty,
            expected,
            key: None,
            holds: false,
            lost: None,
            denied: None,
            turn: Turn::Never,
            serves_since: None,
            check_at: Instant::ZERO,
            survives: true,
            aborts: true,
        }
    }

    /// Whether a key is this gateway's, of this start or an earlier one.
    pub(super) const fn knows(&self, key: u64) -> bool {
        key & ID == self.id
    }

    /// Whether this is the reservation that keeps all others from writing.
    pub(super) fn is_ours(&self, holder: Option<Holder>) -> bool {
        holder.is_some_and(|holder| Some(holder.key) == self.key && holder.kind == KIND)
    }

    /// The key, for the log.
    pub(super) fn key(&self) -> Key {
        Key(self.key.unwrap_or(0))
    }

    /// Whether the unit is ours.
    pub(super) const fn owns(&self) -> bool {
        self.holds && self.lost.is_none()
    }

    /// The gateway serves from now on. A unit that it could not claim yet is claimed before the first command; the
    /// log may have data for it by then, so it is not taken if another gateway may have owned it since.
    pub(super) const fn serve(&mut self, now: Instant) {
        self.serves_since = Some(now);
        self.dirty |= !self.holds;
    }

    /// Whether another gateway owns it, or may, and this one waits for a move.
    pub(super) const fn is_away(&self) -> bool {
        matches!(self.turn, Turn::Away { .. })
    }

    /// Whether the loss of the unit is a part of a move, or of a start beside the owner: this gateway has no data that
    /// is only here, and no claim to defend.
    const fn gives_way(&self) -> bool {
        match self.turn {
            Turn::Never => false,
            Turn::Ready => !self.holds && !self.dirty,
            Turn::Given | Turn::Away { .. } | Turn::Granted(_) => true,
        }
    }

    /// The unit is another gateway's, if that is a part of a move; false if it is not.
    pub(super) fn leave(&mut self, by: TakenOver, upstream: &str, now: Instant) -> bool {
        if !self.gives_way() {
            return false;
        }
        let holder = by.by.map_or_else(|| String::from("none"), |key| Key(key).to_string());
        info!(upstream, %holder, "standby: another gateway owns the unit");
        (self.holds, self.key, self.denied) = (false, None, None);
        self.expected.clear();
        self.turn = Turn::Away { since: now, holder: by.by };
        true
    }

    /// The next claim is from exactly this key (T30).
    pub(super) fn grant(&mut self, key: u64) {
        (self.holds, self.key, self.denied, self.dirty) = (false, None, None, false);
        self.expected = vec![key];
        self.turn = Turn::Granted(key);
    }

    /// The next claim is with another key than the present one, and from that one (T28): if it does not hold the unit any
    /// more, another gateway has been the owner since. The log has nothing that is not upstream.
    pub(super) fn revoke(&mut self) {
        let present = self.key().0;
        self.grant(present);
    }

    /// For operators; `None` before the gateway serves. `why`: why no path works.
    pub(super) fn ownership(&self, why: impl FnOnce() -> String) -> Option<Ownership> {
        if let Turn::Away { since, holder } = self.turn {
            return Some(Ownership { key: None, standing: Standing::Standby { since, holder } });
        }
        let standing = match (self.lost, self.serves_since) {
            (Some((since, holder)), _) => {
                Standing::Fenced { since, holder, why: self.denied.clone() }
            }
            (None, _) if self.holds => Standing::Held,
            (None, since) => Standing::Unclaimed { since: since?, why: why() },
        };
        Some(Ownership { key: self.key, standing })
    }

    /// A claim was denied. Before the gateway serves a final reason fails the start, and later it fences the upstream.
    pub(super) fn note_denial(&mut self, denied: &Denied) -> Option<TakenOver> {
        match denied {
            Denied::Held { key, .. } if self.holds => Some(TakenOver { by: Some(*key) }),
            Denied::Gone { .. } if self.holds => Some(TakenOver { by: None }),
            // Only a unit that another gateway has reserved is one that it may give over.
            Denied::Held { key, kind: Some(_) } if self.gives_way() && *key != 0 => {
                Some(TakenOver { by: Some(*key) })
            }
            Denied::NotGranted { holder, .. } => Some(TakenOver { by: *holder }),
            denied if !self.holds && denied.is_final() => {
                self.denied = Some(denied.clone());
                self.serves_since.map(|_| TakenOver { by: denied.holder() })
            }
            _ => None,
        }
    }

    /// The target reports the holder of the reservation.
    pub(super) fn note_holder(&self, holder: Option<Holder>) -> Option<TakenOver> {
        let by = holder.map(|holder| holder.key);
        (self.holds && !self.is_ours(holder)).then_some(TakenOver { by })
    }

    /// Another gateway has the unit of `upstream` now; false if that was known.
    pub(super) fn lose(&mut self, by: TakenOver, upstream: &str, now: Instant) -> bool {
        if self.lost.is_some() {
            return false;
        }
        self.lost = Some((now, by.by));
        let holder = by.by.map_or_else(|| String::from("none"), |key| Key(key).to_string());
        if let Some(why) = &self.denied {
            error!(
                upstream,
                %why,
                "FENCED: the upstream answers for the first time since the start, and this gateway must not \
                 write to it. It writes nothing there, refuses the volume to hosts and keeps its log. If \
                 another gateway is the right one, stop this one and keep its log for `weir log`; if this \
                 one is, stop the other and start this one again with --take-over"
            );
            return true;
        }
        error!(
            upstream,
            %holder,
            ours = %self.key(),
            "FENCED: another gateway has taken the reservation. This gateway writes nothing \
             there, refuses the volume to hosts and keeps its log. If the other gateway is the \
             right one, stop this one and keep its log for `weir log`; if this one is, stop the \
             other and start this one again with --take-over"
        );
        true
    }

    /// The reservation was read, or made, just now.
    pub(super) fn checked(&mut self, now: Instant) {
        self.check_at = self.check_at.max(now + self.check_interval());
    }

    const fn check_interval(&self) -> Duration {
        match self.turn {
            Turn::Given => GIVEN_CHECK_INTERVAL,
            _ => CHECK_INTERVAL,
        }
    }

    /// When the reservation is to be read.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.owns().then_some(self.check_at)
    }

    /// Whether the reservation is to be read now; if so it is read again a while later.
    pub(super) fn takes_check(&mut self, now: Instant) -> bool {
        let due = self.owns() && self.check_at <= now;
        if due {
            self.check_at = now + self.check_interval();
        }
        due
    }

    /// The gateway stops: whether the reservation is given up, which is decided once. `clean`: the log has nothing
    /// that is not upstream.
    pub(super) fn release(&mut self, clean: bool, upstream: &str) -> Release {
        if !std::mem::take(&mut self.holds) || self.lost.is_some() {
            return Release::None;
        }
        if !clean {
            info!(
                upstream,
                key = %self.key(),
                "the unit stays reserved for this gateway: its log has dirty data"
            );
            return Release::None;
        }
        Release::Clear(self.key().0)
    }
}

/// The holder of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its key; 0 if all registrants hold it.
    pub(super) key: u64,
    /// The type of the reservation.
    pub(super) kind: u8,
}

/// Why a gateway may not write to a unit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    /// Another gateway owns it.
    #[error("another gateway holds it: key {key:#018x}{}", reserved(*.kind))]
    Held {
        /// The key of the holder, or else of a registrant; 0 if all registrants hold it.
        key: u64,
        /// The type of the reservation; `None` if it is not reserved.
        kind: Option<u8>,
    },
    /// The take-over is allowed, but the data of this gateway's log is older than the data there.
    #[error(
        "key {key:#018x} may be taken over from, but the log of this gateway has writes that are \
         older than that owner's; they must not overwrite newer data"
    )]
    Dirty {
        /// The key of the present owner.
        key: u64,
    },
    /// It was this gateway's, and now it is not reserved.
    #[error(
        "the log has writes for it, but the reservation is gone, and others may have held it \
         since (PRGENERATION is {generation})"
    )]
    Gone {
        /// How often registrations have changed.
        generation: u32,
    },
    /// The key from which it was given over does not hold it, or not any more.
    #[error("key {given:#018x} was to give it over, and does not hold it")]
    NotGranted {
        /// The key.
        given: u64,
        /// The key that holds it.
        holder: Option<u64>,
    },
    /// The log has data for another unit.
    #[error("the log has writes for another unit: {0}")]
    Different(String),
    /// The target does not have such reservations.
    #[error("its target has no persistent reservations: {0}")]
    Unsupported(String),
    /// Another initiator has reserved it by RESERVE(6), or what amounts to it.
    #[error("its target refuses {0}: another initiator has reserved it")]
    Conflict(&'static str),
    /// It was refused, for now or on this path.
    #[error("its target refuses {0}: {1}")]
    Refused(&'static str, String),
    /// An invalid response.
    #[error("its response to {0} is invalid")]
    Nonsense(&'static str),
}

impl Denied {
    /// Whether the data of the log may be older than the data there, so that an operator must decide.
    pub(crate) const fn is_stale(&self) -> bool {
        matches!(self, Self::Dirty { .. } | Self::Gone { .. } | Self::Different(_))
    }

    /// The key of the owner that it names.
    const fn holder(&self) -> Option<u64> {
        match self {
            Self::Held { key, .. } | Self::Dirty { key } => Some(*key),
            Self::NotGranted { holder, .. } => *holder,
            _ => None,
        }
    }

    /// Whether another attempt is useless, also on another path.
    const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Held { .. }
                | Self::Dirty { .. }
                | Self::Gone { .. }
                | Self::NotGranted { .. }
                | Self::Unsupported(_)
        )
    }
}

fn reserved(kind: Option<u8>) -> String {
    let Some(kind) = kind else { return String::from(", registered without a reservation") };
    let name = match kind {
        1 => "Write Exclusive",
        3 => "Exclusive Access",
        5 => "Write Exclusive, Registrants Only",
        6 => "Exclusive Access, Registrants Only",
        7 => "Write Exclusive, All Registrants",
        8 => "Exclusive Access, All Registrants",
        _ => return format!(", reservation of type {kind}"),
    };
    format!(", reservation {name}")
}

/// A reservation key as operators read and write it.
pub(crate) struct Key(pub(crate) u64);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The part of a key that identifies the gateway.
pub(super) const ID: u64 = (1 << 48) - 1;

/// Write Exclusive, Registrants Only (SPC-4, 6.15.3.4).
pub(super) const KIND: u8 = 5;

/// How often the reservation is read. A gateway without I/O may answer reads from its cache for this long after
/// another one has taken the unit over.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is read while another gateway may take the unit over.
const GIVEN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
