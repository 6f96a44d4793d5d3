//! The configuration of a gateway: checked types, which the program's configuration reader makes.

mod candidate;
mod change;
pub mod http;
mod isns;
mod subsystem;
mod upstream;

pub use candidate::{Candidate, Given, Places, Reader};
pub use change::{Change, KeyChange};
pub use http::{Http, HttpListen};
pub use isns::{ENTITY_MAX, Isns, PORT as ISNS_PORT, SERVERS_MAX};
pub(crate) use subsystem::Whose;
pub use subsystem::{HostShares, Streams, Subsystem};
pub use upstream::{Fence, Portal, Upstream};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_flow::accept::Cap;
use weir_flow::cache;
pub use weir_flow::cache::writeback::{Order, Sync};
use weir_flow::clock::Duration;
use weir_flow::control::Promises;
use weir_flow::dispatch::{Shares, Weight};
use weir_flow::path;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::settings;
use weir_flow::settings::Invalid;
use weir_flow::settings::{GIB, HOUR, KIB, MIB, MILLISECOND, PIB, SECOND};
use weir_flow::units::Bandwidth;
use weir_model::Model;
pub use weir_wire::iscsi::target_role::{
    Account, Authentication, ChapAlgorithm, DigestPolicy, Initiators, Redirect, Secret,
};
pub use weir_wire::nvme::{AnaState, NSID_MAX};

/// A whole gateway. It has more than 20 fields because each section of the configuration file is one of them, so that
/// a reader finds one from the other.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where iSCSI connections are accepted. Port 0 takes a free one, reported when ready.
    pub listen: Vec<SocketAddr>,
    /// The portal addresses that discovery names, as `host:port`, for hosts that reach the gateway
    /// through address translation. Empty: the address that the host connected to.
    pub advertise: Vec<String>,
    /// CHAP accounts, which `discovery` and the targets refer to by index.
    pub accounts: Vec<Account>,
    /// What initiators must prove before discovery.
    pub discovery: Authentication,
    /// The NBD front end.
    pub nbd: Nbd,
    /// The NVMe/TCP front end.
    pub nvme: Nvme,
    /// The tenants' names, by tenant id.
    pub tenants: Vec<Tenant>,
    /// Their SLOs; the contracts are by tenant id.
    pub promises: Promises,
    /// Their shares of the backends' time, by tenant id, and the share of the gateway's own requests.
    pub shares: Shares,
    /// Modelled devices that volumes may be on.
    pub backends: Vec<Backend>,
    /// Logical units of other targets, which volumes may be on.
    pub upstreams: Vec<Upstream>,
    /// The volumes, by volume id. A new configuration has them in the order of its file; what is in force, by their places.
    pub volumes: Vec<Volume>,
    /// The targets that hosts may log in to.
    pub targets: Vec<Target>,
    /// The policy of each stage.
    pub policies: Policies,
    /// The limits of the pipeline.
    pub limits: Limits,
    /// How paths are judged.
    pub paths: path::Settings,
    /// The memory of the read cache, which all volumes share; its owners and the logs are found when volumes
    /// are opened.
    pub cache: cache::Settings,
    /// The limits towards hosts.
    pub iscsi: Iscsi,
    /// Links that are slower than the machine and that the hosts at several sockets share.
    pub links: Vec<Link>,
    /// The Unix socket on which operators ask the gateway and order it; only its own user may connect.
    /// `None`: they cannot.
    pub control: Option<PathBuf>,
    /// Where operators ask over HTTP, and who may do what there. `None`: they cannot.
    pub http: Option<Http>,
    /// The iSNS servers at which the gateway is registered. `None`: it is registered at none.
    pub isns: Option<Isns>,
    /// The file that keeps over a restart the tenants' burst credits, and how much the devices were found
    /// to take. `None`: both begin anew.
    pub savings: Option<PathBuf>,
    /// Volumes, by their index, and the reservation keys that the operator allows to take over from; the key 0 is for
    /// a unit that is not reserved.
    pub take_over: Vec<(usize, u64)>,
    /// Where to write a recording of the run, which `weir replay` can check.
    pub record: Option<PathBuf>,
    /// What is kept of requests that have ended.
    pub recorder: Recorder,
    /// How the event log is written.
    pub log_format: LogFormat,
    /// How the gateway ends.
    pub stop: Stop,
}

