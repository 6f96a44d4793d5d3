//! Stage 6, store: the device behind.
//!
//! A store policy sees each I/O start and end, and decides what an ending means: deliver it, or try
//! again. A path failure never reaches it; the path stage deals with that.

mod direct;

use crate::clock::Instant;
use crate::policy::{Policy, Rule, Values};
use crate::request::{Outcome, Request, RequestKey};
use alloc::boxed::Box;

/// At the device.
pub const RULE_DEVICE: Rule = Rule("store/device");

/// Watches over the I/Os at a device.
///
/// Laws (checked for every policy in the list): success is always delivered; an I/O is delivered
/// after a bounded number of retries; the same inputs give the same verdicts.
pub trait StorePolicy {
    /// An I/O has been given to the device.
    fn start(&mut self, now: Instant, key: RequestKey, request: &Request);

    /// The device has ended it.
    fn finish(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: &Request,
        outcome: Outcome,
    ) -> Verdict;
}

/// What the ending of an I/O means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request has ended so.
    Deliver(Outcome),
    /// The same I/O goes to the device once more, at once.
    Retry,
}

/// Builds a store policy from checked parameter values.
pub type Build = fn(Values<'_>) -> Box<dyn StorePolicy>;

/// Every store policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[direct::POLICY];
