//! The debt of write-back: what bypassed the log and is not known to be durable upstream.
//!
//! A write that bypasses the log has only the durability that the upstream gives it: it may be in a volatile cache
//! there. When the log is used again, or is new, this is the first debt of write-back. Until a flush of the upstream
//! has paid it
//!
//! * nothing of the log is written upstream: a later write must not be there without an earlier one;
//! * no flush of a host is answered: it covers the writes that bypassed the log;
//! * the log says on its device that writes may have bypassed it, so that a log that is opened again has the debt, too.
//!
//! An update bypasses a log that is in use, and is durable when it ends well: then there is no debt. The log says on its
//! device while one is outstanding that writes may have bypassed it, since a crash leaves some of it in the cache of the
//! upstream.
//!
//! Writes do not wait for it: a record is durable in the log whatever the upstream does.

use crate::clock::Instant;

/// What the upstream has to make durable before write-back begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debt {
    /// Requests that bypass the log and have not ended.
    forwarded: u64,
    /// Updates that bypass a log in use and have not ended.
    updates: u64,
    /// A request has ended after the last flush began.
    owed: bool,
    /// A flush is outstanding.
    flushing: bool,
    /// Since when the log is used with a debt.
    since: Option<Instant>,
}

impl Debt {
    /// With `owed`, writes may have bypassed the log before it was opened.
    pub(super) const fn new(owed: bool) -> Self {
        Self { forwarded: 0, updates: 0, owed, flushing: false, since: None }
    }

    /// A request bypasses the log.
    pub(super) const fn forward(&mut self) {
        self.forwarded += 1;
    }

    /// It has ended, upstream in a cache that is `volatile` or not.
    pub(super) fn forward_ended(&mut self, volatile: bool) {
        assert!(self.forwarded > 0, "a request that bypasses the log ends once");
        self.forwarded -= 1;
        self.owed |= volatile;
    }

    /// An update begins upstream.
    pub(super) const fn begin_update(&mut self) {
        self.updates += 1;
    }

    /// It has ended; with `doubtful` some of it may be in a volatile cache.
    pub(super) fn update_ended(&mut self, doubtful: bool) {
        assert!(self.updates > 0, "an update ends once");
        self.updates -= 1;
        self.owed |= doubtful;
    }

    /// Whether an update is outstanding.
    pub(super) const fn has_updates(&self) -> bool {
        self.updates > 0
    }

    /// Whether no request that bypasses the log is outstanding.
    pub(super) const fn has_arrived(&self) -> bool {
        self.forwarded == 0
    }

    /// A flush begins, if one is owed and none is outstanding. Whether it does.
    pub(super) const fn begin_flush(&mut self) -> bool {
        if !self.owed || self.flushing {
            return false;
        }
        (self.owed, self.flushing) = (false, true);
        true
    }

    /// The flush has ended.
    pub(super) fn flush_ended(&mut self) {
        assert!(self.flushing, "a flush ends once");
        self.flushing = false;
    }

    /// Whether writes that have ended may not be durable upstream.
    pub(super) const fn owes_flush(&self) -> bool {
        self.owed || self.flushing
    }

    /// Whether there is a debt.
    pub(super) const fn is_open(&self) -> bool {
        self.forwarded > 0 || self.owes_flush()
    }

    /// The log is used although there is a debt, or may be one.
    pub(super) fn note(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Since when the log is used with a debt.
    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether a debt that was noted is paid. True once.
    pub(super) fn take_paid(&mut self) -> bool {
        !self.is_open() && self.since.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flush pays for what had ended when it began; a request that ends later leaves a new debt.
    #[test]
    fn a_flush_pays_for_what_had_ended() {
        let mut debt = Debt::new(false);
        debt.forward();
        debt.forward();
        debt.note(Instant::ZERO);
        assert!(!debt.begin_flush() && !debt.take_paid());
        debt.forward_ended(true);
        assert!(debt.begin_flush() && !debt.begin_flush());
        debt.forward_ended(true);
        debt.flush_ended();
        assert!(debt.owes_flush() && debt.begin_flush());
        debt.flush_ended();
        assert!(debt.take_paid() && !debt.take_paid());
    }

    /// An upstream without a volatile cache owes no flush.
    #[test]
    fn a_durable_upstream_owes_nothing() {
        let mut debt = Debt::new(false);
        debt.forward();
        debt.forward_ended(false);
        assert!(!debt.is_open());
    }
}
