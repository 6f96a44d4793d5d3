//! Laws of [`Prefetch`](weir_flow::cache::prefetch::Prefetch), and what the default is worth over a long
//! link.

mod world;

use std::collections::{BTreeSet, VecDeque};
use weir_flow::cache::prefetch::{Ended, Found, POLICIES, Prefetch, Reader, Room, Wish};
use weir_flow::clock::{Duration, Instant};
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;
use world::{Host, LINE, World};

const MIB: u64 = 1 << 20;

/// Reads of `size` bytes that follow each other from `offset` on.
fn in_order(offset: u64, size: u64, count: u64) -> VecDeque<Extent> {
    (0..count).map(|n| Extent::new(offset + n * size, size)).collect()
}

fn host(link: u32, depth: usize, reads: VecDeque<Extent>) -> Host {
    Host { link, depth, reads }
}

/// A storm of reads, some in order; every wish that a policy made.
fn storm(name: &str, seed: u64) -> Vec<Wish> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    let room = Room { line: LINE, lines: 4_096 };
    let mut policy: Box<dyn Prefetch> = (choice.policy().build)(choice.values(), room);
    let mut rng = Rng::stream(seed, "prefetch");
    let (mut now, mut under_way, mut log) = (Instant::ZERO, Vec::new(), Vec::new());
    let (mut ids, mut last) = (BTreeSet::new(), [Extent::default(); 3]);
    for _ in 0..5_000 {
        now += Duration::from_micros(rng.below(300));
        let volume = rng.below(3) as usize;
        let capacity = [10_000, MIB + 512, 1 << 40][volume];
        let from =
            Reader { volume: VolumeId::new(volume as u32), link: LinkId::new(rng.below(3) as u32) };
        match rng.below(8) {
            0..5 => {
                let length = (512 << rng.below(8)).min(capacity);
                let before = last[volume];
                let offset = match rng.below(4) {
                    0 => rng.below(capacity),
                    1 => before.offset.saturating_sub(length),
                    _ => before.offset + before.length,
                };
                let offset = offset.min(capacity - length);
                last[volume] = Extent::new(offset, length);
                let found = [Found::Ready, Found::InFlight, Found::Missing][rng.below(3) as usize];
                policy.read(now, from, last[volume], capacity, found);
            }
            5 if !under_way.is_empty() => {
                let place = rng.below(under_way.len() as u64) as usize;
                let took = Duration::from_micros(rng.below(30_000));
                let how = [Ended::Fetched(took), Ended::Failed, Ended::NotNeeded];
                policy.ended(now, under_way.swap_remove(place), how[rng.below(3) as usize]);
            }
            6 => policy.judge(from.volume, rng.below(30) as u32, rng.below(30) as u32),
            _ => {
                for _ in 0..rng.below(4) {
                    let Some(wish) = policy.poll() else { break };
                    assert!(ids.insert(wish.id), "{name}: {wish:?} again");
                    let capacity = [10_000, MIB + 512, 1 << 40][wish.volume.index()];
                    let end = wish.extent.end().expect("wishes end");
                    assert!(wish.extent.length > 0 && end <= capacity, "{name}: {wish:?}");
                    under_way.push(wish.id);
                    log.push(wish);
                }
            }
        }
    }
    // No host reads any more: what was wished comes to an end.
    for _ in 0..100_000 {
        match policy.poll() {
            Some(wish) => policy.ended(now, wish.id, Ended::NotNeeded),
            None => return log,
        }
    }
    panic!("{name} wishes for ever");
}

/// Wishes lie on their volume, have names of their own, come to an end when no host reads any more, and are
/// the same for the same reads.
#[test]
fn wishes_are_sound() {
    for policy in POLICIES {
        for seed in 0..crate::SEEDS {
            let log = storm(policy.name, seed);
            assert_eq!(log, storm(policy.name, seed), "{}", policy.name);
            assert_eq!(log.is_empty(), policy.name == "off", "{}", policy.name);
        }
    }
}

/// The share of a link of 1 Gbit/s and 20 ms that hosts get who read 512 MiB between them.
fn share(policy: &str, mut hosts: Vec<Host>) -> f64 {
    let bytes: u64 = hosts.iter().flat_map(|host| &host.reads).map(|read| read.length).sum();
    let mut world = World::new(policy, 65_536, 1 << 40);
    let took = world.run(&mut hosts);
    bytes as f64 / 125_000_000.0 / took.as_secs_f64()
}