/// Why a configuration was not put into force. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// It is invalid: one line per diagnostic, with its place.
    Invalid(Vec<String>),
    /// It changes what only a restart changes: these.
    NeedsRestart(Vec<String>),
    /// It takes away what hosts use: these.
    InUse(Vec<String>),
    /// Volumes would shrink while they are served: these.
    Shrinks(Vec<String>),
    /// Files or devices do not give what it asks for: these.
    Unavailable(Vec<String>),
}

/// A link: replies leave there one after another, at this rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name, unique.
    pub name: String,
    /// The addresses whose connections leave by it, as they stand in `listen` there.
    pub listen: Vec<SocketAddr>,
    /// What it carries of replies' data and headers.
    pub bandwidth: Bandwidth,
}

/// A tenant: hosts or volumes whose requests are accounted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name, unique.
    pub name: String,
    /// The hosts whose requests are this tenant's, whatever volume they are for. `None`: those of
    /// volumes that name it, unless another tenant claims the host.
    pub initiators: Option<Initiators>,
}

/// A modelled device. Files keep the bytes of the volumes on it; an I/O ends when its file and its model
/// have both done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name, unique; it also names its random streams.
    pub name: String,
    /// How long it takes.
    pub model: Model,
}

/// Where a volume's bytes are, and how hosts see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name, unique.
    pub name: String,
    /// What its SCSI serial number and worldwide name are made of. `None`: this machine's identity
    /// and the volume's name, so that no two gateways give different disks the same one.
    pub identity: Option<String>,
    /// Index of the tenant that its requests belong to, unless one claims the host by its name.
    pub tenant: usize,
    /// What keeps its bytes: 1 to [`PARTS_MAX`](weir_flow::accept::PARTS_MAX) stores, none of which another
    /// volume is on. None: the volume has gone, and its place is empty.
    pub stores: Vec<Where>,
    /// How its bytes are laid out over several of them.
    pub layout: Layout,
    /// Where its writes are safe before they are there.
    pub log: Option<Log>,
    /// Planned moves give it to another gateway with the same volume, and take it from there. Only for a volume with a
    /// log on one upstream, which is reserved, and that one target offers alone.
    pub movable: bool,
    /// The most that it does for all hosts together; [valid](Cap::validate).
    pub cap: Cap,
    /// Logical block size: 512 or 4096.
    pub block_size: u32,
    /// The physical block size that hosts see, and align to: 512 or 4096, and not less than
    /// `block_size`.
    pub physical_block_size: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Whether hosts may unmap blocks.
    pub thin: bool,
    /// Who sees it over iSCSI.
    pub initiators: Initiators,
    /// Hosts may lock and eject it.
    pub removable: bool,
    /// Hosts may have all of its data destroyed by SANITIZE.
    pub sanitize: bool,
    /// WRITE ATOMIC is offered: such a write is kept whole over a loss of power by writing it to a
    /// journal beside the state file first. Only for one file or device: a journal here would not move
    /// with storage that others run.
    pub atomic: bool,
    /// The file that remembers reservations and what else must survive a restart. `None` only for a
    /// device, an upstream or several stores without one: then APTPL, `sanitize` and `atomic` are refused.
    pub state: Option<PathBuf>,
}

impl Volume {
    /// Whether there is a volume at this place.
    pub const fn is_there(&self) -> bool {
        !self.stores.is_empty()
    }

    /// Its file or device, if it is on nothing else.
    pub const fn file(&self) -> Option<&FileStore> {
        match self.stores.as_slice() {
            [Where::File(file)] => Some(file),
            _ => None,
        }
    }

    /// The size that is configured for the only store that it is on.
    pub const fn size(&self) -> Option<u64> {
        match self.stores.as_slice() {
            [Where::File(file)] => file.size,
            [Where::Memory(memory)] => Some(memory.size),
            _ => None,
        }
    }

    /// Its files and devices.
    pub fn files(&self) -> impl Iterator<Item = &FileStore> {
        self.stores.iter().filter_map(Where::file)
    }

    /// Whether it is on this upstream, if only with a part.
    pub fn is_on(&self, upstream: usize) -> bool {
        let on =
            |store: &Where| matches!(store, Where::Upstream { index, .. } if *index == upstream);
        self.stores.iter().any(on)
    }
}

/// How the event log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where a volume's writes are safe before they are on its stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The file or block device, which nothing else is on. A missing file is made, of `size` bytes.
    pub path: PathBuf,
    /// Size in bytes. `None`: that of the existing file or device, 1 GiB for a new one.
    pub size: Option<u64>,
    /// How it is written.
    pub io: IoMode,
    /// When a write is answered.
    pub ack: Ack,
    /// What a flush waits for.
    pub sync: Sync,
    /// What orders write-back.
    pub order: Order,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// When the stores have it. What is in the log goes to them first.
    Through,
    /// When it is durable in the log.
    Log,
    /// When it is in memory: a disk with a volatile cache, durable after a flush.
    Ram,
}

