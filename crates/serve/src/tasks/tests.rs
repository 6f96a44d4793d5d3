//! What the command engine promises about durability, against a driver that does nothing by itself.

use super::*;
use crate::config::{FileStore, IoMode, Places, Where};
use crate::frontend::nvme::controllers;
use crate::storage::blocking::{Blocking, BlockingPool};
use crate::storage::file::backing::Backing;
use crate::storage::io::{Ended, Io, StorageSubmit, Submit, Whose, Work, tenant_error};
use crate::storage::store::Unit;
use crate::tasks::table::{End, Phase, Task, TaskKind};
use crate::testing::config;
use crate::volume::Life;
use crate::volume::reload::{InLogs, Uses};
use slotmap::SlotMap;
use std::io;
use std::rc::Rc;
use weir_flow::clock::Duration;
use weir_flow::error::IoError;
use weir_flow::pipeline::StoreIo;
use weir_flow::request::{BackendId, PathId, RequestKey};
use weir_flow::request::{Op, Outcome, VolumeId};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::reservation::{HostAction, HostOut};

/// Remembers what it was given.
#[derive(Default)]
struct Given(Vec<Io>);

impl Submit for Given {
    fn submit(&mut self, request: StorageSubmit) {
        let StorageSubmit::Io(_, io) = request else { panic!("{request:?} is for paths") };
        self.0.push(io);
    }
}

struct Scene {
    config: Config,
    engine: CommandEngine,
    driver: Given,
    task: TaskKey,
    keys: SlotMap<RequestKey, ()>,
}

impl Scene {
    fn new(name: &str) -> Self {
        Self::on(1, name)
    }

    /// With a volume on this number of stores.
    fn on(stores: usize, name: &str) -> Self {
        Self::with(stores, name, Store::File)
    }

    /// With a volume on an upstream.
    fn on_an_upstream(name: &str) -> Self {
        Self::with(1, name, |file| {
            Store::Upstream(Unit {
                capacity: file.capacity.into(),
                block_size: 512,
                write_cache: true,
                thin: false,
                max_transfer: 1 << 20,
                name: String::from("array"),
                target: String::from("iqn.2026-11.org.example:array"),
                lun: 0,
                paths: 1,
                ready: 1,
            })
        })
    }

    fn with(stores: usize, name: &str, store: impl Fn(Backing) -> Store) -> Self {
        let path = std::env::temp_dir().join(format!("weir-engine-{name}-{}", std::process::id()));
        let place = |part: usize| {
            Where::File(FileStore {
                name: String::from("s"),
                path: path.with_extension(part.to_string()),
                backend: None,
                size: Some(1 << 20),
                io: IoMode::Buffered,
            })
        };
        let config = config((0..stores).map(place).collect());
        let volume = &config.volumes[0];
        let open = |file: &FileStore| {
            let backing = Backing::open(volume, file).expect("a new file");
            // The open file lives on without its name.
            std::fs::remove_file(&file.path).expect("it was just made");
            store(backing)
        };
        let stores: Vec<Store> = volume.files().map(open).collect();
        let pool =
            |()| -> Box<dyn Blocking> { Box::new(BlockingPool::new(|| {}).expect("a thread")) };
        let helpers = [(); 2].map(pool);
        let cache = CacheMemory::new(&config.cache, vec![None], vec![None]);
        let mut engine =
            CommandEngine::new(&config, stores, vec![PersistedState::default()], cache, helpers);
        let op = MediaOp::Synchronize { immediate: false };
        let data = engine.set.memory.take(512);
        let media = Media { op, lba: 0, blocks: 1, fua: true, dpo: false };
        let mut task = Task::new(Instant::ZERO, 0, TaskKind::Media(media));
        (task.data, task.data_length) = (data, 512);
        task.phase = Phase::InPipeline { left: 9, end: End::Good };
        let task = engine.set.tasks.insert(task);
        Self { config, engine, driver: Given::default(), task, keys: SlotMap::with_key() }
    }

    /// Makes the command another one, with this data and this content of the medium.
    fn becomes(&mut self, op: MediaOp, data: &[u8], medium: &[u8]) {
        let buffer = |engine: &mut CommandEngine, bytes: &[u8]| {
            let mut buffer = engine.set.memory.take(bytes.len()).unwrap();
            let memory = Rc::get_mut(&mut buffer).unwrap().bytes_mut();
            memory[..bytes.len()].copy_from_slice(bytes);
            buffer
        };
        let (data_length, data) = (data.len() as u32, buffer(&mut self.engine, data));
        let medium = buffer(&mut self.engine, medium);
        let task = &mut self.engine.set.tasks[self.task];
        let media = Media { op, lba: 0, blocks: 1, fua: false, dpo: false };
        task.kind = TaskKind::Media(media);
        (task.data, task.data_length, task.medium) = (Some(data), data_length, Some(medium));
    }

