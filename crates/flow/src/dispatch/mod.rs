//! Stage 4, dispatch: who goes next, and to which backend?
//!
//! A dispatch policy orders what control has released and bounds what is outstanding at the
//! backends.

mod fifo;

use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Rule};
use crate::request::{BackendId, Request, RequestKey};
use alloc::boxed::Box;

/// Decides which request goes to a backend next.
///
/// Laws (checked for every policy in the list): each request is sent exactly once, to the backend
/// that it was pushed for; requests of one tenant and one backend are sent in order of arrival; the
/// same inputs give the same order; with nothing outstanding and something waiting, something is
/// sent or a deadline is named.
pub trait DispatchPolicy {
    /// A request is ready to go to `backend`.
    fn push(&mut self, now: Instant, key: RequestKey, request: &Request, backend: BackendId);

    /// The next request to send, and the rule that held it until now.
    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)>;

    /// A sent request has ended; `service` is the time since it was sent.
    fn complete(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: &Request,
        backend: BackendId,
        service: Duration,
    );

    /// When the policy wants to be asked again although nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);
}

/// Builds a dispatch policy for this many backends from checked parameter values.
pub type Build = fn(&[u64], usize) -> Box<dyn DispatchPolicy>;

/// Every dispatch policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[fifo::POLICY];