/// How the bytes of a volume are laid out over its stores. It must stay the same for as long as the volume
/// has data, and so must the order of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One store after the other. All but the last have a size, so that where the next one begins does not
    /// depend on what is found.
    Concat,
    /// In turns, over 2 stores or more; of each, as many whole chunks are used as the smallest has.
    Stripe {
        /// Bytes in one turn: a power of two from [`CHUNK_MIN`](weir_flow::accept::CHUNK_MIN) to
        /// [`CHUNK_MAX`](weir_flow::accept::CHUNK_MAX).
        chunk: u64,
    },
}

/// A store: what keeps the bytes of a volume, or a part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A file or a block device of this machine.
    File(FileStore),
    /// An upstream, which no other store is on.
    Upstream {
        /// Index of the upstream.
        index: usize,
        /// How many bytes of its logical unit are used, a multiple of the block size; only for one of
        /// several stores. `None`: all.
        size: Option<u64>,
    },
    /// Memory of the gateway, or nothing.
    Memory(MemoryStore),
}

impl Where {
    /// What operators call it in its configuration; empty for an upstream, which has its own name.
    pub fn name(&self) -> &str {
        match self {
            Self::File(file) => &file.name,
            Self::Memory(memory) => &memory.name,
            Self::Upstream { .. } => "",
        }
    }

    /// The file or device, if it is one.
    pub const fn file(&self) -> Option<&FileStore> {
        match self {
            Self::File(file) => Some(file),
            Self::Upstream { .. } | Self::Memory(_) => None,
        }
    }
}

/// A store without a disk: what hosts write is gone when the gateway stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStore {
    /// What operators call it, as for a [`FileStore`].
    pub name: String,
    /// Size in bytes, a multiple of the block size.
    pub size: u64,
    /// Reads give what was written. Else writes are dropped, and reads give zeroes.
    pub keeps: bool,
}

/// A file or a block device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStore {
    /// What operators call it: unique among the stores of volumes that have several, and the volume's name
    /// for its only one.
    pub name: String,
    /// Where it is. A missing file is made, sparse, of `size` bytes.
    pub path: PathBuf,
    /// Index of the modelled device whose time its I/Os take at least; `None`: only that of the file.
    pub backend: Option<usize>,
    /// Size in bytes, a multiple of the block size. `None`: that of the existing file or device. If it has
    /// more, that is refused for the only store of a volume, and left unused for one of several.
    pub size: Option<u64>,
    /// How the bytes are reached.
    pub io: IoMode,
}

/// The NBD front end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nbd {
    /// Where NBD connections are accepted over TCP. Port 0 takes a free one, reported when ready.
    pub listen: Vec<SocketAddr>,
    /// Unix sockets on which they are accepted. A stale socket file is replaced.
    pub unix: Vec<PathBuf>,
    /// What clients find there.
    pub exports: Vec<Export>,
    /// Certificates for TLS; `None`: no TLS.
    pub tls: Option<Tls>,
    /// Connections at once; one more is closed at once. 1 to 65536.
    pub max_connections: u32,
}

/// A volume under a name of NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What clients ask for; may be empty, which is the default export.
    pub name: String,
    /// Index of the volume.
    pub volume: usize,
}

/// TLS for NBD or HTTP over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Clients must show a certificate that one of these (PEM) has signed.
    pub client_ca: Option<PathBuf>,
    /// Clients that do not start TLS are refused.
    pub required: bool,
}

/// How a file or device is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// `Direct` where the file system can, otherwise `Buffered`; the log says which.
    Auto,
    /// Past the page cache (`O_DIRECT`); refused at start where it cannot be had.
    Direct,
    /// Through the page cache: faster for what fits memory; durable after a flush like any other.
    Buffered,
}

/// A name that hosts log in to, and what they find there.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its iSCSI name, such as `iqn.2026-11.org.example:disks`.
    pub name: String,
    /// A name for people.
    pub alias: Option<String>,
    /// Who may see it and log in.
    pub initiators: Initiators,
    /// What they must prove.
    pub authentication: Authentication,
    /// Where they are sent instead.
    pub redirect: Option<Redirect>,
    /// Pairs of logical unit number (0 to 255) and volume index, ascending, each number once.
    pub luns: Vec<(u16, usize)>,
}

