//! Stage 4, dispatch: who goes next, and to which backend?
//!
//! A dispatch policy orders what control has released, bounds what is outstanding at each backend, and
//! so decides whose work the backends do. Streams are tenants, and what the gateway does by itself
//! ([`Shares`]); a weight says how much of the backends' time a stream is due while others want it too. Where the
//! configuration says so, each queue, host or volume of a tenant is a stream within the tenant ([`Substream`]). What an
//! operation took is the [`estimate`]'s to say.

mod baselines;
mod clocks;
pub mod estimate;
mod fair_time;
mod fifo;
mod knee;
mod lanes;
mod members;
mod service_times;
mod shares;
mod stage;
mod substreams;
mod weight;

pub use clocks::Reading;
pub use members::{HostNumber, Member, Substream, SubstreamView};
pub use shares::{Background, Owner, Shares};
pub(crate) use stage::Dispatch;
pub use stage::{BackendView, StreamView};
pub use weight::Weight;

use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Rule, Values};
use crate::request::{BackendId, RequestKey, TenantId};
use alloc::boxed::Box;
use estimate::Estimation;

/// What a policy knows of an operation: one I/O to one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its name.
    pub key: RequestKey,
    /// Whose it is.
    pub stream: TenantId,
    /// The stream within that which it may be of; `None` for what the gateway does by itself.
    pub substream: Option<Substream>,
    /// Where it has to go.
    pub backend: BackendId,
    /// Bytes that it moves.
    pub bytes: u64,
    /// What it should cost: its nominal service time (NST), without any waiting.
    pub nominal: Duration,
    /// The request that it is a part of: equal for all parts, and different from other requests of the
    /// stream.
    pub request: RequestKey,
    /// What all parts of that request together should cost.
    pub whole: Duration,
}

/// Decides which operation goes to a backend next.
///
/// Laws (checked for every policy in the list): each operation is sent exactly once, to the backend
/// that it came for; operations of one stream and one backend are sent in order of arrival, or those of
/// one stream within it; the same inputs give the same order; a backend with nothing outstanding is given something if anything waits
/// for it. So it is enough to ask for a backend when something has come for it or ended at it.
pub trait DispatchPolicy {
    /// An operation is ready to go.
    fn arrive(&mut self, now: Instant, work: &Work);

    /// The next operation for this backend, and the rule that held it until now. It is on its way when
    /// this returns; ask until there is no other.
    fn next(&mut self, now: Instant, backend: BackendId) -> Option<(RequestKey, Rule)>;

    /// An operation has ended, and kept its backend busy for `service`: its actual service time (AST).
    fn complete(&mut self, now: Instant, key: RequestKey, service: Duration);

    /// There are this many backends from now on, which is more than there were: the others are idle. Queued operations and
    /// charges stay.
    fn set_backends(&mut self, backends: usize);

    /// A stream has another weight from now on. What was charged stays charged.
    fn set_weight(&mut self, _stream: TenantId, _weight: Weight) {}

    /// A stream within its tenant has this weight from now on, or there is no such stream any more. Policies that go by
    /// arrival have no use for it.
    fn set_substream(&mut self, _stream: Substream, _weight: Option<Weight>) {}

    /// A stream has caused work of this cost that a background stream will do, such as the garbage
    /// collection that a write makes necessary.
    fn owe(&mut self, _stream: TenantId, _cost: Duration) {}

    /// Operations at this backend do not cost what was believed: what was measured with the old costs says nothing.
    fn repriced(&mut self, _backend: BackendId) {}

    /// How service times are found out, if the policy wants to know them.
    fn estimation(&self) -> Option<Estimation> {
        None
    }

    /// How many operations may be outstanding at this backend now.
    fn depth(&self, backend: BackendId) -> u32;

    /// What the virtual clocks show, for explanations and tests; `None` without clocks.
    fn reading(&self, _stream: TenantId) -> Option<Reading> {
        None
    }
}

/// What is known of a stream before it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its share, relative to those of the others.
    pub weight: Weight,
    /// It does what others have caused: garbage collection, write-back, scrub.
    pub background: bool,
}

/// What a policy is built for.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Number of backends.
    pub backends: usize,
    /// By tenant id; one past the end has weight 1 and is not in the background.
    pub streams: &'a [Stream],
}

/// Builds a dispatch policy from checked parameter values.
pub type Build = fn(Values<'_>, &Setup<'_>) -> Box<dyn DispatchPolicy>;

/// Every dispatch policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    fifo::POLICY,
    fair_time::POLICY,
    baselines::fog::POLICY,
    baselines::start_time_fair::POLICY,
    baselines::fair_queueing::POLICY,
    baselines::deficit_round_robin::POLICY,
    baselines::round_robin::POLICY,
];
