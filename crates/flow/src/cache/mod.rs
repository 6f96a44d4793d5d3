//! Stage 2, cache: is it near?
//!
//! A hit goes straight to transfer; everything else goes on to shared storage.

mod off;

use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::{Outcome, Request, RequestKey};
use alloc::boxed::Box;

/// Decides which requests need not go to shared storage.
pub trait CachePolicy {
    /// Looks a request up on its way in.
    fn look_up(&mut self, now: Instant, key: RequestKey, request: &Request) -> Lookup;

    /// Learns how a request that was passed on ended.
    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, outcome: Outcome);
}

/// The answer to a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The request has ended well here.
    Hit,
    /// The request must go to shared storage.
    Pass,
}

/// Builds a cache policy from checked parameter values.
pub type Build = fn(&[u64]) -> Box<dyn CachePolicy>;

/// Every cache policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[off::POLICY];
