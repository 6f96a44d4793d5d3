//! The seven stages joined: requests and completions in, actions out.
//!
//! [`Pipeline`] is the whole data path as one [`Stage`](crate::stage::Stage). Both worlds drive it through
//! [`run`](crate::stage::run); what they do not share is who performs the [`Action`]s.

mod cache;
mod in_flight;
mod journey;
mod limits;
mod losses;
mod outstanding;
#[cfg(test)]
mod tests;
mod views;
mod volumes;

pub use crate::accept::TRANSFER_MIN;
pub use crate::path::Backend;
pub use journey::Pipeline;
pub use limits::{Limits, REQUESTS_MAX};
pub use volumes::{VOLUMES_MAX, VolumeAdded};

use crate::accept::{Cap, Volume};
use crate::clock::Duration;
use crate::control::Promises;
use crate::event::StageName;
use crate::policy::{Choice, Rule};
use crate::request::{BackendId, LinkId, Op, Outcome, PathId, Request, RequestKey, Tag, VolumeId};
use crate::settings::Settings as _;
use crate::units::Extent;
use crate::{control, dispatch, path, transfer};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The rule of I/Os at the device: stage 6, storage.
///
/// It has no time-out on purpose. A write that is reported as failed and lands later could overwrite the
/// host's next write to the same bytes. An I/O that does not end stays visible, with its age, as overdue.
pub const RULE_DEVICE: Rule = Rule(&"storage/device");

/// Everything that a pipeline is made from. Two pipelines with equal configurations and equal
/// inputs perform equal actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The volumes, by [`VolumeId`].
    pub volumes: Vec<Volume>,
    /// The devices and targets behind, by [`BackendId`]; at least one path each.
    pub backends: Vec<Backend>,
    /// What tenants are promised.
    pub promises: Promises,
    /// What part of the backends' time tenants are due, and what the gateway does by itself.
    pub shares: dispatch::Shares,
    /// The named limits.
    pub limits: Limits,
    /// How paths are judged.
    pub paths: path::Settings,
    /// The read cache and the logs.
    pub cache: crate::cache::Settings,
    /// One policy per stage.
    pub policies: Policies,
}

impl Config {
    /// What contradicts itself here, as a message.
    pub fn validate(&self) -> Result<(), &'static str> {
        let Self { volumes, backends, promises, limits, paths, cache, .. } = self;
        if backends.iter().any(|backend| backend.groups.is_empty()) {
            return Err("a backend has no path");
        }
        volumes.iter().try_for_each(|volume| volume.validate(backends.len()))?;
        limits.validate().map_err(|invalid| invalid.reason())?;
        paths.validate().map_err(|invalid| invalid.reason())?;
        cache.validate().map_err(|invalid| invalid.reason())?;
        promises.validate()
    }
}

/// The policy of each stage that has a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// Stage 2: which line leaves the read buffer.
    pub cache: Choice<crate::cache::evict::Build>,
    /// Stage 2: what is fetched ahead.
    pub prefetch: Choice<crate::cache::prefetch::Build>,
    /// Stage 3.
    pub control: Choice<control::Build>,
    /// Stage 4.
    pub dispatch: Choice<dispatch::Build>,
    /// Stage 5.
    pub path: Choice<path::Build>,
    /// Stage 7.
    pub transfer: Choice<transfer::Build>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            cache: Choice::default_of(crate::cache::evict::POLICIES),
            prefetch: Choice::default_of(crate::cache::prefetch::POLICIES),
            control: Choice::default_of(control::POLICIES),
            dispatch: Choice::default_of(dispatch::POLICIES),
            path: Choice::default_of(path::POLICIES),
            transfer: Choice::default_of(transfer::POLICIES),
        }
    }
}

