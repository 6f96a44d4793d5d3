//! Decides whose commands an event loop takes in next, when it cannot take in all of them.
//!
//! If the thread of a gateway is the bottleneck, commands wait in sockets, where no other policy can order them. The
//! loop takes commands in by rounds; between two rounds it serves what it has taken in. Within a round tenants are
//! chosen by virtual time, as in start-time fair queueing (Goyal, Vin, Cheng, 1996): the cost of a tenant's commands
//! divided by its weight. Two rules make shares exact for hosts that wait for replies before they send more:
//!
//! * A round ends before a tenant that is ahead of one that has nothing left. The host of that one reads its replies
//!   just now; without this rule the others would get its share meanwhile. A round takes at least [`ROUND_MIN`], so that
//!   system calls stay rare per command.
//! * A tenant that returns gets what it was due in the meantime, up to [`LAG_MAX`] for the largest weight, and in
//!   proportion for the others. The rest is forfeited: [`LAG_MAX`] bounds how long a tenant can delay the others.
//!
//! The loop does not sleep between rounds. If it is not the bottleneck, some rounds at once take in all commands.
//!
//! | | |
//! | --- | --- |
//! | ties | the lower tenant id first |
//! | cost | O(log tenants) for a choice; O(recent tenants) for a round; no allocation after the first rounds |
//! | unit of cost | 1 KiB of payload; a command costs [`COMMAND_COST`] in addition |

use crate::dispatch::{Owner, Shares};
use crate::request::TenantId;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The tenants that have commands, and what each tenant has got.
#[derive(Debug)]
pub struct Intake {
    shares: Shares,
    /// How far behind [`system`](Self::system) a tenant may return, in virtual time.
    lag: u64,
    tenants: Vec<Tenant>,
    /// Tenants with commands, the least virtual time first.
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    /// Tenants without commands that have forfeited nothing yet.
    absent: Vec<u32>,
    /// The largest virtual time at which a tenant was chosen.
    system: u64,
    /// The least virtual time of an absent tenant.
    horizon: u64,
    /// What this round has taken in.
    taken: u64,
}

/// What a tenant has got.
#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    /// Cost divided by weight.
    virtual_time: u64,
    state: State,
    /// In `absent`, where an entry stays until the next round begins.
    is_listed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It has no commands, and is due nothing.
    #[default]
    Idle,
    /// It has no commands, and is in `absent`.
    Absent,
    /// It has commands, and is in `ready`.
    Ready,
    /// [`Intake::next`] has returned it.
    Chosen,
}

impl Intake {
    /// No tenant has commands.
    pub fn new(shares: &Shares) -> Self {
        let mut intake = Self {
            shares: Shares::default(),
            lag: 0,
            tenants: Vec::new(),
            ready: BinaryHeap::new(),
            absent: Vec::new(),
            system: 0,
            horizon: u64::MAX,
            taken: 0,
        };
        intake.set_weights(shares);
        intake
    }

    /// Tenants have other weights from now on. What they have got stays.
    pub fn set_weights(&mut self, shares: &Shares) {
        let weights = shares.tenants.iter().map(|weight| weight.as_1024ths());
        let heaviest = weights.max().unwrap_or(1_024);
        self.lag = virtual_cost(LAG_MAX, heaviest);
        self.shares = shares.clone();
    }

    /// Begins a round. Before and within it, [`ready`](Self::ready) names the tenants that have commands.
    pub fn begin_round(&mut self) {
        self.taken = 0;
        if self.system >= REBASE {
            self.rebase();
        }
        let floor = self.system.saturating_sub(self.lag);
        let tenants = &mut self.tenants;
        self.absent.retain(|&id| {
            let tenant = &mut tenants[id as usize];
            let is_due = tenant.state == State::Absent && tenant.virtual_time > floor;
            if tenant.state == State::Absent && !is_due {
                tenant.state = State::Idle;
            }
            tenant.is_listed = is_due;
            is_due
        });
        let due = self.absent.iter().map(|&id| self.tenants[id as usize].virtual_time);
        self.horizon = due.min().unwrap_or(u64::MAX);
    }