    /// What the driver was given first, in a word.
    fn given(&self) -> &'static str {
        match &self.driver.0[..] {
            [] => "nothing",
            [io, ..] => match &io.work {
                Work::Read { .. } => "read",
                Work::Write { at: 512, .. } => "write the second half",
                Work::Write { durable: true, .. } => "durable write",
                Work::Write { .. } => "write",
                Work::Sync => "sync",
                Work::Discard | Work::Zero => "zero",
            },
        }
    }

    /// The pipeline asks for a flush, for zeroes or a write with FUA, or for an update.
    fn ask(&mut self, op: Op) -> RequestKey {
        self.ask_part(op, 0)
    }

    /// The same of a part of the volume.
    fn ask_part(&mut self, op: Op, part: u32) -> RequestKey {
        let key = self.keys.insert(());
        let io = StoreIo {
            key,
            tag: self.task.tag(),
            volume: VolumeId::new(0),
            part,
            backend: BackendId::new(0),
            path: PathId::new(0),
            op,
            extent: if op == Op::Flush { Extent::default() } else { Extent::new(0, 512) },
            offset_in_request: 0,
            fua: matches!(op, Op::Write | Op::WriteZeroes | Op::Discard),
        };
        self.engine.store(Instant::ZERO, &io, &mut self.driver);
        key
    }

    /// The driver ends what it was given first.
    fn end(&mut self, result: io::Result<()>) {
        let Io { whose, work, promise, .. } = self.driver.0.remove(0);
        let outcome = result.map_err(|problem| tenant_error(&problem));
        let of_file = matches!(self.engine.catalog.stores[0], Store::File(_));
        let flushed = of_file && matches!(work, Work::Sync);
        let ended = Ended { whose, outcome, flushed, promise };
        // Drivers let go of buffers before they say so.
        drop(work);
        self.engine.ended(ended, &mut self.driver);
    }

    /// What the pipeline was told since the last time.
    fn told(&mut self) -> Vec<(RequestKey, Outcome)> {
        let stored = |input| match input {
            Input::Stored { key, outcome } => (key, outcome),
            other => panic!("only ends are reported here: {other:?}"),
        };
        self.engine.set.inputs.drain(..).map(stored).collect()
    }
}

impl Scene {
    /// A reload takes the volume away, and its command ends.
    fn remove(&mut self) {
        let new = Config { volumes: Vec::new(), targets: Vec::new(), ..self.config.clone() };
        let nobody = |_| Vec::new();
        let (in_log, opened) = (&InLogs::new(), &|_| false);
        let uses = Uses { force: true, of_volume: &nobody, of_export: &nobody, in_log, opened };
        let planned =
            self.engine.plan_reload(&self.config, new, &uses, &Places::default()).unwrap();
        let regions = self.engine.grow(&planned, &[]).unwrap();
        self.engine.reload(&self.config, planned, (Vec::new(), regions));
        self.engine.set.inputs.clear();
        assert_eq!(self.let_go(0), [], "its command has not ended");
        self.engine.set.finish(self.task);
    }

    /// Looks at this time, in milliseconds, whether it can be closed. What the pipeline is asked.
    fn let_go(&mut self, at: u64) -> Vec<Input> {
        let at = Instant::ZERO + Duration::from_millis(at);
        self.engine.let_go(at, &mut self.driver);
        self.engine.set.inputs.drain(..).collect()
    }

    fn life(&self) -> Life {
        self.engine.catalog.volumes[0].life
    }
}

/// A volume that leaves is closed when the pipeline has let go of it, which is asked until it has: replies of commands
/// that have ended may still be in it. Its last flush begins after that.
#[test]
fn a_volume_is_closed_after_the_pipeline_has_let_go_of_it() {
    let (mut scene, id) = (Scene::new("leaves"), VolumeId::new(0));
    scene.remove();
    for at in [10, 20] {
        assert_eq!(scene.let_go(at), [Input::VolumeRemoved(id)]);
        assert!(scene.driver.0.is_empty() && scene.life() == Life::Leaves);
    }
    scene.engine.volumes_gone().borrow_mut().push(id);
    assert_eq!(scene.let_go(21), []);
    assert_eq!((scene.given(), scene.life()), ("sync", Life::Leaves));
    assert!(scene.engine.is_flushed_last(0) && scene.engine.has_leaving());
    scene.end(Ok(()));
    assert_eq!(scene.let_go(22), []);
    assert!(scene.life() == Life::Gone && !scene.engine.has_leaving());
    let Catalog { volumes, stores, .. } = &scene.engine.catalog;
    assert!(crate::flush(volumes, stores, &[]).is_ok());
}

