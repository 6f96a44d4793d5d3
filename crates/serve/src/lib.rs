//! The live world: sockets, disks and the only clock.
//!
//! [`serve`] runs one shard: one thread with one event loop that owns its sessions, volumes and
//! policies. What it does with an I/O is decided by `weir-flow`; what it says to hosts is worded by
//! `weir-wire`; here bytes are moved.

mod buffer;
mod clock;
pub mod config;
mod desk;
mod disk;
mod gateway;
mod listen;
mod recorder;
mod sessions;
mod signals;
mod task;
mod unit;
mod watch;

pub use disk::backing::OpenError;

use config::Config;
use disk::backing::Backing;
use gateway::Gateway;
use recorder::{Recorded, Recorder};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use thiserror::Error;
use tracing::{info, warn};
use watch::Watch;
use weir_flow::accept;
use weir_flow::pipeline::{self, Pipeline};
use weir_flow::request::BackendId;
use weir_flow::stage::run;

/// What a gateway has when it starts to serve.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where hosts can connect, with the ports that were taken.
    pub portals: Vec<SocketAddr>,
    /// The disk driver in use: `io_uring` or `threads`.
    pub driver: &'static str,
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<ReadyVolume>,
}

/// A volume that is being served.
#[derive(Clone, Debug)]
pub struct ReadyVolume {
    /// Its name.
    pub name: String,
    /// Its file or device.
    pub path: PathBuf,
    /// Its size in bytes.
    pub capacity: u64,
    /// Whether the page cache is passed by.
    pub direct: bool,
    /// Whether the file was made just now.
    pub created: bool,
}

/// Why the gateway could not serve, or stopped serving.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A recording cannot be written.
    #[error("cannot write the recording {}: {source}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
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
    #[error("left with {outstanding} requests in flight; what was acknowledged is durable")]
    Unfinished {
        /// Requests that nobody was told the end of.
        outstanding: u32,
    },
}

impl ServeError {
    /// Whether an address or a device is unavailable, which trying again later may cure.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Listen { .. })
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// `ready` is called once, when hosts can connect. After the first signal no new work is taken, what
/// is in flight is finished, all volumes are made durable and the function returns; after a second
/// one only what the kernel already has is waited for.
pub fn serve(config: &Config, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    let backings = config.volumes.iter().map(Backing::open).collect::<Result<Rc<[_]>, _>>()?;
    let plan = pipeline_config(config, &backings);
    let mut gateway = Gateway::new(config, backings.clone())?;
    let mut recorder = match &config.record {
        None => None,
        Some(path) => Some(
            Recorder::create(path, &plan)
                .map_err(|source| ServeError::Record { path: path.clone(), source })?,
        ),
    };
    let portals = gateway.portals().map_err(|source| ServeError::Setup {
        action: "read back the address of a listener",
        source,
    })?;
    let volumes = config.volumes.iter().zip(backings.iter()).map(ready_volume).collect();
    ready(&Ready { portals, driver: gateway.driver_name(), volumes });

    let names = config.volumes.iter().map(|volume| volume.name.clone()).collect();
    let mut pipeline = Pipeline::new(&plan, Watch::new(names));
    match &mut recorder {
        None => run(&mut pipeline, &mut gateway),
        Some(recorder) => {
            run(&mut pipeline, &mut Recorded { world: &mut gateway, recorder });
        }
    }
    for census in pipeline.census(gateway.now()).iter().filter(|census| census.count > 0) {
        let (stage, count, oldest) = (census.stage, census.count, census.oldest);
        warn!(%stage, count, %oldest, "left behind");
    }
    let (failure, lost) = (gateway.take_failure(), gateway.lost_volumes());
    // The driver lets go of the files first; it waits for what the kernel still has.
    drop(gateway);
    let flushed = flush(config, &backings, &lost);
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

/// Makes every volume durable; the first failure, after all have been tried.
fn flush(config: &Config, backings: &[Backing], lost: &[String]) -> Result<(), ServeError> {
    let mut result = Ok(());
    for (volume, backing) in config.volumes.iter().zip(backings) {
        let synced = match backing.sync() {
            // The kernel tells of a failure once; an earlier flush was told of this one.
            _ if lost.contains(&volume.name) => Err(io::Error::other("an earlier flush failed")),
            _ if volume.read_only => Ok(()),
            synced => synced,
        };
        let name = volume.name.clone();
        let failed = synced.map_err(|source| ServeError::Flush { volume: name, source });
        result = result.and(failed);
    }
    result
}

/// The data path of a gateway: each volume is a backend of its own with one path.
fn pipeline_config(config: &Config, backings: &[Backing]) -> pipeline::Config {
    let volume = |(index, backing): (usize, &Backing)| accept::Volume {
        capacity: backing.capacity,
        backend: BackendId::new(index as u32),
        max_transfer: desk::PIECE,
    };
    pipeline::Config {
        volumes: backings.iter().enumerate().map(volume).collect(),
        backends: vec![1; backings.len()],
        limits: config.limits,
        policies: config.policies.clone(),
    }
}

fn ready_volume((volume, backing): (&config::Volume, &Backing)) -> ReadyVolume {
    let opened = ReadyVolume {
        name: volume.name.clone(),
        path: volume.path.clone(),
        capacity: backing.capacity,
        direct: backing.direct,
        created: backing.created,
    };
    info!(
        volume = opened.name,
        file = %opened.path.display(),
        size = %weir_flow::units::ByteCount(opened.capacity),
        io = if opened.direct { "direct" } else { "buffered" },
        created = opened.created,
        "volume"
    );
    opened
}
