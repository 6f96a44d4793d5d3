//! Stage 3, control: may it go to shared storage now?
//!
//! A control policy may delay a request, never drop it. What it holds is bounded by the pipeline's
//! own limit on outstanding requests.

mod open;

use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;

/// Decides when a request may go to shared storage.
///
/// Laws (checked for every policy in the list): each request is released exactly once; requests of
/// one tenant are released in order of arrival; the same inputs give the same releases; while
/// anything waits there is a deadline or an outstanding request that can release it.
pub trait ControlPolicy {
    /// A request has come.
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request);

    /// The next request that may go, and the rule that it met.
    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)>;

    /// A released request has ended; `device` is the time from its release.
    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration);

    /// When the policy wants to be asked again although nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);
}

/// Builds a control policy from checked parameter values.
pub type Build = fn(&[u64]) -> Box<dyn ControlPolicy>;

/// Every control policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[open::POLICY];