/// The last flush of a volume that leaves fails: the volume is lost, and the end of the gateway says so, although the
/// volume has gone.
#[test]
fn a_loss_of_a_volume_that_has_gone_is_told_at_the_end() {
    let mut scene = Scene::new("gone-lost");
    scene.remove();
    scene.engine.volumes_gone().borrow_mut().push(VolumeId::new(0));
    scene.let_go(10);
    scene.end(failure(libc::EIO));
    scene.let_go(11);
    let Catalog { volumes, stores, .. } = &scene.engine.catalog;
    assert!(volumes[0].lost && volumes[0].life == Life::Gone);
    let told = crate::flush(volumes, stores, &[]).unwrap_err().to_string();
    assert!(told.contains("volume `v` could not be flushed at the end"), "{told}");
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

/// Flushes of two parts of a volume do not wait for each other, and each part's own are shared; when one
/// part has lost something, so has the volume.
#[test]
fn each_part_has_its_flushes() {
    let mut scene = Scene::on(2, "parts");
    let [one, other, late] = [0, 1, 1].map(|part| scene.ask_part(Op::Flush, part));
    let promised = |scene: &Scene| scene.driver.0.iter().map(|io| io.promise).collect::<Vec<_>>();
    assert_eq!(promised(&scene), [Some(0), Some(1)]);
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(one, Ok(()))]);
    assert_eq!(promised(&scene), [Some(1)], "the late one waits for its own part");
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(other, Ok(()))]);
    assert_eq!(promised(&scene), [Some(1)]);
    scene.end(failure(libc::EIO));
    assert_eq!(scene.told(), [(late, Err(IoError::Medium))]);
    let flush = scene.ask_part(Op::Flush, 0);
    assert_eq!(scene.told(), [(flush, Err(IoError::Medium))]);
    assert!(scene.driver.0.is_empty() && scene.engine.catalog.volumes[0].lost);
}

/// After a flush has failed, every command that waits for one or asks for one later fails,
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
    assert!(scene.driver.0.is_empty() && scene.engine.catalog.volumes[0].lost);
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
    assert!(scene.engine.catalog.volumes[0].lost);
}

/// A durable write that an upstream refuses has lost nothing but itself: what it has lost of others it says with a
/// deferred error.
#[test]
fn an_upstream_says_what_it_has_lost() {
    let mut scene = Scene::on_an_upstream("deferred");
    let write = scene.ask(Op::Write);
    scene.end(failure(libc::EIO));
    assert_eq!(scene.told(), [(write, Err(IoError::Medium))]);
    assert!(!scene.engine.catalog.volumes[0].lost);
    let flush = scene.ask(Op::Flush);
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(flush, Ok(()))]);
    let mut scene = Scene::on_an_upstream("flush");
    scene.ask(Op::Flush);
    scene.end(failure(libc::EIO));
    assert!(scene.engine.catalog.volumes[0].lost);
}

/// A flush that fails on a volume with a log does not stop write-back, which writes again what it should have made durable:
/// the pipeline hears of the loss, and the next flush is done.
#[test]
fn a_log_writes_again_what_a_flush_has_lost() {
    for mut scene in [Scene::new("logged"), Scene::on_an_upstream("logged")] {
        scene.engine.catalog.volumes[0].has_log = true;
        let flush = scene.ask(Op::Flush);
        scene.end(failure(libc::EIO));
        let inputs: Vec<_> = scene.engine.set.inputs.drain(..).collect();
        let outcome = Err(IoError::Medium);
        assert_eq!(
            inputs,
            [Input::WriteLost(BackendId::new(0)), Input::Stored { key: flush, outcome }]
        );
        let again = scene.ask(Op::Flush);
        scene.end(Ok(()));
        assert_eq!(scene.told(), [(again, Ok(()))]);
        assert!(!scene.engine.catalog.volumes[0].lost);
    }
}

