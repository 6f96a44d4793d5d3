//! Stage 7, transfer: chooses the finished reply that a busy link sends first.
//!
//! Every link has a line of replies with its own policy, from which they are handed out, whole or in
//! parts, while few bytes are on their way: what is handed out waits in that order below, and the policy has
//! nothing more to say of it. Links that leave by one port share the port's line, if the port is what holds
//! them up. A window of one byte makes a link an engine that sends one part at a time.
//!
//! Policies measure time in **work**, bytes that the link has sent. While replies wait it does nothing else,
//! so that this is time as the link has it, whatever its rate is and however that changes: at `r` bytes per
//! second a budget of `b` bytes is `b / r` seconds.

mod baselines;
mod fifo;
mod links;
mod slack;
mod waiting;

pub(crate) use links::{Links, Progress};
pub use links::{RULE_LINK, RULE_ORDER};

use crate::clock::Instant;
use crate::policy::{Parameter, Policy, Unit, Values};
use crate::request::{Op, RequestKey, TenantId};
use crate::units::Bandwidth;
use alloc::boxed::Box;

/// Orders the replies of one link.
///
/// Laws, which `crates/flow/tests/laws/transfer.rs` checks for every policy in the list, with its defaults
/// and with every word and flag of its parameters:
///
/// * each byte of a reply is granted exactly once, and a reply that is `whole` in one grant;
/// * while a reply waits, `pop` is not `None`;
/// * the same inputs give the same grants;
/// * a policy that [`forgets`](Self::forgets) gives the same order whether or not it learns of a reply
///   that comes while no other waits.
///
/// [`Property::StarvationFree`](crate::policy::Property::StarvationFree) is claimed in the record, and is
/// checked against what the policy does.
pub trait TransferPolicy {
    /// A reply is ready.
    fn push(&mut self, time: LinkTime, reply: &Reply);

    /// What to send next.
    fn pop(&mut self, time: LinkTime) -> Option<Grant>;

    /// `bytes` of a reply have left. They are among those of `time.work`.
    fn sent(&mut self, _time: LinkTime, _key: RequestKey, _bytes: u64) {}

    /// Whether a reply that comes while no other waits, and is handed out at once, changes nothing for
    /// later ones. The stage then does not tell the policy of it.
    fn forgets(&self) -> bool {
        true
    }
}

/// When a policy is called. Neither runs backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTime {
    /// The time of the clock.
    pub now: Instant,
    /// Bytes that the link has sent.
    pub work: u64,
}

/// A reply that waits for its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request that it answers.
    pub key: RequestKey,
    /// What it takes of the link, at least 1.
    pub bytes: u64,
    /// Whether it must be sent in one piece.
    pub whole: bool,
    /// The tenant that asked.
    pub tenant: TenantId,
    /// What was asked for. Only a [`Read`](Op::Read) that succeeded has more than a status to send.
    pub op: Op,
    /// When the request arrived.
    pub arrived: Instant,
}

impl Reply {
    /// The reply to a read of which nothing but the size matters.
    pub const fn sized(key: RequestKey, bytes: u64, whole: bool) -> Self {
        Self { key, bytes, whole, tenant: TenantId::new(0), op: Op::Read, arrived: Instant::ZERO }
    }
}

/// What of a reply is to be sent now: `bytes`, from where the last grant for it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub key: RequestKey,
    /// How many, at least 1.
    pub bytes: u64,
}

/// A part of a reply's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub offset: u64,
    /// Bytes; 0 if the reply has none.
    pub length: u64,
    /// The reply ends with it.
    pub last: bool,
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bytes of one reply may be sent between those of another: iSCSI has Data-In PDUs for that, a simple
    /// reply of NBD is in one piece.
    pub interleaves: bool,
    /// Where its replies leave, if that is what they wait for rather than the way behind it.
    pub port: Option<Port>,
}

impl Default for Link {
    fn default() -> Self {
        Self { interleaves: true, port: None }
    }
}

/// A way out that several links share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 0.
    pub id: u32,
    /// What it carries of replies' data and headers. Below what it really carries some of that is lost; above,
    /// replies wait behind the gateway, in the order of their sending.
    pub rate: Bandwidth,
}

/// Builds the policy of one link from checked parameter values.
pub type Build = fn(Values<'_>) -> Box<dyn TransferPolicy>;

/// Every transfer policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    slack::POLICY,
    fifo::POLICY,
    baselines::srpt::POLICY,
    baselines::sjf::POLICY,
    baselines::aged::POLICY,
    baselines::fsp::POLICY,
    baselines::hrrn::POLICY,
    baselines::round_robin::POLICY,
    baselines::dqbs::POLICY,
];

/// No reply is larger: as a chunk it keeps replies whole, as a budget it is as good as infinite.
const WHOLE: u64 = 1 << 40;

/// The chunk of policies that interrupt replies.
const CHUNK: Parameter = Parameter {
    name: "chunk",
    unit: Unit::Bytes,
    min: 1,
    max: WHOLE,
    default: 64 << 10,
    effect: "bytes of a reply after which another may have its turn, where the link lets them interleave; \
             fewer let small replies pass sooner and cost a header each time",
};

/// The chunk of policies that as they are published interrupt nothing.
const NO_CHUNK: Parameter = Parameter { default: WHOLE, ..CHUNK };

/// How much of a length a wait makes up for.
const WEIGHT: Parameter = Parameter {
    name: "weight",
    unit: Unit::Count,
    min: 0,
    max: 10_000,
    default: 100,
    effect: "per cent of the bytes sent while it waited that a reply is ahead; 0 is shortest first, more is \
             nearer to first in, first out",
};
