//! The checked plan of an experiment: plain values, made by the program's configuration reader or
//! by a test. [`Plan::check`] says what a plan must fulfil beyond its types.

mod check;

pub use check::PlanError;

use crate::trace::Format;
use std::path::PathBuf;
use weir_flow::accept::Cap;
use weir_flow::cache;
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::dispatch::Shares;
use weir_flow::path;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::units::Extent;
pub use weir_model::Model;
use weir_model::link;

/// One experiment. Equal plans give equal results, to the last bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of every random stream.
    pub seed: u64,
    /// When the run ends and what of it is measured.
    pub end: End,
    /// The tenants' names, by tenant id; at least one, at most [`MAX_TENANTS`].
    pub tenants: Vec<String>,
    /// What tenants are promised; at most one contract each.
    pub promises: Promises,
    /// What part of the backends' time tenants are due; at most one weight each.
    pub shares: Shares,
    /// The volumes, by volume id; at least one.
    pub volumes: Vec<Volume>,
    /// The devices behind, by backend id; at least one.
    pub backends: Vec<Backend>,
    /// The links to the hosts, by link id; at least one. [`HostLink::infinite`] costs no time.
    pub links: Vec<HostLink>,
    /// Generators of requests.
    pub workloads: Vec<Workload>,
    /// Recorded requests.
    pub traces: Vec<Trace>,
    /// What happens to paths, in any order.
    pub path_faults: Vec<PathFault>,
    /// One policy per stage.
    pub policies: Policies,
    /// The limits of the pipeline.
    pub limits: Limits,
    /// How paths are judged.
    pub paths: path::Settings,
    /// The read cache. Its own I/Os are charged to one more tenant.
    pub cache: cache::Settings,
}

/// Most tenants of a plan: each may cost a few megabytes of histograms.
pub const MAX_TENANTS: usize = 1_024;

/// Most volumes, backends, links, workloads or traces of a plan, each; most paths of
/// all backends together.
pub const MAX_PARTS: usize = 65_536;

/// Most requests that one closed loop keeps outstanding.
pub const MAX_DEPTH: u32 = 1 << 20;

/// When the run ends and what of it is measured.
///
/// The run ends at `duration`, after `requests`, or when every workload has stopped and every trace
/// is at its end, whichever is first. One of these must come: a plan whose sources never end needs
/// `duration` or `requests`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Virtual time after which nothing arrives.
    pub duration: Option<Duration>,
    /// Arrivals, all sources together, after which nothing arrives. At least 1.
    pub requests: Option<u64>,
    /// Requests that end before this time are not measured. They still count in
    /// [`Totals`](crate::results::Totals).
    pub warm_up: Duration,
    /// What becomes of requests that are outstanding when `duration` is over. `true`: the run goes
    /// on until the last has ended, and they are measured. `false`: the run stops and they are
    /// reported as outstanding. A run that ends in another way always drains.
    pub drain: bool,
}

/// An address space that requests are aimed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name, for reports.
    pub name: String,
    /// Size in bytes, at least 1.
    pub size: u64,
    /// The device behind it.
    pub backend: BackendId,
    /// Requests larger than this many bytes are cut; at least 1; `u64::MAX` never cuts.
    pub max_transfer: u64,
    /// The most that it does; [valid](Cap::validate).
    pub cap: Cap,
}

/// A device and the ways to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name, for reports; it also names the device's random streams, so it is unique.
    pub name: String,
    /// How long it takes.
    pub model: Model,
    /// Number of paths, at least 1. A path adds no delay.
    pub paths: u32,
}

/// The link on which a host's replies leave. Each direction has the delay; only replies take
/// bandwidth: arrival is the moment at which a request is complete at the gateway, data included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// Its name, for reports.
    pub name: String,
    /// Its bandwidth and its delay in one direction. The delay is not part of any response time,
    /// which is measured at the gateway; a closed loop waits for it twice.
    pub config: link::Config,
}

impl HostLink {
    /// A link that takes no time.
    pub fn infinite(name: impl Into<String>) -> Self {
        Self { name: name.into(), config: link::Config::default() }
    }
}

