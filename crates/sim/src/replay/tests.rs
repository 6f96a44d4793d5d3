use super::*;
use crate::plan::{Arrivals, SizeWeight};
use crate::results::Results;
use crate::testing;
use weir_flow::accept::{Cap, Layout};
use weir_flow::control::Promises;
use weir_flow::dispatch::{HostNumber, Member};
use weir_flow::error::IoError;
use weir_flow::path::{Access, Settings};
use weir_flow::pipeline::{Backend, Limits, Policies};
use weir_flow::recording::{Encoder, MAGIC};
use weir_flow::request::{LinkId, Op, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::settings::PIB;
use weir_flow::units::Extent;

/// A short run with splits, overlaps and errors, and its recording.
fn recorded() -> (Results, Vec<u8>) {
    let mut plan = testing::plan();
    plan.volumes[0].max_transfer = 16_384;
    plan.workloads[0].sizes =
        vec![SizeWeight { bytes: 4_096, weight: 3 }, SizeWeight { bytes: 65_536, weight: 1 }];
    plan.workloads[0].region.length = 1 << 20;
    plan.workloads[0].read_permille = 500;
    plan.workloads[0].arrivals = Arrivals::Poisson { rate: 30_000.0 };
    plan.limits.max_requests = 60;
    let mut bytes = Vec::new();
    let results = crate::run::record(&plan, &mut bytes, |_| ()).unwrap();
    (results, bytes)
}

fn config() -> Config {
    let volume = Volume {
        capacity: 1 << 40,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: u64::MAX,
        cap: Cap::default(),
    };
    Config {
        volumes: vec![volume],
        backends: vec![Backend::alike(2)],
        promises: Promises::default(),
        shares: weir_flow::dispatch::Shares::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
        policies: Policies::default(),
    }
}

fn read(length: u64) -> Request {
    Request {
        tag: Tag(0),
        tenant: TenantId::new(0),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        op: Op::Read,
        extent: Extent::new(0, length),
        fua: false,
        ordered: false,
        job: false,
    }
}

/// A recording of this configuration and these entries, without an end.
fn recording(config: &Config, inputs: &[Input]) -> Vec<u8> {
    written(config, inputs, None)
}

/// The same, with one more entry.
fn written(config: &Config, inputs: &[Input], last: Option<Entry>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&mut bytes, config);
    for input in inputs {
        encoder.entry(&mut bytes, &Entry::Input(Instant::ZERO, input.clone()));
    }
    if let Some(last) = last {
        encoder.entry(&mut bytes, &last);
    }
    bytes
}

fn damage(bytes: &[u8]) -> (u64, String) {
    match replay_from(bytes, |_| ()) {
        Err(ReplayError::Damaged { offset, message }) => (offset, message),
        other => panic!("it should be damaged: {other:?}"),
    }
}

/// What a simulation recorded gives the same actions again; counts agree as well.
#[test]
fn a_recorded_run_replays_to_its_digest() {
    let (results, bytes) = recorded();
    let replay = replay_from(&bytes[..], |_| ()).unwrap();
    assert_eq!(replay.verdict(), Verdict::Same);
    assert_eq!(replay.digest, results.digest);
    assert_eq!(replay.entries, results.events);
    let totals = results.totals;
    assert_eq!(
        (replay.arrived, replay.completed, replay.refused),
        (totals.arrived, totals.completed, totals.refused)
    );
    assert!(totals.refused > 0 && totals.completed > 1_000, "{totals:?}");
}

/// Reading a byte at a time changes nothing.
#[test]
fn short_reads_are_enough() {
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let some = buffer.len().min(1);
            self.0.read(&mut buffer[..some])
        }
    }
    let (_, bytes) = recorded();
    let whole = replay_from(&bytes[..], |_| ()).unwrap();
    assert_eq!(replay_from(Drip(&bytes), |_| ()).unwrap(), whole);
}

/// A recording whose writer was killed replays up to there and says that it is cut.
#[test]
fn a_cut_recording_has_no_verdict() {
    let (_, bytes) = recorded();
    for length in [bytes.len() - 1, bytes.len() - 30, bytes.len() / 2] {
        let replay = replay_from(&bytes[..length], |_| ()).unwrap();
        assert_eq!(replay.verdict(), Verdict::Cut);
    }
}

/// Another outcome of one I/O is another run.
#[test]
fn a_changed_recording_differs() {
    let key = RequestKey::default();
    let arrive = || Input::Arrive(read(512));
    let digest =
        |inputs: &[Input]| replay_from(&recording(&config(), inputs)[..], |_| ()).unwrap().digest;
    let stray = Input::Stored { key, outcome: Err(IoError::Medium) };
    assert_eq!(digest(&[arrive()]), digest(&[arrive(), stray]));
    assert_ne!(digest(&[arrive()]), digest(&[arrive(), arrive()]));
    let bytes = written(&config(), &[arrive()], Some(Entry::End(Digest::resume(1, 1))));
    assert_eq!(replay_from(&bytes[..], |_| ()).unwrap().verdict(), Verdict::Different);
}

