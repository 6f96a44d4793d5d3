//! What the sessions of one upstream share: the facts of the logical unit and its reservation.

use super::operation::Terms;
use super::ownership::{Denied, Holder, Owner, Ownership, TakenOver};
use super::probe::Facts;
use super::remembered::RememberedUnit;
use super::session::{Loss, SessionEvent, UnitState};
use crate::config;
use crate::limits::Tally;
use crate::storage::store::Unit;
use tracing::{info, warn};
use weir_flow::clock::Instant;
use weir_flow::units::ByteCount;

/// The logical unit of an upstream.
#[derive(Debug, Default)]
pub(super) struct LogicalUnit {
    /// The commands that it takes; `None` until a session has probed it, or the gateway starts without it.
    terms: Option<Terms>,
    /// What is remembered of it, if the gateway may start without it.
    remembered: Option<RememberedUnit>,
    /// No session has probed it: the terms are those that are remembered.
    absent: bool,
    /// The reservation; `None` if the unit is not reserved.
    pub(super) owner: Option<Owner>,
    /// Errors that it has reported.
    errors: Tally,
    /// Something was written that may not be durable.
    pub(super) written: bool,
    /// The log has said that the target does not reset the unit.
    reset_refused: bool,
}

impl LogicalUnit {
    /// The state that a session works with.
    pub(super) const fn state<'a>(
        &'a mut self,
        events: &'a mut Vec<SessionEvent>,
        who: &'a str,
        now: Instant,
    ) -> UnitState<'a> {
        let Self { terms, owner, errors, .. } = self;
        UnitState { terms, owner, events, errors, who, now }
    }

    /// What a store needs to know. Panics before a session has probed the unit.
    pub(super) fn describe(&self, config: &config::Upstream, ready: u32) -> Unit {
        let terms = self.terms.as_ref().expect("one path works before anything is served");
        Unit {
            capacity: terms.facts.capacity().into(),
            block_size: terms.facts.block_size,
            write_cache: terms.facts.write_cache,
            thin: terms.facts.is_thin(),
            max_transfer: terms.max_transfer(),
            name: config.name.clone(),
            target: config.target.clone(),
            lun: config.lun.into(),
            paths: config.portals.len() as u32,
            ready,
        }
    }

    /// The name that it has said, the same over each path and at each gateway.
    pub(super) fn name(&self) -> Option<String> {
        self.terms.as_ref()?.facts.identity.as_ref().map(ToString::to_string)
    }

    /// Lets the gateway start without the unit.
    pub(super) fn remember(&mut self, unit: RememberedUnit) {
        self.remembered = Some(unit);
    }

    /// Whether the gateway may start without the unit.
    pub(super) const fn is_remembered(&self) -> bool {
        self.remembered.is_some()
    }

    /// Whether the gateway has started without the unit, and no session has probed it since.
    pub(super) const fn is_absent(&self) -> bool {
        self.absent
    }

    /// Starts without the unit, by what is remembered of it.
    pub(super) fn start_without(&mut self) {
        if let (None, Some(unit)) = (&self.terms, &self.remembered) {
            (self.terms, self.absent) = (Some(Terms::new(unit.facts())), true);
        }
    }

    /// What is to be remembered of the unit. `released`: the reservation is about to be given up.
    pub(super) fn to_remember(
        &self,
        config: &config::Upstream,
        released: bool,
    ) -> Option<RememberedUnit> {
        let Some(terms) = self.terms.as_ref().filter(|_| !self.absent) else {
            return self.remembered.clone();
        };
        let owned = self.owner.as_ref().is_some_and(|owner| owner.owns() && !released);
        Some(RememberedUnit::new(config, &terms.facts, owned))
    }

    /// Why this is not the unit that is remembered.
    pub(super) fn differs(&self, remembered: &RememberedUnit) -> Option<String> {
        let terms = self.terms.as_ref().filter(|_| !self.absent)?;
        remembered.differs(&terms.facts)
    }

    /// Compares the unit behind a session with that of the other paths, or with the one that is remembered. The new
    /// size in bytes, if it has grown.
    pub(super) fn compare(&mut self, facts: &Facts) -> Result<Option<u64>, Loss> {
        let Some(terms) = &mut self.terms else { return Ok(None) };
        let known =
            if self.absent { "at the last start it was" } else { "on the other paths it is" };
        if self.absent {
            terms.can_become(facts).map_err(Loss::Different)?;
        }
        let grown = terms.facts.agree(facts, known).map_err(Loss::Different)?;
        Ok(grown.then(|| facts.capacity()))
    }

    /// Takes the facts of the first session that has probed it.
    pub(super) fn probed(&mut self, facts: Facts, who: &str) {
        if self.terms.is_none() || std::mem::take(&mut self.absent) {
            let size = ByteCount(facts.capacity());
            let Facts { block_size, ref product, write_cache, fua, .. } = facts;
            info!(upstream = who, product, %size, block_size, write_cache, fua, "unit");
            self.terms = Some(Terms::new(facts));
        }
    }

    /// Whether it has a volatile write cache.
    pub(super) fn has_cache(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.facts.write_cache)
    }

    /// Whether a flush is needed before the gateway stops. The new owner of a lost unit flushes it.
    pub(super) fn needs_flush(&self) -> bool {
        self.written && self.has_cache() && !self.is_shut()
    }

    /// A path did not reset the unit: logged once, since it does not end by itself.
    pub(super) fn not_reset(&mut self, who: &str, answer: &str) {
        if !std::mem::replace(&mut self.reset_refused, true) {
            warn!(
                upstream = who,
                answer,
                "the target does not reset the unit: writes of a lost session wait until its own portal \
                 lets the gateway in again"
            );
        }
    }

    /// Whether another gateway owns it now.
    pub(super) fn is_lost(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.lost.is_some())
    }

    /// Whether no session may be started: another gateway owns it, for good or until a move.
    pub(super) fn is_shut(&self) -> bool {
        self.is_lost() || self.owner.as_ref().is_some_and(Owner::is_away)
    }

    /// Who owns it, if it is reserved. `why`: why no path works.
    pub(super) fn ownership(&self, why: impl FnOnce() -> String) -> Option<Ownership> {
        self.owner.as_ref()?.ownership(why)
    }

    /// When the reservation is to be read.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.owner.as_ref()?.next_check()
    }

    /// Whether the reservation is to be read now.
    pub(super) fn takes_check(&mut self, now: Instant) -> bool {
        self.owner.as_mut().is_some_and(|owner| owner.takes_check(now))
    }

    /// A claim was denied.
    pub(super) fn note_denial(&mut self, denied: &Denied) -> Option<TakenOver> {
        self.owner.as_mut()?.note_denial(denied)
    }

    /// The target reports the holder of the reservation.
    pub(super) fn note_holder(&self, holder: Option<Holder>) -> Option<TakenOver> {
        self.owner.as_ref()?.note_holder(holder)
    }
}
