//! What the desk promises about durability, against a driver that does nothing by itself.

use super::*;
use crate::config::{
    Authentication, Initiators, IoMode, Iscsi, Nbd, Target as TargetConfig, Volume as VolumeConfig,
};
use crate::disk::{Done, Driver, Io, Work};
use crate::task::{Deed, End, Task};
use std::io;
use weir_flow::error::IoError;
use weir_flow::pipeline::StoreIo;
use weir_flow::pipeline::{Limits as PipelineLimits, Policies};
use weir_flow::request::{BackendId, PathId};
use weir_flow::request::{Op, Outcome, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Media, MediaOp};

/// Remembers what it was given.
#[derive(Default)]
struct Given(Vec<Io>);

impl Driver for Given {
    fn name(&self) -> &'static str {
        "given"
    }

    fn submit(&mut self, io: Io) {
        self.0.push(io);
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, _: &mut Vec<Done>) -> bool {
        false
    }
}

struct Scene {
    desk: Desk,
    driver: Given,
    task: TaskKey,
    keys: SlotMap<RequestKey, ()>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-desk-{name}-{}", std::process::id()));
        let config = Config {
            listen: Vec::new(),
            advertise: Vec::new(),
            accounts: Vec::new(),
            discovery: Authentication::default(),
            nbd: Nbd::default(),
            tenants: vec![String::from("t")],
            volumes: vec![VolumeConfig {
                name: String::from("v"),
                identity: None,
                tenant: 0,
                path: path.clone(),
                size: Some(1 << 20),
                block_size: 512,
                physical_block_size: 4096,
                read_only: false,
                thin: true,
                io: IoMode::Buffered,
                initiators: Initiators::default(),
                removable: false,
                sanitize: false,
                atomic: false,
                state: None,
            }],
            targets: vec![TargetConfig {
                name: String::from("iqn.t"),
                alias: None,
                initiators: Initiators::default(),
                authentication: Authentication::default(),
                redirect: None,
                luns: vec![(0, 0)],
            }],
            policies: Policies::default(),
            limits: PipelineLimits::default(),
            iscsi: Iscsi::default(),
            record: None,
            stop_within: Duration::ZERO,
        };
        let backing = Backing::open(&config.volumes[0]).expect("a new file");
        // The open file lives on without its name.
        std::fs::remove_file(path).expect("it was just made");
        let chores = Chores::new(|| {}).expect("a thread");
        let mut desk = Desk::new(&config, Rc::from([backing]), vec![Kept::default()], chores);
        let op = MediaOp::Synchronize { immediate: false };
        let data = desk.pool.take(512);
        let media = Media { op, lba: 0, blocks: 1, fua: true, dpo: false };
        let mut task = Task::new(Instant::ZERO, 0, Deed::Media(media));
        (task.data, task.data_length) = (data, 512);
        task.phase = Phase::Flowing { left: 9, end: End::Good };
        let task = desk.tasks.insert(task);
        Self { desk, driver: Given::default(), task, keys: SlotMap::with_key() }
    }

    /// The pipeline asks for a flush, or for a write with FUA.
    fn ask(&mut self, op: Op) -> RequestKey {
        let key = self.keys.insert(());
        let io = StoreIo {
            key,
            tag: self.task.tag(),
            volume: VolumeId::new(0),
            backend: BackendId::new(0),
            path: PathId::new(0),
            op,
            extent: if op == Op::Flush { Extent::default() } else { Extent::new(0, 512) },
            offset_in_request: 0,
            fua: op == Op::Write,
        };
        self.desk.store(&io, &mut self.driver);
        key
    }

    /// The driver ends what it was given first.
    fn end(&mut self, result: io::Result<()>) {
        let io = self.driver.0.remove(0);
        let flushed = matches!(io.work, Work::Sync);
        let done = Done { key: io.key, result, flushed, promise: io.promise };
        self.desk.stored(done, &mut self.driver);
    }

    /// What the pipeline was told since the last time.
    fn told(&mut self) -> Vec<(RequestKey, Outcome)> {
        let stored = |input| match input {
            Input::Stored { key, outcome } => (key, outcome),
            other => panic!("only ends are told here: {other:?}"),
        };
        self.desk.inbox.drain(..).map(stored).collect()
    }
}

fn failure(code: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(code))
}

/// One flush is at the driver at a time, and it is never one that began before a flush was asked
/// for: those who come meanwhile share the next. Everybody is answered once.
#[test]
fn flushes_are_shared() {
    let mut scene = Scene::new("shared");
    let keys = [(); 4].map(|()| scene.ask(Op::Flush));
    assert_eq!(scene.driver.0.len(), 1);
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(keys[0], Ok(()))], "the others came after it began");
    assert_eq!(scene.driver.0.len(), 1, "one for all three");
    scene.end(Ok(()));
    let mut told = scene.told();
    told.sort_unstable_by_key(|&(key, _)| key);
    assert_eq!(told, [(keys[1], Ok(())), (keys[2], Ok(())), (keys[3], Ok(()))]);
    assert!(scene.driver.0.is_empty());
    let again = scene.ask(Op::Flush);
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(again, Ok(()))]);
}

/// After a flush has failed, whatever waited for one and whatever asks later is told of a failure,
/// without asking the kernel, which would have forgotten.
#[test]
fn a_failed_flush_is_final() {
    let mut scene = Scene::new("final");
    let keys = [(); 2].map(|()| scene.ask(Op::Flush));
    scene.end(failure(libc::EIO));
    let lost = Err(IoError::Medium);
    assert_eq!(scene.told(), [(keys[0], lost), (keys[1], lost)]);
    let (flush, write) = (scene.ask(Op::Flush), scene.ask(Op::Write));
    assert_eq!(scene.told(), [(flush, lost), (write, lost)]);
    assert!(scene.driver.0.is_empty() && scene.desk.volumes[0].lost);
}

/// A durable write that finds no space has lost nothing but itself: later flushes work. One that
/// meets a broken medium is as final as a flush.
#[test]
fn a_full_disk_is_not_a_lost_one() {
    let mut scene = Scene::new("full");
    let write = scene.ask(Op::Write);
    scene.end(failure(libc::ENOSPC));
    assert_eq!(scene.told(), [(write, Err(IoError::NoSpace))]);
    let flush = scene.ask(Op::Flush);
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(flush, Ok(()))]);
    scene.ask(Op::Write);
    scene.end(failure(libc::EIO));
    assert!(scene.desk.volumes[0].lost);
}