/// Each id that the configuration does not have, and the error that its reader gets.
#[test]
fn unknown_ids_are_errors() {
    let header = recording(&config(), &[]).len() as u64;
    let volume = Request { volume: VolumeId::new(1), ..read(1) };
    let link = Request { link: LinkId::new(65_536), ..read(1) };
    let tenant = Request { tenant: TenantId::new(u32::MAX), ..read(1) };
    let table = [
        (Input::Arrive(volume), "there is no volume 1"),
        (Input::Arrive(link), "link 65536 is past the last, 65535"),
        (Input::Arrive(tenant), "tenant 4294967295 is past the last, 65535"),
        (Input::Resized(VolumeId::new(1), 1 << 20), "there is no volume 1"),
        (Input::Substream(Member::Volume(VolumeId::new(1)), None), "there is no volume 1"),
        (
            Input::Substream(Member::Link(LinkId::new(65_536)), None),
            "link 65536 is past the last, 65535",
        ),
        (
            Input::Substream(Member::Host(LinkId::new(0), HostNumber(65_536)), None),
            "host 65536 is past the last, 65535",
        ),
        (Input::VolumeRemoved(VolumeId::new(1)), "there is no volume 1"),
        (Input::PathDown(BackendId::new(1), PathId::new(0)), "there is no backend 1"),
        (Input::PathUp(BackendId::new(0), PathId::new(2)), "backend 0 has no path 2"),
        (Input::Checked(BackendId::new(0), PathId::new(2)), "backend 0 has no path 2"),
        (
            Input::PathAccess(BackendId::new(1), PathId::new(0), Access::Standby),
            "there is no backend 1",
        ),
        (
            Input::PathOrder(BackendId::new(0), PathOrder::Disable(PathId::new(2))),
            "backend 0 has no path 2",
        ),
        (Input::PathOrder(BackendId::new(1), PathOrder::Failback), "there is no backend 1"),
    ];
    for (input, expected) in table {
        let bytes = recording(&config(), &[input]);
        assert_eq!(damage(&bytes), (header, expected.to_owned()));
    }
}

/// A configuration that would take all memory is refused before anything is built from it.
#[test]
fn bombs_are_errors() {
    let bomb = Config { backends: vec![Backend::alike(65_537)], ..config() };
    let (offset, message) = damage(&recording(&bomb, &[]));
    assert_eq!(offset, 0);
    assert!(message.starts_with("the configuration asks for too many"), "{message}");
    // What no pipeline can be made from is damage.
    let faults: [&dyn Fn(&mut Config); 6] = [
        &|config| config.limits.max_requests = u32::MAX,
        &|config| config.limits.max_bytes = u64::MAX,
        &|config| config.limits.link_window = u64::MAX,
        &|config| config.limits.report_after = Duration::MAX,
        &|config| config.paths.overdue_min = Duration::from_secs(60),
        &|config| config.volumes[0].max_transfer = 1,
    ];
    for fault in faults {
        let mut config = config();
        fault(&mut config);
        let damaged = (0, "the recording is damaged".to_owned());
        assert_eq!(damage(&recording(&config, &[])), damaged);
    }
    // One request, cut into single sectors.
    let mut config = config();
    config.volumes[0].max_transfer = 512;
    config.limits.max_bytes = PIB;
    let (_, message) = damage(&recording(&config, &[Input::Arrive(read(1 << 40))]));
    assert_eq!(message, "requests are cut into more than 1048576 pieces");
    let half = || Input::Arrive(read(600_000 * 512));
    let (offset, message) = damage(&recording(&config, &[half(), half()]));
    assert_eq!(message, "requests are cut into more than 1048576 pieces");
    assert_eq!(offset, recording(&config, &[half()]).len() as u64);
}

/// What is no recording, a header without end, something behind the end, a time out of range.
#[test]
fn other_files_are_errors() {
    assert_eq!(damage(b"hello, world"), (0, "this is not a recording of weir serve".to_owned()));
    let (offset, _) = damage(MAGIC);
    assert_eq!(offset, 0);
    let mut bytes = written(&config(), &[], Some(Entry::End(Digest::default())));
    let end = bytes.len() as u64;
    bytes.push(0);
    assert_eq!(damage(&bytes), (end, "there is something behind the end".to_owned()));
    let late = Entry::Deadline(Instant::from_nanos(u64::MAX));
    let bytes = written(&config(), &[], Some(late));
    assert_eq!(damage(&bytes).1, "the time is past 73 years");
}

/// A recording with any bytes changed gives a result or an error, never a panic.
#[test]
fn damage_is_never_a_panic() {
    let (_, mut bytes) = recorded();
    bytes.truncate(6_000);
    let mut rng = Rng::stream(1, "damage");
    let (mut errors, mut results) = (0, 0);
    for _ in 0..3_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.bits() as u8;
        }
        match replay_from(&damaged[..], |_| ()) {
            Ok(_) => results += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 100 && results > 100, "{errors} errors, {results} results");
}