/// An update that goes another way after its comparison writes without comparing again: what it would
/// find may be its own.
#[test]
fn an_update_on_another_path_does_not_compare_again() {
    let mut scene = Scene::new("again");
    scene.becomes(MediaOp::CompareAndWrite, &[[1; 512], [2; 512]].concat(), &[1; 512]);
    let key = scene.ask(Op::Update);
    scene.end(Ok(()));
    assert_eq!(scene.given(), "write the second half");
    let Io { whose, work, promise, .. } = scene.driver.0.remove(0);
    drop(work);
    let outcome = Err(IoError::PathFailed);
    assert_eq!(whose, Whose::Request(key));
    scene.engine.ended(Ended { whose, outcome, flushed: false, promise }, &mut scene.driver);
    assert_eq!(scene.told(), [(key, outcome)]);
    assert!(!scene.engine.catalog.volumes[0].lost, "nothing is lost with a path");
    scene.ask(Op::Update);
    assert_eq!(scene.given(), "write the second half");
}

/// Zeroes that were asked for with FUA are flushed before they are acknowledged, and a flush that
/// fails fails them.
#[test]
fn zeroes_with_fua_are_durable() {
    let mut scene = Scene::new("zeroes");
    let zero = scene.ask(Op::WriteZeroes);
    scene.end(Ok(()));
    assert!(scene.told().is_empty());
    assert_eq!(scene.given(), "sync");
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(zero, Ok(()))]);
    let discard = scene.ask(Op::Discard);
    scene.end(Ok(()));
    scene.end(failure(libc::EIO));
    assert_eq!(scene.told(), [(discard, Err(IoError::Medium))]);
    assert!(scene.engine.catalog.volumes[0].lost);
}

/// COMPARE AND WRITE writes the second half of its data if the first is what the medium has, and
/// nothing else.
#[test]
fn a_comparison_decides() {
    for equal in [true, false] {
        let mut scene = Scene::new(if equal { "equal" } else { "differs" });
        let mut found = [1; 512];
        found[77] = if equal { 1 } else { 9 };
        scene.becomes(MediaOp::CompareAndWrite, &[[1; 512], [2; 512]].concat(), &found);
        let key = scene.ask(Op::Update);
        assert_eq!(scene.given(), "read");
        scene.end(Ok(()));
        assert_eq!(scene.engine.set.tasks[scene.task].comparison.differs, (!equal).then_some(77));
        if equal {
            assert!(scene.told().is_empty());
            assert_eq!(scene.given(), "write the second half");
            scene.end(Ok(()));
        }
        assert_eq!((scene.told(), scene.given()), (vec![(key, Ok(()))], "nothing"));
    }
}

/// ORWRITE writes what the medium has and what the host has, in every bit.
#[test]
fn or_is_written() {
    let mut scene = Scene::new("or");
    scene.becomes(MediaOp::OrWrite, &[0b0101; 512], &[0b0011; 512]);
    let key = scene.ask(Op::Update);
    scene.end(Ok(()));
    let Work::Write { buffer, at: 0, .. } = &scene.driver.0[0].work else { panic!("no write") };
    assert!(buffer.bytes()[..512].iter().all(|&byte| byte == 0b0111));
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(key, Ok(()))]);
}

/// An atomic write is in the journal before it is in its place, and out of it before it is acknowledged,
/// however it ends: a record that stays would undo later writes. The next one waits for that.
#[test]
fn the_journal_is_always_cleared() {
    let record = vec![0; crate::storage::file::atomic_journal::HEADER + 512];
    let (ok, full) = (Ok(()), Err(IoError::NoSpace));
    for (journal, in_place, told) in [
        (None, Some(None), ok),
        (Some(libc::ENOSPC), None, full),
        (None, Some(Some(libc::ENOSPC)), full),
    ] {
        let mut scene = Scene::new("journal");
        scene.engine.catalog.volumes[0].journal = Some(std::fs::File::open("/dev/null").unwrap());
        scene.becomes(MediaOp::WriteAtomic, &[5; 512], &record);
        let [first, others @ ..] = [(); 4].map(|()| scene.ask(Op::Update));
        assert_eq!(scene.driver.0.len(), 1, "one at a time");
        scene.end(journal.map_or(Ok(()), failure));
        if let Some(in_place) = in_place {
            assert_eq!(scene.given(), "durable write");
            scene.end(in_place.map_or(Ok(()), failure));
        }
        let Work::Write { buffer, .. } = &scene.driver.0[0].work else { panic!("not cleared") };
        assert_eq!(scene.driver.0[0].length, crate::storage::file::atomic_journal::HEADER as u64);
        assert!(buffer.bytes()[..64].iter().all(|&byte| byte == 0));
        assert!(scene.told().is_empty());
        scene.end(Ok(()));
        assert_eq!(scene.told(), [(first, told)]);
        // The next may begin. If its record cannot be cleared, the volume promises nothing more, to
        // those who wait either.
        for result in [Ok(()), Ok(()), failure(libc::EIO)] {
            scene.end(result);
        }
        let mut told = scene.told();
        told.sort_unstable_by_key(|&(key, _)| key);
        assert_eq!(told, others.map(|key| (key, Err(IoError::Medium))));
        assert!(scene.engine.catalog.volumes[0].lost);
        let late = [scene.ask(Op::Update), scene.ask(Op::Update)];
        assert_eq!(scene.told(), late.map(|key| (key, Err(IoError::Medium))));
    }
}

