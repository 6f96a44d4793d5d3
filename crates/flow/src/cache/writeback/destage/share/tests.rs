//! The share against models of an upstream.

use super::*;
use alloc::vec::Vec;

/// An upstream that is `away` far there and back, and takes as long for each write and each KiB.
struct Model {
    away: u64,
    each: u64,
    per_kib: u64,
    /// The answers to every third burst come so much later.
    noise: u64,
    /// A target requests the data of larger writes, which takes the way once more.
    unasked: u64,
    /// Thousandths of the upstream's time that reads take.
    reads: u64,
}

/// What write-back got, and what that meant for others.
struct Run {
    /// Bytes in a second.
    rate: u64,
    /// How long three of four bursts kept the upstream from others at most, in microseconds.
    kept: u64,
}

fn run(model: &Model, size: u64, fill: u32, old: bool) -> Run {
    let micros = |n: u64| Duration::from_micros(n);
    let mut share = Share::new();
    let (mut now, mut link, mut bytes) = (Instant::ZERO, Instant::ZERO, 0);
    let (mut flying, mut kept) = (Vec::<(Instant, BurstId)>::new(), Vec::new());
    let begin = Instant::ZERO + micros(5_000_000);
    let end = Instant::ZERO + micros(25_000_000);
    let mut read = Instant::ZERO;
    while now < end {
        while read <= now {
            let each = model.each + model.per_kib * 4;
            let pause = (each * 1000).checked_div(model.reads);
            share.read(pause.is_some().into(), 0);
            read += micros(pause.unwrap_or(1_000_000));
        }
        share.adjust(now, fill, old);
        let before = link.max(now);
        link = before;
        let noise = if kept.len() % 3 == 0 { model.noise } else { 0 };
        while flying.len() < 128 && share.allows(now, |_| u64::MAX) > 0 {
            let length = size.min(share.allows(now, |_| u64::MAX)).max(4096);
            let id = share.began(now, length);
            share.sent(now, id);
            link += micros(model.each + model.per_kib * length / 1024);
            let trips = if length > model.unasked { 2 } else { 1 };
            flying.push((link + micros(trips * model.away + noise), id));
            bytes += if now >= begin { length } else { 0 };
        }
        if link > before {
            kept.push(link.since(before).as_nanos() / 1000);
        }
        let first = (0..flying.len()).min_by_key(|&one| flying[one].0);
        let waits = match first {
            None => Some(share.next()),
            Some(_) => share.next_overlapping(),
        };
        let ends = first.map(|one| flying[one].0);
        let next = ends.into_iter().chain(waits.filter(|&at| at > now)).min();
        now = next.expect("something happens");
        if let Some(one) = first.filter(|_| ends == Some(now)) {
            let (_, id) = flying.remove(one);
            share.ended(now, id, 8 << 20);
        }
    }
    kept.sort_unstable();
    Run { rate: bytes / 20, kept: kept[kept.len() * 3 / 4] }
}

/// A write that ended twice would end its burst before the others: it is noticed.
#[test]
#[should_panic(expected = "ends once")]
fn a_write_of_a_burst_ends_once() {
    let mut share = Share::new();
    let id = share.began(Instant::ZERO, 4096);
    share.ended(Instant::ZERO, id, 8 << 20);
    share.ended(Instant::ZERO, id, 8 << 20);
}

/// Behind 20 ms, over 20 or 2 MB/s that reads hardly use: a quarter of the link at least and less than two
/// thirds, in bursts that keep others from it for less than half of the shortest response time; whether the
/// writes are long or short, whether the target requests their data, and even if some answers are late.
#[test]
fn a_remote_upstream_that_is_idle_gives_a_quarter() {
    for (per_kib, link) in [(51, 20_000_000), (512, 2_000_000)] {
        for (size, noise) in [(4, 0), (64, 0), (1024, 0), (4, 15_000), (64, 15_000)] {
            for unasked in [8 << 10, u64::MAX] {
                let far = Model { away: 20_000, each: 0, per_kib, noise, unasked, reads: 50 };
                let Run { rate, kept } = run(&far, size << 10, 100, false);
                let (least, most) = (link / 4, link * 2 / 3);
                assert!(
                    (least..most).contains(&rate),
                    "{link}, {size}, {noise}, {unasked}: {rate} bytes in a second"
                );
                let answer = 20_000 + per_kib * size.min(16);
                assert!(kept * 2 < answer, "{link}, {size}, {noise}, {unasked}: {kept} us");
            }
        }
    }
}

/// The same link, which reads keep busy: an eighth of it, up to a quarter.
#[test]
fn a_busy_link_gives_an_eighth() {
    for (size, reads) in [(4 << 10, 900), (64 << 10, 900), (64 << 10, 1000)] {
        let unasked = u64::MAX;
        let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked, reads };
        let rate = run(&far, size, 100, false).rate;
        assert!((2_000_000..5_000_000).contains(&rate), "{size}: {rate} bytes in a second");
    }
}

/// A disk where every write costs and that reads keep busy: one at a time, about an eighth of its time up to
/// two thirds.
#[test]
fn a_disk_gets_one_at_a_time() {
    let unasked = u64::MAX;
    let disk = Model { away: 100, each: 4_000, per_kib: 5, noise: 0, unasked, reads: 1000 };
    let Run { rate, kept } = run(&disk, 16 << 10, 100, false);
    let busy = rate / (16 << 10) * 4_080;
    assert!((100_000..700_000).contains(&busy), "{busy} us of a second");
    assert!(kept < 5_000, "{kept} us");
}

/// What is old, and a log that fills, raise the share.
#[test]
fn the_share_rises_with_age_and_fill() {
    let unasked = u64::MAX;
    let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked, reads: 1000 };
    let rate = |fill, old| run(&far, 64 << 10, fill, old).rate;
    let rates = [rate(100, false), rate(500, false), rate(650, false), rate(700, false)];
    assert!(rates[0] == rates[1] && rates[1] < rates[2] && rates[2] <= rates[3], "{rates:?}");
    assert!(rate(100, true) > rates[0] * 3 / 2);
    assert_eq!(
        (parts(500, false), parts(625, false), parts(740, false), parts(900, false)),
        (8, 4, 1, 1)
    );
}

/// When the way becomes longer it is found out again.
#[test]
fn an_upstream_that_moves_away_is_followed() {
    let mut share = Share::new();
    let mut now = Instant::ZERO;
    for round in 0..2_000 {
        let away = if round < 500 { 1_000 } else { 50_000 };
        now = now.max(share.next());
        share.adjust(now, 0, false);
        let bytes = share.allows(now, |_| u64::MAX);
        let id = share.began(now, bytes);
        share.sent(now, id);
        now += Duration::from_micros(away + bytes / 1024 * 51);
        share.ended(now, id, 8 << 20);
    }
    assert!(share.least() >= Duration::from_micros(50_000) && share.burst > 200 << 10, "{share:?}");
}
