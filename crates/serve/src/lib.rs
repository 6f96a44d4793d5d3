//! The live world: sockets, disks and the only clock.
//!
//! [`serve`] runs one shard: one thread with one event loop that owns its sessions, volumes and
//! policies. What it does with an I/O is decided by `weir-flow`; what it says to hosts is worded by
//! `weir-wire`; here bytes are moved.

mod aged;
mod buffer;
mod clock;
pub mod config;
mod folder;
mod frontend;
mod identity;
mod ids;
mod isns;
mod limits;
mod link_hosts;
pub mod operator;
mod peer_log;
mod preflight;
mod service;
mod shard;
mod source;
mod storage;
mod tasks;
#[cfg(test)]
mod testing;
mod volume;

pub use frontend::tls::TlsError;
pub use preflight::preflight;
pub use storage::file::backing::OpenError;
pub use storage::log_device::inspect::{ClosedLog, Image, LogReader, LookError};
pub use storage::log_device::log::LogError;
pub use storage::state_file::{StateDamage, StateError};
pub use storage::upstream::{Denied, Unowned, Unreachable, UnreachablePath};

use clock::Clock;
use config::{Config, HttpListen, Reader, Where};
use mio::Poll;
use operator::answer::answer;
use operator::backends::Backends;
use operator::event_log::Watch;
use operator::summary;
use service::{Inherited, Service};
use shard::live::persisted_state;
use shard::open::Start;
use shard::recorder::{Recorded, Recorder};
use shard::{Gateway, core_dumps, descriptors, plan};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use storage::random::{KernelRandom, Random};
use storage::store::{self, Store};
use storage::upstream::network::{KernelEvents, Tcp};
use storage::upstream::{self, StartError, Upstreams, remembered};
use storage::{layout, log_device, state_file};
use tasks::CacheMemory;
use thiserror::Error;
use tracing::{info, warn};
use volume::{Life, Volume, credits};
use weir_flow::pipeline::{Census, Pipeline};
use weir_flow::request::VolumeId;
use weir_flow::stage::run;

/// What a gateway has when it starts to serve.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where hosts can connect, with the ports that were taken.
    pub portals: Vec<SocketAddr>,
    /// Where NBD clients can connect.
    pub nbd: Vec<NbdListener>,
    /// Where NVMe hosts can connect, with the ports that were taken.
    pub nvme: Vec<SocketAddr>,
    /// Where operators can ask it: the control socket, if it has one.
    pub control: Option<PathBuf>,
    /// Where operators can ask it over HTTP, with the port that was taken.
    pub http: Option<HttpListen>,
    /// The disk driver in use: `io_uring` or `threads`.
    pub driver: &'static str,
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<ReadyVolume>,
}

/// Where NBD clients can connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdListener {
    /// Over TCP, with the port that was taken.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

/// A volume that is being served.
#[derive(Clone, Debug)]
pub struct ReadyVolume {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// What keeps its bytes, in order.
    pub stores: Vec<ReadyStore>,
}

/// What keeps the bytes of a volume that is being served.
#[derive(Clone, Debug)]
pub enum ReadyStore {
    /// A file or device of this machine.
    File {
        /// Where it is.
        path: PathBuf,
        /// Whether the page cache is passed by.
        direct: bool,
        /// Whether the file was made just now.
        created: bool,
    },
    /// Memory of the gateway.
    Memory {
        /// Reads give what was written. Else writes are dropped.
        keeps: bool,
    },
    /// A logical unit of another target.
    Upstream {
        /// Its name in the configuration.
        name: String,
        /// The target's iSCSI name.
        target: String,
        /// The logical unit number.
        lun: u64,
        /// How many paths there are to it.
        paths: u32,
        /// How many of them work.
        ready: u32,
    },
}