settings! {
    /// What is kept of requests that have ended, for `weir slow`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recorder {
        /// Memory for the records of the latest requests. The slowest of each second, minute and hour take up to 12 MiB more,
        /// and what explains their waits up to 8 MiB. 0 switches the recorder off.
        pub memory: u64 = Size(0, GIB), 4 * MIB;
        /// From this response time on a request is slow, and logged, whatever its objective.
        pub slow: Duration = Time(MILLISECOND, HOUR), 100 * MILLISECOND;
    }
}

settings! {
    /// How the gateway ends.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Stop {
        /// How long a graceful stop waits for outstanding commands. Volumes are flushed in any case.
        pub timeout: Duration = Time(0, HOUR), 30 * SECOND;
    }
}

settings! {
    /// The NVMe/TCP front end.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Nvme {
        /// Connections at once, each a queue; one more is closed at once.
        pub max_connections: u32 = Count(1, 65_536), 1_024;
        /// I/O queues of one controller. A host that asks for more gets this many.
        pub queues: u32 = Count(1, 64), 8;
        /// Commands that one I/O queue may have outstanding.
        pub queue_depth: u32 = Count(16, 1_024), 128;
        /// Data that a command may bring in its capsule. Memory for a whole queue of it is set aside from `buffer` of
        /// `[iscsi]`, at most half of that for all queues. A multiple of 16B.
        pub in_capsule: u64 = Size(4 * KIB, 16 * KIB), 8 * KIB;
        /// Data of one command: a power of two.
        pub max_transfer: u64 = Size(64 * KIB, 4 * MIB), MIB;
        /// How long after the loss of a controller hosts are to expect that its commands take effect.
        pub quiesce: Duration = Time(0, 60 * SECOND), SECOND;
    }
    also {
        /// Where connections are accepted. Port 0 takes a free one, reported when ready.
        pub listen: Vec<SocketAddr> = Vec::new();
        /// The addresses that discovery names. Empty: those that the host can use.
        pub advertise: Vec<SocketAddr> = Vec::new();
        /// CRC32C over headers.
        pub header_digest: DigestPolicy = DigestPolicy::Allowed;
        /// CRC32C over data.
        pub data_digest: DigestPolicy = DigestPolicy::Allowed;
        /// What hosts find.
        pub subsystems: Vec<Subsystem> = Vec::new();
    }
    check whole;
}

impl Nvme {
    /// Whose the requests of an I/O queue of a host are, apart from those of others of its tenant, and the weight.
    pub(crate) fn stream(
        &self,
        subsystem: &str,
        queue: u16,
        host: &str,
    ) -> Option<(Whose, Weight)> {
        let found = self.subsystems.iter().find(|one| one.name == subsystem);
        found.and_then(|one| one.streams.of_queue(queue, host))
    }

    /// The volumes whose requests are streams, with their weights.
    pub(crate) fn volume_streams(&self) -> BTreeMap<usize, Weight> {
        self.subsystems.iter().flat_map(Subsystem::volume_streams).collect()
    }
}

/// What cannot be said by ranges.
fn whole(nvme: &Nvme) -> Result<(), Invalid> {
    if !nvme.max_transfer.is_power_of_two() {
        return Err(Invalid::Rule("max_transfer", "must be a power of two from 64KiB to 4MiB"));
    }
    if !nvme.in_capsule.is_multiple_of(16) {
        return Err(Invalid::Rule("in_capsule", "must be a multiple of 16B"));
    }
    Ok(())
}

settings! {
    /// The limits towards iSCSI hosts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Iscsi {
        /// Connections at once; one more gets the status "out of resources" and is closed.
        pub max_connections: u32 = Count(1, 65_536), 1_024;
        /// Connections at once that have not logged in; one more closes the one that has waited longest.
        pub max_logins: u32 = Count(1, 65_536), 256;
        /// Commands that one session may have outstanding: the command window.
        pub max_commands: u32 = Count(1, 1_024), 128;
        /// Memory for the payload of requests, shared among the sessions. When it is used up, commands are
        /// answered with TASK SET FULL.
        pub buffer: u64 = Size(16 * MIB, PIB), 256 * MIB;
    }
    also {
        /// CRC32C over headers.
        pub header_digest: DigestPolicy = DigestPolicy::Allowed;
        /// CRC32C over data.
        pub data_digest: DigestPolicy = DigestPolicy::Allowed;
        /// The weakest CHAP algorithm that hosts may use.
        pub chap_algorithm_min: ChapAlgorithm = ChapAlgorithm::Md5;
    }
}