/// A generator of requests of one tenant to one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Names its random streams, so it is unique among the workloads.
    pub name: String,
    /// Who asks.
    pub tenant: TenantId,
    /// What is addressed.
    pub volume: VolumeId,
    /// Where replies go.
    pub link: LinkId,
    /// When requests come.
    pub arrivals: Arrivals,
    /// How large they are; at least one, at most [`MAX_PARTS`], with a sum of weights from 1 to
    /// `u32::MAX`.
    pub sizes: Vec<SizeWeight>,
    /// Share of reads in thousandths, 0 to 1000; the others are writes.
    pub read_permille: u32,
    /// Where they go.
    pub access: Access,
    /// Offsets are multiples of this many bytes from the start of the region; at least 1.
    pub alignment: u64,
    /// The part of the volume that is used; inside the volume, and no smaller than the largest
    /// size.
    pub region: Extent,
    /// Nothing comes before this time.
    pub start: Duration,
    /// Nothing comes at or after this time; `None` for never.
    pub stop: Option<Duration>,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Request i = 1, 2, … comes at `i / rate + (U[0, 1) - 0.5) * jitter / rate` after the start.
    Constant {
        /// Requests per second, above 0 and at most 10^9.
        rate: f64,
        /// Width of the jitter in thousandths of the gap, 0 to 1000; 200 is plus or minus 10 %.
        jitter_permille: u32,
    },
    /// Gaps are exponential with mean `1 / rate`: a Poisson process.
    Poisson {
        /// Requests per second, above 0 and at most 10^9.
        rate: f64,
    },
    /// A closed loop: each of `depth` hosts sends its next request `think` after the reply to its
    /// last one has reached it. A refused request is sent again after `think`, or after
    /// [`REFUSED_BACKOFF`] if that is longer.
    Closed {
        /// Requests outstanding, 1 to [`MAX_DEPTH`].
        depth: u32,
        /// Time between a reply and the next request.
        think: Duration,
    },
}

impl Arrivals {
    /// Requests per second of an open loop; `None` for a closed one.
    pub(crate) const fn rate(self) -> Option<f64> {
        match self {
            Self::Constant { rate, .. } | Self::Poisson { rate } => Some(rate),
            Self::Closed { .. } => None,
        }
    }
}

/// The least time after which a closed loop repeats a refused request, as a host does after
/// TASK SET FULL: 1 ms. Without it a host that does not think would ask for ever at one instant.
pub const REFUSED_BACKOFF: Duration = Duration::from_millis(1);

/// A size and how often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeWeight {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Frequency relative to the other weights.
    pub weight: u32,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// Each aligned position at which the request fits is as likely as any other.
    Random,
    /// Each request begins where the last one ended, rounded up to the alignment; at the end of the
    /// region it starts again.
    Sequential,
    /// The region is cut into blocks of one alignment; the k-th hottest is chosen with probability
    /// proportional to `1 / k^skew`. Hot blocks are scattered. A request that would stick out of
    /// the region is moved back to its last aligned position.
    Zipf {
        /// Exponent, above 0 and at most 10; about 1 for most measured workloads.
        skew: f64,
    },
}

/// Recorded requests, read from a file as the run needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file, plain or compressed with zstd.
    pub path: PathBuf,
    /// Its format; `None` to find out from its first lines.
    pub format: Option<Format>,
    /// Where replies go.
    pub link: LinkId,
    /// Who asks and what is addressed, by device number in the file; each device once.
    pub devices: Vec<TraceDevice>,
    /// The same for every device that is not in `devices`; `None` makes such a device an error.
    pub others: Option<(TenantId, VolumeId)>,
    /// Speed in thousandths: 1000 as recorded, 2000 twice as fast. At least 1.
    pub speed_permille: u64,
    /// When the trace's time zero is.
    pub start: Duration,
}

/// What a device of a trace stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceDevice {
    /// Its number in the file.
    pub device: u32,
    /// Who asks.
    pub tenant: TenantId,
    /// What is addressed.
    pub volume: VolumeId,
}

/// The largest factor by which a path is slower.
pub const MAX_FACTOR: u32 = 1_000_000;

/// Something that happens to a path. The first change of a path is to its worse, the next one brings
/// it back, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFault {
    /// When.
    pub at: Duration,
    /// A path of this device.
    pub backend: BackendId,
    /// Which one, below the device's number of paths.
    pub path: u32,
    /// What happens.
    pub change: PathChange,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// It stops working. What is on it, and what is sent on it before the pipeline has learnt of
    /// the failure, ends with [`PathFailed`](weir_flow::error::IoError::PathFailed).
    Down {
        /// Time until an I/O on the dead path is given up: the transport's time-out.
        detect: Duration,
    },
    /// It works, and every answer on it takes this many times longer.
    Slow {
        /// From 2 to [`MAX_FACTOR`].
        factor: u32,
    },
    /// It stops answering without an error: I/Os are done, and their answers come when it is up again
    /// or the pipeline gives it up.
    Stall,
    /// It works again, and the pipeline gets [`PathUp`](weir_flow::pipeline::Input::PathUp) at once.
    Up,
}