/// Why the gateway could not serve, or stopped serving.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An upstream cannot be reached.
    #[error(transparent)]
    Upstream(#[from] Unreachable),
    /// The unit of an upstream is not to be written to.
    #[error(transparent)]
    Owned(#[from] Unowned),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on the Unix socket {}: {source}", .path.display())]
    ListenUnix {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The control socket cannot be had.
    #[error("cannot listen on the control socket {}: {source}", .path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The HTTP interface cannot be had.
    #[error("cannot listen for HTTP on {listen}: {source}")]
    Http {
        /// Where.
        listen: HttpListen,
        /// Why not.
        source: io::Error,
    },
    /// TLS cannot be offered.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What a volume has kept from before cannot be used.
    #[error("volume `{volume}`: {source}")]
    State {
        /// The volume.
        volume: String,
        /// Why not.
        source: StateError,
    },
    /// The reservations that a volume has kept are of no use.
    #[error(
        "volume `{volume}`: the reservations in {} cannot be read: {problem}; to start without \
         them, move the file away",
        .path.display()
    )]
    Reservations {
        /// The volume.
        volume: String,
        /// Its state file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The journal of a volume's atomic writes cannot be used.
    #[error("volume `{volume}`: cannot use the journal {}: {source}", .path.display())]
    Journal {
        /// The volume.
        volume: String,
        /// The journal.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A volume's log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A recording cannot be written.
    #[error("cannot write the recording {}: {source}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What control has kept from before cannot be read.
    #[error("cannot read what tenants have saved: {0}")]
    Savings(StateError),
    /// Something that every gateway needs was refused by the operating system.
    #[error("cannot {action}: {source}")]
    Setup {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// What was acknowledged could not be made durable at the end.
    #[error(
        "volume `{volume}` could not be flushed at the end: {source}; its last writes may be lost"
    )]
    Flush {
        /// The volume.
        volume: String,
        /// Why not.
        source: io::Error,
    },
    /// The gateway left before everything in flight had ended.
    #[error("stopped with {outstanding} requests in flight; acknowledged data is durable")]
    Unfinished {
        /// Requests whose end was not reported.
        outstanding: u32,
    },
}

impl From<StartError> for ServeError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Unreachable(error) => Self::Upstream(error),
            StartError::Unowned(error) => Self::Owned(error),
            StartError::Wait(source) => Self::Setup { action: "wait for events", source },
        }
    }
}

impl ServeError {
    /// Whether the state of a volume is damaged, so that an operator must inspect it.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_damage())
            || matches!(self, Self::Owned(unowned) if unowned.why.is_stale())
            || matches!(self, Self::Reservations { .. })
            || matches!(self, Self::State { source, .. } if source.is_damage())
    }

    /// Whether an address or a device is unavailable, which trying again later may cure.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Log(error) if !error.is_damage())
            || matches!(self, Self::Owned(unowned) if !unowned.why.is_stale())
            || matches!(
                self,
                Self::Open(_)
                    | Self::Upstream(_)
                    | Self::Listen { .. }
                    | Self::ListenUnix { .. }
                    | Self::Control { .. }
                    | Self::Http { .. }
            )
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// `ready` is called once, when hosts can connect. After the first signal no new work is taken, what
/// is in flight is finished, all volumes are made durable and the function returns; after a second
/// one only what the kernel already has is waited for. At SIGHUP `reader` reads the
/// configuration again; what can change live is put into force. SIGUSR1 logs how tenants fare, what held
/// them, and what is outstanding; how they fared is logged at the end, too. What operators can ask and
/// order on the control socket is in [`operator`].
pub fn serve(
    config: &Config,
    ready: impl FnOnce(&Ready),
    reader: &mut dyn Reader,
) -> Result<(), ServeError> {
    core_dumps::keep_secrets_out(config);
    raise_descriptors(config);
    let mut opened = open(config, reader, Service::of_environment())?;
    ready(&opened.ready(config)?);
    opened.gateway.is_ready();
    let pipeline = opened.run(config);
    opened.close(pipeline)
}

/// A gateway that hosts can connect to.
struct Opened<'a> {
    gateway: Gateway<'a>,
    plan: weir_flow::pipeline::Config,
    recorder: Option<Recorder>,
}

/// Allows as many open files as the configuration can need.
fn raise_descriptors(config: &Config) {
    let connections =
        [config.iscsi.max_connections, config.nbd.max_connections, config.nvme.max_connections];
    let connections: u64 = connections.map(u64::from).iter().sum();
    let paths = config.upstreams.iter().map(|upstream| upstream.portals.len() as u64);
    let stores = config.volumes.iter().map(|volume| 2 + volume.stores.len() as u64);
    let wanted = connections + OTHER_DESCRIPTORS + stores.sum::<u64>() + 2 * paths.sum::<u64>();
    match descriptors::raise_descriptors(wanted) {
        Ok(limit) if limit < wanted => {
            warn!(limit, wanted, "fewer open files than connections are allowed (ulimit -n)");
        }
        Ok(_) => {}
        Err(problem) => warn!(%problem, wanted, "cannot raise the limit of open files"),
    }
}