    /// A tenant has commands. Once is enough.
    pub fn ready(&mut self, id: TenantId) {
        let index = id.index();
        if self.tenants.len() <= index {
            self.tenants.resize(index + 1, Tenant::default());
        }
        let tenant = &mut self.tenants[index];
        if matches!(tenant.state, State::Ready | State::Chosen) {
            return;
        }
        tenant.virtual_time = tenant.virtual_time.max(self.system.saturating_sub(self.lag));
        tenant.state = State::Ready;
        self.ready.push(Reverse((tenant.virtual_time, index as u32)));
    }

    /// The tenant that is next, for commands of about [`QUANTUM`]; `None` if the round is over. To be followed by
    /// [`took`](Self::took).
    pub fn choose(&mut self) -> Option<TenantId> {
        let &Reverse((virtual_time, id)) = self.ready.peek()?;
        if self.taken >= ROUND_MIN && virtual_time > self.horizon {
            return None;
        }
        self.ready.pop();
        self.system = self.system.max(virtual_time);
        let tenant = &mut self.tenants[id as usize];
        assert!(
            tenant.state == State::Ready && tenant.virtual_time == virtual_time,
            "a tenant is ready once, at its virtual time"
        );
        tenant.state = State::Chosen;
        Some(TenantId::new(id))
    }

    /// Commands of this cost were taken in for a tenant that [`choose`](Self::choose) has returned. `more`: it has more.
    pub fn took(&mut self, id: TenantId, cost: u64, more: bool) {
        let weight = self.shares.weight(Owner::Tenant(id)).as_1024ths();
        let tenant = &mut self.tenants[id.index()];
        assert!(
            tenant.state == State::Chosen,
            "commands were taken in for a tenant that was not chosen"
        );
        tenant.virtual_time = tenant.virtual_time.saturating_add(virtual_cost(cost, weight));
        self.taken += cost;
        if more {
            tenant.state = State::Ready;
            self.ready.push(Reverse((tenant.virtual_time, id.index() as u32)));
            return;
        }
        tenant.state = State::Absent;
        self.horizon = self.horizon.min(tenant.virtual_time);
        if !core::mem::replace(&mut tenant.is_listed, true) {
            self.absent.push(id.index() as u32);
        }
    }

    /// Lets the system's virtual time be zero. Differences stay.
    fn rebase(&mut self) {
        let back = core::mem::take(&mut self.system).saturating_sub(self.lag);
        self.system = self.lag;
        self.ready.clear();
        for (id, tenant) in (0..).zip(&mut self.tenants) {
            tenant.virtual_time = tenant.virtual_time.saturating_sub(back);
            if tenant.state == State::Ready {
                self.ready.push(Reverse((tenant.virtual_time, id)));
            }
        }
    }
}

/// The cost of a command with a payload of this number of bytes.
pub const fn command_cost(bytes: u64) -> u64 {
    COMMAND_COST + bytes / 1_024
}

/// Virtual time: the cost divided by the weight.
fn virtual_cost(cost: u64, weight_1024ths: u32) -> u64 {
    (cost.min(COST_MAX) << 24) / u64::from(weight_1024ths)
}

/// The cost of a command without payload: about 14 µs of a gateway's thread, in which it also copies 16 KiB.
pub const COMMAND_COST: u64 = 16;

/// What a tenant takes in at a time: eight commands of 4 KiB.
pub const QUANTUM: u64 = 8 * (COMMAND_COST + 4);

/// A round takes in at least this much, if it is there.
pub const ROUND_MIN: u64 = QUANTUM;

/// What the tenant with the largest weight may be due at its return: 256 commands of 4 KiB, less than 4 ms of a
/// gateway's thread.
pub const LAG_MAX: u64 = 32 * QUANTUM;

/// No more is charged at once.
const COST_MAX: u64 = 1 << 32;

/// The system's virtual time goes back here: three days at the smallest weight.
const REBASE: u64 = 1 << 62;

#[cfg(test)]
mod tests;
