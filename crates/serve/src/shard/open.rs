//! Makes a gateway of the kernel's parts: listeners, the disk driver, helper threads, the control socket, HTTP.

use super::kernel::Kernel;
use super::linux::Linux;
use super::{Gateway, Parts};
use crate::ServeError;
use crate::clock::{Clock, unix_nanos};
use crate::config::{Config, Http as HttpConfig, Nvme, Reader};
use crate::frontend::connection::Protocol;
use crate::frontend::listener::{ListenError, Listener};
use crate::frontend::tls::{self, Certificates};
use crate::isns::Isns;
use crate::operator::http::guard::Guard;
use crate::operator::http::server::Http;
use crate::operator::metrics::Metrics;
use crate::operator::socket::Socket as ControlSocket;
use crate::service::{Inherited, Service};
use crate::storage::Storage;
use crate::storage::blocking::{Blocking, BlockingPool};
use crate::storage::file::Driver;
use crate::storage::file::threads::Threads;
use crate::storage::file::uring::Uring;
use crate::storage::random::KernelRandom;
use crate::storage::store::Store;
use crate::storage::upstream::{Upstreams, initiator_name};
use crate::tasks::{CacheMemory, CommandEngine};
use crate::volume::PersistedState;
use crate::volume::reload::volume_streams;
use mio::{Poll, Waker};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use tracing::info;
use weir_flow::cache;
use weir_flow::control::PolicyHandover;
use weir_flow::pipeline::Input;

/// What is opened, connected and recovered before a gateway exists.
pub(crate) struct Start {
    pub(crate) poll: Poll,
    pub(crate) clock: Clock,
    pub(crate) upstreams: Upstreams<<Linux as Kernel>::Network>,
    pub(crate) stores: Vec<Store>,
    /// By volume.
    pub(crate) persisted: Vec<PersistedState>,
    /// What control has saved.
    pub(crate) saved: Option<PolicyHandover>,
    pub(crate) cache: CacheMemory,
    /// What the logs of volumes hold.
    pub(crate) recovered: Vec<cache::Done>,
    pub(crate) service: Service,
    pub(crate) inherited: Inherited,
}

impl<'a> Gateway<'a> {
    /// Binds the listeners and starts the disk driver and the helper threads.
    pub(crate) fn open(
        config: &Config,
        start: Start,
        reader: &'a mut dyn Reader,
    ) -> Result<Self, ServeError> {
        let Start { poll, clock, upstreams, stores, persisted, saved, cache, .. } = start;
        let Start { recovered, service, mut inherited, .. } = start;
        let tls = |tls| tls::server_config(tls, Certificates::Required);
        let tls = config.nbd.tls.as_ref().map(tls).transpose()?;
        let mut listeners = Listener::all(config, &mut inherited).map_err(|error| match error {
            ListenError::Tcp { address, source } => ServeError::Listen { address, source },
            ListenError::Unix { path, source } => ServeError::ListenUnix { path, source },
        })?;
        inherited.close(&service);
        for (name, descriptor) in listeners.iter().filter_map(Listener::to_keep) {
            service.keep(&name, descriptor);
        }
        let kernel = Linux::new(poll, clock)
            .map_err(|(action, source)| ServeError::Setup { action, source })?;
        kernel.watch_listeners(&mut listeners).map_err(failed("watch a listener"))?;
        let waker = Arc::new(kernel.waker().map_err(failed("make a waker"))?);
        let driver = driver(&kernel, &waker)?;
        let helper = || -> Result<Box<dyn Blocking>, ServeError> {
            let helper =
                BlockingPool::new(wake(&waker)).map_err(failed("start a helper thread"))?;
            Ok(Box::new(helper))
        };
        let helpers = [helper()?, helper()?];
        let control = |path: &Path| {
            let opened = kernel.registry().and_then(|registry| ControlSocket::open(path, registry));
            opened.map_err(|source| ServeError::Control { path: path.to_path_buf(), source })
        };
        let control = config.control.as_deref().map(control).transpose()?;
        let metrics = Arc::new(Metrics::new(unix_nanos()));
        let http = |http: &HttpConfig| {
            let guard = Guard::new(http)?;
            let started = Http::start(&http.listen, guard, clock, metrics.clone(), wake(&waker));
            started.map_err(|source| ServeError::Http { listen: http.listen.clone(), source })
        };
        let http = config.http.as_ref().map(http).transpose()?;
        let isns = isns(config, &listeners, clock)?;
        let mut engine = CommandEngine::new(config, stores, persisted, cache, helpers);
        engine.set.inputs.extend(saved.map(|saved| Input::TakeOver(Arc::new(saved))));
        engine.set.inputs.extend(recovered.into_iter().map(Input::Cache));
        engine.set.inputs.extend(volume_streams(&Nvme::default(), &config.nvme));
        engine.resume();
        let storage = Storage::new(driver, upstreams);
        let random = Box::new(KernelRandom);
        let parts = Parts {
            kernel,
            listeners,
            tls,
            control,
            http,
            isns,
            metrics,
            engine,
            storage,
            random,
            service,
        };
        Ok(Self::new(config, parts, reader))
    }
}

/// The registrations at iSNS servers, if there shall be any.
fn isns(
    config: &Config,
    listeners: &[Listener<<Linux as Kernel>::Listener>],
    clock: Clock,
) -> Result<Option<Isns>, ServeError> {
    let iscsi = listeners.iter().filter(|one| one.protocol == Protocol::Iscsi);
    let listening = iscsi.filter_map(Listener::address).collect::<io::Result<_>>();
    let listening = listening.map_err(failed("read back the address of a listener"))?;
    let started = Isns::start(config, listening, initiator_name(), clock);
    let port = config.isns.as_ref().map_or(0, |isns| isns.port as u16);
    let address = (Ipv6Addr::UNSPECIFIED, port).into();
    started.map_err(|source| ServeError::Listen { address, source })
}

/// The disk driver: `io_uring`, or threads where that is missing.
fn driver(kernel: &Linux, waker: &Arc<Waker>) -> Result<Box<dyn Driver>, ServeError> {
    match Uring::new(RING_ENTRIES) {
        Ok(ring) => {
            kernel.watch_ring(ring.as_raw_fd()).map_err(failed("watch the ring"))?;
            Ok(Box::new(ring))
        }
        Err(reason) => {
            info!(%reason, "no io_uring; disk I/O goes through a thread pool");
            let threads = Threads::new(DISK_THREADS, wake(waker));
            Ok(Box::new(threads.map_err(failed("start disk threads"))?))
        }
    }
}

/// Wakes the event loop. A lost wake-up would need a lost eventfd; the next tick would find the result.
fn wake(waker: &Arc<Waker>) -> impl Fn() + Clone + Send + Sync + 'static {
    let waker = waker.clone();
    move || drop(waker.wake())
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::Setup { action, source }
}

/// Operations that the ring holds at a time; more wait in the driver.
const RING_ENTRIES: u32 = 512;

/// Threads that do disk I/O where there is no ring.
const DISK_THREADS: usize = 8;