/// Opens stores, state and logs, claims upstreams, and binds the listeners.
fn open<'a>(
    config: &Config,
    reader: &'a mut dyn Reader,
    service: Service,
) -> Result<Opened<'a>, ServeError> {
    let inherited = Inherited::of_environment();
    let clock = Clock::start();
    let mut poll = Poll::new().map_err(setup("make an event queue"))?;
    let registry = poll.registry().try_clone();
    let network = Tcp::new(registry.map_err(setup("watch connections to upstreams"))?);
    let first = config.backends.len();
    service.starting("connecting to upstreams");
    let mut upstreams = Upstreams::new(&config.upstreams, first, network, Box::new(KernelRandom));
    let remembered = remembered::load(config);
    let may_be_away = remembered::may_be_away(config, &remembered);
    upstreams.connect(&mut KernelEvents::new(&mut poll, clock), may_be_away)?;
    let stores = layout::open(config, &upstreams)?;
    let persisted = layout::ranges(&config.volumes);
    let persisted = persisted.map(|(volume, range)| persisted_state(volume, &stores[range]));
    let persisted = persisted.collect::<Result<_, _>>()?;
    let plan = plan::plan(config, &stores);
    let names: Vec<_> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let saved = config.savings.as_ref().map(|path| credits::load(path, &names)).transpose();
    let saved = saved.map_err(ServeError::Savings)?;
    service.starting("recovering write-back logs");
    let logs = log_device::open(config, &plan.cache, &mut KernelRandom)?;
    let dirty = |volume: usize| logs.logged[volume].is_some_and(|log| log.dirty);
    service.starting("claiming upstreams");
    upstreams.check_identity(config, &remembered, dirty)?;
    let owners = upstream::owners(config, &logs.logged);
    upstreams.claim(&mut KernelEvents::new(&mut poll, clock), config, owners)?;
    for (index, volume) in config.volumes.iter().enumerate() {
        let units = upstreams.to_remember(config, index, false);
        let saved = remembered::save(volume, &units);
        saved.map_err(|source| ServeError::State { volume: volume.name.clone(), source })?;
    }
    let start = Start {
        poll,
        clock,
        upstreams,
        stores,
        persisted,
        saved,
        cache: CacheMemory::new(&plan.cache, logs.logs, logs.lost),
        recovered: logs.found,
        service,
        inherited,
    };
    let gateway = Gateway::open(config, start, reader)?;
    let recorder = config.record.as_ref().map(|path| {
        Recorder::create(path, &plan)
            .map_err(|source| ServeError::Record { path: path.clone(), source })
    });
    Ok(Opened { gateway, plan, recorder: recorder.transpose()? })
}

impl Opened<'_> {
    /// What hosts can connect to, and the volumes that they find.
    fn ready(&self, config: &Config) -> Result<Ready, ServeError> {
        let address = || setup("read back the address of a listener");
        let portals = self.gateway.portals().map_err(address())?;
        let nbd = self.gateway.nbd().map_err(address())?;
        let nvme = self.gateway.nvme().map_err(address())?;
        let volumes = layout::ranges(&config.volumes);
        let volumes = volumes.map(|(volume, range)| {
            ready_volume(volume, &self.gateway.engine().catalog.stores[range])
        });
        let (control, driver) = (config.control.clone(), self.gateway.driver_name());
        let http = self.gateway.http();
        Ok(Ready { portals, nbd, nvme, control, http, driver, volumes: volumes.collect() })
    }

    /// Runs the pipeline until the gateway is asked to stop.
    fn run(&mut self, config: &Config) -> Pipeline<Watch> {
        let Self { gateway, plan, recorder, .. } = self;
        let backends = Rc::new(RefCell::new(Backends::new(config, plan)));
        gateway.name_backends(backends.clone());
        let engine = gateway.engine();
        let volumes = (engine.catalog.volume_names.clone(), engine.volumes_gone());
        let set = &gateway.engine().set;
        let shared = (set.log.clone(), set.hosts.clone());
        let mut start = [0; 2];
        // Without chance, ids of requests repeat after a restart.
        let _ = KernelRandom.fill(&mut start);
        let start = u16::from_le_bytes(start);
        let mut pipeline = Pipeline::new(
            plan,
            Watch::new(
                volumes,
                backends.clone(),
                gateway.tenant_names(),
                shared,
                (&plan.promises, gateway.metrics()),
                (config.recorder, start),
            ),
        );
        let mut key = [0; 8];
        // Without random bytes the key is known, and a host could choose addresses that the cache is slow to find.
        let _ = KernelRandom.fill(&mut key);
        pipeline.set_key(u64::from_le_bytes(key));
        loop {
            match recorder {
                None => run(&mut pipeline, gateway),
                Some(recorder) => {
                    run(&mut pipeline, &mut Recorded { world: gateway, recorder });
                }
            }
            let Some(question) = gateway.take_question() else { return pipeline };
            let reaction = answer(&mut pipeline, &gateway.view(), &backends.borrow(), question);
            gateway.react(reaction);
        }
    }

    /// Makes everything durable, and says what is not.
    fn close(self, mut pipeline: Pipeline<Watch>) -> Result<(), ServeError> {
        let Self { mut gateway, recorder, .. } = self;
        let now = gateway.now();
        if let Some((path, bytes)) = gateway.kept(&pipeline.handover(now))
            && let Err(problem) = state_file::save(&path, &bytes)
        {
            warn!(%problem, "burst-credit state not saved");
        }
        let left = pipeline.census(now).into_iter().filter(|census| census.count > 0);
        for Census { stage, count, oldest } in left {
            warn!(%stage, count, %oldest, "left behind");
        }
        let (tenants, left_out) = pipeline.observer_mut().tenants(now);
        summary::log(&tenants, left_out);
        let clean = |volume: usize| {
            let log = pipeline.cache().log(VolumeId::new(volume as u32));
            log.is_none_or(|log| log.status(now).dirty_bytes == 0)
                && gateway.engine().cache.is_clean(volume)
        };
        let clean: Vec<bool> = (0..gateway.config().volumes.len()).map(clean).collect();
        gateway.leave_upstreams(&clean);
        gateway.engine().set.log.finish(now);
        let failure = gateway.take_failure();
        let lost = gateway.lost_volumes(|volume| pipeline.is_lost(volume));
        let (volumes, stores) = gateway.take_volumes();
        // The driver closes first; it waits for the operations that the kernel still has.
        drop(gateway);
        let flushed = flush(&volumes, &stores, &lost);
        if let Some(recorder) = recorder {
            recorder.finish();
        }
        let Watch { completed, failed, refused, .. } = *pipeline.observer();
        flushed?;
        info!(completed, failed, refused, "stopped; every volume is durable");
        if let Some(failure) = failure {
            return Err(failure);
        }
        match pipeline.outstanding() {
            0 => Ok(()),
            outstanding => Err(ServeError::Unfinished { outstanding }),
        }
    }
}