/// What the world tells the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A host asks for something.
    Arrive(Request),
    /// An [`Action::Store`] has ended.
    Stored {
        /// Which one.
        key: RequestKey,
        /// How. [`PathFailed`](crate::error::IoError::PathFailed) makes the request go another
        /// way: it says that this I/O is dead for sure, which must not be said of a write that can
        /// still reach the medium.
        outcome: Outcome,
    },
    /// The last byte of an [`Action::Transfer`] has left, or its link is gone.
    Sent {
        /// Which one.
        key: RequestKey,
        /// The length of its part.
        bytes: u64,
    },
    /// A link is like this from now on; until it is said, every link is like the default.
    Link(LinkId, transfer::Link),
    /// These requests are a stream of this weight within their tenant from now on, or not any more.
    Substream(dispatch::Member, Option<dispatch::Weight>),
    /// A path was found not to work.
    PathDown(BackendId, PathId),
    /// A path works again.
    PathUp(BackendId, PathId),
    /// The unit behind a backend may have lost what it had acknowledged and not made durable, though its paths work.
    UnitReset(BackendId),
    /// The unit behind a backend has lost something that it had acknowledged and not made durable.
    WriteLost(BackendId),
    /// What the target says of a path.
    PathAccess(BackendId, PathId, path::Access),
    /// An [`Action::Check`] was answered.
    Checked(BackendId, PathId),
    /// An operator asks for something.
    PathOrder(BackendId, path::PathOrder),
    /// A volume has a new capacity, in bytes: requests that arrive from now on are held to it.
    Resized(VolumeId, u64),
    /// A volume has another cap, one that is [valid](Cap::validate), which holds for queued requests as well.
    Capped(VolumeId, Cap),
    /// A volume has come while others are served.
    VolumeAdded(Arc<VolumeAdded>),
    /// A volume shall go: nothing of it comes any more. While something of it is outstanding it stays, to be asked again;
    /// [`Event::VolumeRemoved`](crate::event::Event::VolumeRemoved) says that it has gone.
    VolumeRemoved(VolumeId),
    /// Contracts or the control policy have changed. Requests that wait or are at a device move to the new
    /// policy, with the [state](control::PolicyHandover) of the one before it.
    SetControl(Arc<SetControl>),
    /// The weights of tenants or background streams have changed. Charges stay.
    SetWeights(Arc<dispatch::Shares>),
    /// The state that the control policy of the last run has left. The first input, if any.
    TakeOver(Arc<control::PolicyHandover>),
    /// An answer to an [`Action::Cache`].
    Cache(crate::cache::Done),
}

/// A control policy and the contracts that it keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SetControl {
    /// The policy.
    pub control: Choice<control::Build>,
    /// What tenants are promised; [valid](Promises::validate).
    pub promises: Promises,
}

/// What the world is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do this I/O, and answer with [`Input::Stored`].
    Store(StoreIo),
    /// Send this part of a reply behind all that came before on its link, and answer with
    /// [`Input::Sent`]. The parts of a reply come in order; one for which the link has room is in one part.
    Transfer {
        /// Name it so in the answer.
        key: RequestKey,
        /// The caller's name for the request.
        tag: Tag,
        /// What to tell the host, with the last part.
        outcome: Outcome,
        /// Which of its data.
        part: transfer::Part,
    },
    /// Ask whether anybody is at the other end of a path; answer with [`Input::Checked`], or with
    /// [`Input::PathDown`]. Silence is an answer, too.
    Check {
        /// The device behind it.
        backend: BackendId,
        /// The path.
        path: PathId,
    },
    /// No answer to this [`Action::Store`] is wanted any more, which is a read: do not touch its buffer
    /// again, and forget an [`Input::Stored`] for it that has not been handed in. The same key comes
    /// again on another path.
    Abandon {
        /// Which one.
        key: RequestKey,
        /// The device behind it.
        backend: BackendId,
        /// The path that it is on.
        path: PathId,
    },
    /// This I/O is on its path for much longer than others take elsewhere. If the target has put it off, or
    /// takes nothing at all, give the path up as for [`Action::Reset`], and tell so by
    /// [`Input::PathDown`]; if it may have begun it, do nothing. Asked again while it is so.
    Recall {
        /// Which one.
        key: RequestKey,
        /// The device behind it.
        backend: BackendId,
        /// The path that it is on.
        path: PathId,
    },
    /// The path is given up: end its session so that what is on it is known to be dead, answer each
    /// of its [`Action::Store`]s with [`PathFailed`](crate::error::IoError::PathFailed), and keep
    /// trying to get it back, which [`Input::PathUp`] reports.
    Reset {
        /// The device behind it.
        backend: BackendId,
        /// The path.
        path: PathId,
    },
    /// Do this work of the cache.
    Cache(crate::cache::Work),
    /// Tell the host that the task set is full. Nothing else will be heard of this request.
    Refuse {
        /// The caller's name for the request.
        tag: Tag,
    },
}

/// One I/O to a backend: a request, or one piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreIo {
    /// Name it so in the answer.
    pub key: RequestKey,
    /// The caller's name for the request.
    pub tag: Tag,
    /// The volume that is addressed.
    pub volume: VolumeId,
    /// The part of the volume: 0 if it is on one backend.
    pub part: u32,
    /// The device behind it.
    pub backend: BackendId,
    /// The way to the device.
    pub path: PathId,
    /// What to do.
    pub op: Op,
    /// With which bytes of the part.
    pub extent: Extent,
    /// Where the piece's bytes are within the request's payload; of no meaning if it has none.
    pub offset_in_request: u64,
    /// A write must be durable before the answer.
    pub fua: bool,
}

/// What is in one stage at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// The stage.
    pub stage: StageName,
    /// How many requests, or pieces, are in it.
    pub count: u32,
    /// How long the one that entered first has been there.
    pub oldest: Duration,
}

/// A request, or a piece of a split one, that has been in one stage for too long.
#[derive(Clone, Copy, Debug)]
pub struct Overdue<'a> {
    /// What it asks for.
    pub request: &'a Request,
    /// Where it is.
    pub stage: StageName,
    /// For how long.
    pub age: Duration,
}