/// What is written and verified is durable before it is read back, and compared where asked.
#[test]
fn a_verified_write_is_read_back() {
    let mut scene = Scene::new("verify");
    scene.becomes(MediaOp::WriteVerify(Compare::Blocks), &[3; 512], &[4; 512]);
    let key = scene.ask(Op::Update);
    assert_eq!(scene.given(), "durable write");
    scene.end(Ok(()));
    assert_eq!(scene.given(), "read");
    scene.end(Ok(()));
    assert_eq!(scene.told(), [(key, Ok(()))]);
    assert_eq!(scene.engine.set.tasks[scene.task].comparison.differs, Some(0));
}

/// A request ends once: a second end would answer a command whose other requests still use its buffers.
#[test]
#[should_panic(expected = "a request ends once")]
fn a_request_ends_once() {
    let mut scene = Scene::new("twice");
    scene.engine.set.tasks[scene.task].phase = Phase::InPipeline { left: 1, end: End::Good };
    let set = &mut scene.engine.set;
    assert!(matches!(set.count_down(scene.task, End::Good), set::Counted::Over(None)));
    set.count_down(scene.task, End::Good);
}

/// Payload memory is held for commands only: when the last one has ended, nothing is held.
#[test]
#[should_panic(expected = "memory is held for tasks only")]
fn memory_is_held_for_tasks() {
    let mut scene = Scene::new("held");
    scene.engine.set.memory.charge(7, 512);
    scene.engine.set.finish(scene.task);
}

/// The flush of a file ends once: a second end would end flushes of hosts that the kernel has not done.
#[test]
#[should_panic(expected = "one flush at its driver")]
fn a_flush_ends_once() {
    let mut scene = Scene::new("flushed twice");
    let whose = Whose::Request(scene.keys.insert(()));
    let ended = Ended { whose, outcome: Ok(()), flushed: true, promise: Some(0) };
    scene.engine.ended(ended, &mut scene.driver);
}

/// The flush of a controller that is shut down finds no room: it is tried again, under any reservation. Its host
/// reads that the shutdown is complete, and takes that for durable.
#[test]
fn the_flush_of_a_shutdown_is_not_judged() {
    let mut scene = Scene::new("shutdown");
    let unit = &mut scene.engine.catalog.volumes[0].unit;
    for (action, keys) in [(HostAction::Register, [0, 1]), (HostAction::Acquire, [1, 0])] {
        let out = HostOut { action, rtype: 2, ignores_key: false, persistence: None };
        let change = unit.reserve_for_host(&[7; 16], out, keys, false).unwrap();
        unit.install(change.next);
    }
    let asked = |scene: &mut Scene| -> Vec<Op> {
        let inputs = scene.engine.set.inputs.drain(..);
        let op = |input| if let Input::Arrive(request) = input { Some(request.op) } else { None };
        inputs.filter_map(op).collect()
    };
    let admin = ConnectionId { index: 0, serial: 1 };
    controllers::flush(&mut scene.engine, admin, 0, 0);
    assert_eq!(asked(&mut scene), [Op::Flush]);
    let mut tasks = scene.engine.set.tasks.iter();
    let (flush, _) = tasks.find(|(_, task)| task.connection == Some(admin)).unwrap();
    assert!(scene.engine.refuse(flush.tag()).is_none(), "it is tried again");
    scene.engine.set.ended = true;
    scene.engine.retry();
    assert_eq!(asked(&mut scene), [Op::Flush]);
    assert!(scene.engine.set.tasks[flush].answer.is_none());
}