/// A failure of the operating system to do what every gateway needs.
fn setup(action: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::Setup { action, source }
}

/// Makes every volume durable; the first failure, after all have been tried.
fn flush(volumes: &[Volume], stores: &[Store], lost: &[String]) -> Result<(), ServeError> {
    let earlier = || io::Error::other("an earlier flush failed");
    // One that has gone has no store any more. It has had its last flush.
    let gone = volumes.iter().find(|volume| volume.life == Life::Gone && volume.lost);
    let mut result = gone.map_or(Ok(()), |volume| {
        Err(ServeError::Flush { volume: volume.name.clone(), source: earlier() })
    });
    let there = volumes.iter().filter(|volume| volume.life != Life::Gone);
    let every =
        there.flat_map(|volume| stores[volume.stores.clone()].iter().map(move |one| (volume, one)));
    for (volume, store) in every {
        let synced = match store.sync() {
            // The kernel reports a failure once, and an earlier flush got this one.
            _ if lost.contains(&volume.name) => Err(earlier()),
            _ if volume.unit.disk().read_only => Ok(()),
            synced => synced,
        };
        let name = volume.name.clone();
        let failed = synced.map_err(|source| ServeError::Flush { volume: name, source });
        result = result.and(failed);
    }
    result
}

/// Open files besides connections and volumes: the ring, pollers, listeners, operators, the log, a recording, and hosts that
/// were turned away.
const OTHER_DESCRIPTORS: u64 = 1_200 + shard::TURNED_AWAY_MAX as u64;

fn ready_volume(volume: &config::Volume, stores: &[Store]) -> ReadyVolume {
    let (name, capacity) = (volume.name.clone(), layout::capacity(volume, stores));
    let size = weir_flow::units::ByteCount(capacity);
    let ready_store = |(place, store): (&Where, &Store)| match (store, place) {
        (Store::File(backing), Where::File(file)) => {
            let (file, direct, created) = (file.path.clone(), backing.direct, backing.created);
            let io = if direct { "direct" } else { "buffered" };
            info!(volume = name, file = %file.display(), %size, io, created, "volume");
            ReadyStore::File { path: file, direct, created }
        }
        (Store::Upstream(unit), _) => {
            let store::Unit { name: upstream, target, lun, paths, ready, .. } = unit.clone();
            info!(volume = name, upstream, target, lun, %size, paths, ready, "volume");
            ReadyStore::Upstream { name: upstream, target, lun, paths, ready }
        }
        (Store::Memory(memory), _) => ReadyStore::Memory { keeps: memory.keeps() },
        (Store::File(_) | Store::Closed, _) => unreachable!("opened as it is configured"),
    };
    let ready = volume.stores.iter().zip(stores).map(ready_store).collect();
    layout::warn_of_loss(volume, stores);
    layout::log_unused(volume, stores);
    ReadyVolume { name, capacity, stores: ready }
}