/// Reads in order get at least nine tenths of the link, whatever their size and depth, forwards and
/// backwards, in order or a little out of it, alone or with others; without readahead a tenth at depth 1.
#[test]
fn reads_in_order_fill_the_link() {
    let size = 64 << 10;
    let reads = in_order(MIB, size, 8_192);
    let mut backwards = reads.clone();
    backwards.make_contiguous().reverse();
    let mut shuffled = reads.clone();
    let mut rng = Rng::stream(1, "shuffle");
    for start in (0..8_192).step_by(32) {
        for n in (1..32).rev() {
            shuffled.swap(start + n, start + rng.below(n as u64 + 1) as usize);
        }
    }
    let eight = |n: u32| host(n, 2, in_order(u64::from(n) << 32, size, 1_024));
    // The same, but over one session, as a host with eight files does it.
    let turns: VecDeque<Extent> = (0..1_024)
        .flat_map(|n| (0..8).map(move |file| Extent::new((file << 32) + n * size, size)))
        .collect();
    let cases = [
        ("64 KiB, depth 1", vec![host(0, 1, reads.clone())]),
        ("64 KiB, depth 8", vec![host(0, 8, reads.clone())]),
        ("4 KiB, depth 1", vec![host(0, 1, in_order(0, 4_096, 131_072))]),
        ("4 KiB, depth 32", vec![host(0, 32, in_order(0, 4_096, 131_072))]),
        ("1 MiB, depth 1", vec![host(0, 1, in_order(0, MIB, 512))]),
        ("backwards", vec![host(0, 1, backwards)]),
        ("out of order, depth 32", vec![host(0, 32, shuffled)]),
        ("eight sessions", (0..8).map(eight).collect()),
        ("eight files", vec![host(0, 8, turns)]),
    ];
    for (what, hosts) in cases {
        let share = share("adaptive", hosts);
        assert!(share >= 0.9, "{what}: {share:.3} of the link");
    }
    let share = share("off", vec![host(0, 1, reads)]);
    assert!(share < 0.1, "without readahead: {share:.3}");
}

/// Reads in steps are foreseen too, up and down: few of them wait.
#[test]
fn steps_are_foreseen() {
    for step in [-(192_i64 << 10), 20 << 10, 1 << 20] {
        let offset = |n: i64| ((1_i64 << 36) + n * step).cast_unsigned();
        let reads: VecDeque<Extent> =
            (0..4_000).map(|n| Extent::new(offset(n), 16 << 10)).collect();
        let mut worlds = ["off", "adaptive"].map(|policy| {
            let mut world = World::new(policy, 65_536, 1 << 40);
            let took = world.run(&mut [host(0, 1, reads.clone())]);
            (took.as_nanos(), world.missing.len(), world.fetched)
        });
        let [(without, _, needed), (with, missing, fetched)] = &mut worlds;
        assert!(*with * 20 < *without, "{step}: {with} ns, {without} ns without");
        assert!(*missing < 20, "{step}: {missing} missed");
        assert!(*fetched < *needed + (2 << 20), "{step}: {fetched} bytes for {needed}");
    }
}

/// What hosts read at random is fetched once: bytes from upstream are at most 1.10 times those asked for,
/// on volumes and with buffers of any size, for any mix of sizes, and also when small runs look like the
/// beginning of a stream.
#[test]
fn random_reads_are_not_amplified() {
    let mut worst: f64 = 0.0;
    for (seed, &(capacity, lines)) in [
        (MIB, 64),
        (4 * MIB, 256),
        (16 * MIB, 256),
        (16 * MIB, 16_384),
        (64 * MIB, 1_024),
        (256 * MIB, 8_192),
        (1 << 30, 65_536),
        (1 << 40, 65_536),
    ]
    .iter()
    .enumerate()
    {
        for (size, mixed, run) in
            [(4_096, false, 1), (16_384, true, 1), (4_096, true, 2), (4_096, false, 3)]
        {
            let mut rng = Rng::stream(seed as u64, "random");
            let (mut reads, mut asked) = (VecDeque::new(), 0);
            while asked < 64 * MIB {
                let length = if mixed { 4_096 << rng.below(5) } else { size };
                let blocks = (capacity - run * length) / 4_096 + 1;
                let offset = rng.below(blocks) * 4_096;
                for n in 0..run {
                    reads.push_back(Extent::new(offset + n * length, length));
                    asked += length;
                }
            }
            let mut world = World::new("adaptive", lines, capacity);
            world.run(&mut [host(0, 4, reads)]);
            let ratio = world.fetched as f64 / world.asked as f64;
            assert_eq!(world.asked, asked);
            worst = worst.max(ratio);
            let what = format!("{capacity} bytes, {lines} lines, {size}, {mixed}, {run}");
            assert!(ratio <= 1.10, "{what}: {ratio:.3}, {} ahead", world.ahead);
        }
    }
    // Otherwise nothing was tried.
    assert!(worst > 1.0, "{worst}");
}

/// A scan that has begun is foreseen among any number of reads at random, and what is being prefetched never
/// exceeds its bound.
#[test]
fn a_scan_among_random_reads() {
    let mut rng = Rng::stream(1, "mixed");
    let mut reads = VecDeque::new();
    for n in 0..2_000 {
        reads.push_back(Extent::new(n * 65_536, 65_536));
        for _ in 0..if n > 1 { 80 } else { 40 } {
            reads.push_back(Extent::new((1 << 35) + rng.below(1 << 22) * 4_096, 4_096));
        }
    }
    let mut world = World::new("adaptive", 65_536, 1 << 40);
    world.run(&mut [host(0, 16, reads)]);
    let scan = world.missing.iter().filter(|read| read.length == 65_536).count();
    assert!(scan < 10, "{scan} reads of the scan missed");
    assert!(world.most_in_flight <= 16 * MIB, "{}", world.most_in_flight);
    assert!(world.fetched < world.asked + world.asked / 20, "{} bytes", world.fetched);
}
