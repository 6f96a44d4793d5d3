//! Stage 3, control: decides when a request may go to shared storage.
//!
//! A control policy may delay a request, never drop it. What it holds is bounded by the pipeline's
//! own limit on outstanding requests.

mod baselines;
mod contract;
mod ln;
mod load;
mod open;
mod slack;
mod tariff;

pub use contract::{
    BURST, BURST_MIN, CONTRACTS_MAX, CREDIT_MAX, Contract, Direction, GROUP_DEPTH_MAX, GROUPS_MAX,
    Group, IOPS_MAX, LOAD_MAX, Ops, PEAK_PERMILLE, Promises, QUANTILE, QUANTILE_MAX, QUANTILE_MIN,
    RESPONSE_MAX, RESPONSE_MIN, ROWS_MAX, Row, SIZE_MAX, TARGETS_MAX, Target, Tier,
};

pub(crate) use load::Rows;

use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Policy, Rule, Values};
use crate::request::{Request, RequestKey, TenantId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The rule of requests that the bucket of their contract holds.
const RULE_BUCKET: Rule = Rule(&"control/bucket");

/// Decides when a request may go to shared storage.
///
/// Laws (checked for every policy in the list): each request is released exactly once; requests of
/// one tenant are released in order of arrival, unless the policy's table says otherwise; the same
/// inputs give the same releases; while anything waits there is a deadline or an outstanding request
/// that can release it. Tenants past the list of contracts count as one tenant.
pub trait ControlPolicy {
    /// A request arrives; `row` is the objective of its tenant's contract that covers it.
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, row: Option<u8>);

    /// The next request to release, and the rule that decided its release.
    fn poll(&mut self, now: Instant) -> Option<(RequestKey, Rule)>;

    /// A released request has ended; `device` is the time from its release.
    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration);

    /// A request that the policy before this one released at `released` has not ended yet; `complete` follows.
    /// Called before anything else.
    fn adopt(&mut self, key: RequestKey, request: &Request, released: Instant);

    /// The time at which [`handle_deadline`](Self::handle_deadline) must be called, if it must be.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);

    /// The state that it would hand to a successor now.
    fn handover(&self, _now: Instant) -> PolicyHandover {
        PolicyHandover::default()
    }

    /// Takes the state that the policy before this one has left. Contracts may differ.
    fn take_over(&mut self, _now: Instant, _handover: &PolicyHandover) {}

    /// Keeps other contracts from now on, with all that it knows of tenants and objectives that stay; false if it
    /// cannot, or if `control` is not this policy with these parameters. Then nothing has changed, and a new policy
    /// takes over. Requests that are queued are forgotten and arrive again, in their order; those that are released
    /// stay.
    fn set_promises(&mut self, _now: Instant, _control: &Choice<Build>, _list: &Promises) -> bool {
        false
    }

    /// The next change since the last call, until there is none.
    fn notice(&mut self) -> Option<Notice> {
        None
    }
}

/// The state of a policy that its successor takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyHandover {
    /// The burst credit of each tenant, by tenant id, as time at its contract's rate.
    pub credits: Vec<Duration>,
    /// The learnt window in requests.
    pub window: Option<u32>,
}

/// What a control policy tells observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A tenant's bucket was put into the path of its requests, or taken out of it. Policies without
    /// a switch say so once, in the beginning.
    Gate(TenantId, bool),
    /// A tenant's promise was found to be infeasible, whatever others are made to wait, and has been
    /// relaxed for a while; or it is held to again.
    Infeasible(TenantId, bool),
    /// Guarantees of a tier hold at this scale, in millionths of what was promised.
    Scaled(Tier, u32),
}

/// Builds a control policy from checked parameter values and what tenants are promised. A
/// tenant without a contract, or past the end, is promised nothing: best effort.
pub type Build = fn(Values<'_>, &Promises) -> Box<dyn ControlPolicy>;

/// Every control policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    slack::POLICY,
    open::POLICY,
    baselines::token_bucket::POLICY,
    baselines::ta2::POLICY,
    baselines::ta3::POLICY,
    baselines::edf::POLICY,
    baselines::facade::POLICY,
    baselines::sfq::POLICY,
    baselines::mclock::POLICY,
];
