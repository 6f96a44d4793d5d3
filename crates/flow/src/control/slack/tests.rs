use super::window::WHOLE;
use super::*;
use crate::control::Contract;
use crate::testing;
use alloc::vec;
use core::cmp::Reverse;
use slotmap::SlotMap;
use std::collections::BinaryHeap;

const PROMISE: Duration = Duration::from_millis(41);

fn settings() -> Settings {
    let defaults: Vec<u64> = POLICY.parameters.iter().map(|p| p.default).collect();
    Settings::from(&defaults)
}

/// Feeds a window with an ending every 200 us, with 8 at the device and excess waiting, for so many
/// seconds. `misses` says from the time in milliseconds, the number of the ending and whether the
/// window is larger than at its floor whether it is a miss. Gives the verdicts.
fn feed(
    window: &mut Window,
    seconds: u64,
    misses: impl Fn(u64, u64, bool) -> bool,
) -> Vec<(Duration, bool)> {
    let mut verdicts = Vec::new();
    for n in 1..=seconds * 5_000 {
        let now = Instant::from_nanos(n * 200_000);
        while window.due(now).is_some() {
            verdicts.extend(window.judge());
        }
        window.binds(now);
        let late = misses(n / 5, n, window.room(9));
        let device = if late { PROMISE } else { Duration::from_millis(1) };
        window.ended(now, PROMISE, device, 8);
    }
    verdicts
}

fn window() -> Window {
    Window::new(settings(), [PROMISE, PROMISE].into_iter())
}

/// With fewer misses than one in a hundred the window grows to its end, with more it shrinks to its
/// floor; in neither case is a promise called infeasible.
#[test]
fn the_window_follows_the_misses() {
    let mut good = window();
    assert_eq!(feed(&mut good, 20, |_, n, _| n.is_multiple_of(200)), []);
    assert!(good.room(3_000));
    let mut bad = window();
    assert_eq!(feed(&mut bad, 20, |_, n, _| n.is_multiple_of(50)), []);
    assert!(!bad.room(9) && bad.room(7));
}

/// One miss shrinks by the whole factor of its share, 99 hits make up for it, up to what eight at the
/// device can do in one step.
#[test]
fn a_miss_and_its_hits_cancel() {
    let mut window = window();
    window.binds(Instant::ZERO);
    let at = Instant::from_nanos(1);
    window.ended(at, PROMISE, PROMISE, 8);
    // 64 * e^(-0.99 / 8) is 56.5.
    assert!(window.room(56) && !window.room(57));
    for _ in 0..99 {
        window.ended(at, PROMISE, Duration::ZERO, 8);
    }
    assert!(window.room(63) && !window.room(65));
}

/// Misses that no window prevents: the promise is found to be infeasible, and the window opens while it
/// is; when the device recovers the promise is held to again.
#[test]
fn an_infeasible_promise_is_excused() {
    let mut window = window();
    let verdicts = feed(&mut window, 25, |_, n, _| n.is_multiple_of(16));
    assert_eq!(verdicts[0], (PROMISE, true));
    // Strict again in between, but never for long.
    let strict = verdicts.iter().filter(|verdict| !verdict.1).count();
    assert!((1..6).contains(&strict), "{verdicts:?}");
    assert!(verdicts.last() == Some(&(PROMISE, true)) && window.room(1_000));
}

/// Misses that a larger window makes more of are the window's fault, and load that passes by while a
/// larger window is tried proves nothing: neither excuses.
#[test]
fn a_promise_that_excess_breaks_is_not_excused() {
    let responds = |_, n: u64, large: bool| n.is_multiple_of(if large { 8 } else { 20 });
    assert_eq!(feed(&mut window(), 40, responds), []);
    for end in (200..2_750).step_by(50) {
        let passes = |ms, n: u64, _| ms < end && n.is_multiple_of(10);
        assert_eq!(feed(&mut window(), 10, passes), [], "load until {end} ms");
    }
}

/// When the guarantees themselves do not fit they are scaled down, to a fifth at most, and come back
/// when they fit.
#[test]
fn guarantees_that_do_not_fit_are_scaled() {
    let mut window = window();
    feed(&mut window, 2, |_, n, _| n.is_multiple_of(3));
    assert!((200_000..600_000).contains(&window.scale()), "{}", window.scale());
    // Each 100 ms gives a fiftieth back.
    for _ in 0..(WHOLE - window.scale()).div_ceil(20_000) {
        assert!(window.scale() < WHOLE);
        window.judge();
    }
    assert_eq!(window.scale(), WHOLE);
}

/// What one tenant asks for per second, when, and what it is promised.
struct Load {
    contract: Option<Contract>,
    rate: u64,
    from: Duration,
}

/// Runs loads against a device that serves one request at a time in `service`. Gives the response
/// times from arrival of each tenant's requests that came in the window of time.
fn run(loads: &[Load], service: Duration, seconds: u64, window: (u64, u64)) -> Vec<Vec<Duration>> {
    let contracts: Vec<_> = loads.iter().map(|load| load.contract.clone()).collect();
    let mut slack = Slack::new(settings(), &testing::promises(&contracts));
    let mut keys = SlotMap::<RequestKey, (Instant, usize, Instant)>::with_key();
    let mut arrivals = BinaryHeap::new();
    for (tenant, load) in loads.iter().enumerate() {
        arrivals.push(Reverse((Instant::ZERO + load.from, tenant)));
    }
    let (mut ends, mut free) = (BinaryHeap::new(), Instant::ZERO);
    let mut responses = vec![Vec::new(); loads.len()];
    let request =
        |tenant: usize| Request { tenant: TenantId::new(tenant as u32), ..testing::request(0) };
    let last = Instant::ZERO + Duration::from_secs(seconds);
    loop {
        let arrival = arrivals.peek().map(|&Reverse((at, _))| at);
        let end = ends.peek().map(|&Reverse((at, _))| at);
        let times = [slack.next_deadline(), end, arrival];
        let now = times.into_iter().flatten().min().expect("something happens");
        if now > last {
            return responses;
        }
        if times[0] == Some(now) {
            slack.handle_deadline(now);
        } else if end == Some(now) {
            let Reverse((_, key)) = ends.pop().expect("it was peeked at");
            let (came, tenant, released) = keys[key];
            slack.complete(now, key, &request(tenant), now.since(released));
            let window = window.0 * 1_000_000_000..window.1 * 1_000_000_000;
            if window.contains(&came.as_nanos()) {
                responses[tenant].push(now.since(came));
            }
        } else {
            let Reverse((_, tenant)) = arrivals.pop().expect("it was peeked at");
            let key = keys.insert((now, tenant, now));
            slack.arrive(now, key, &request(tenant));
            let gap = Duration::from_nanos(1_000_000_000 / loads[tenant].rate);
            arrivals.push(Reverse((now + gap, tenant)));
        }
        while let Some((key, _)) = slack.poll(now) {
            keys[key].2 = now;
            free = now.max(free) + service;
            ends.push(Reverse((free, key)));
        }
    }
}

fn contract(iops: u32) -> Contract {
    Contract::new(iops, 4_096, PROMISE)
}

/// However long somebody else has had the device alone, a tenant that comes late and keeps its contract
/// is served within its promise: from its first request on if the other one has a contract too, after
/// the largest window, which nobody has shrunk, has drained if it has none.
#[test]
fn a_late_victim_is_served_at_once() {
    for (violator, begin) in [(Some(contract(1_500)), 3), (None, 5)] {
        let loads = [
            Load { contract: Some(contract(3_500)), rate: 2_000, from: Duration::from_secs(3) },
            Load { contract: violator, rate: 8_000, from: Duration::ZERO },
        ];
        let times = run(&loads, Duration::from_micros(180), 7, (begin, begin + 1));
        let kept = times[0].iter().filter(|&&time| time <= PROMISE).count();
        assert!(times[0].len() > 1_900, "{}", times[0].len());
        assert!(kept * 100 >= times[0].len() * 98, "{kept} of {}", times[0].len());
    }
}

/// Excess is divided in proportion to the contracts: of three tenants that ask for too much the one
/// with twice the contract gets twice as much beyond what all are guaranteed.
#[test]
fn excess_is_divided_by_contracts() {
    let load = |contract| Load { contract, rate: 5_000, from: Duration::ZERO };
    let loads = [load(Some(contract(1_000))), load(Some(contract(500))), load(None)];
    let mut served =
        run(&loads, Duration::from_micros(200), 6, (0, 6)).into_iter().map(|t| t.len());
    let served: Vec<usize> = (&mut served).collect();
    let excess = [served[0] as f64 - 6_300.0, served[1] as f64 - 3_150.0, served[2] as f64];
    assert!((excess[0] / excess[1] - 2.0).abs() < 0.1, "{served:?}");
    assert!((excess[1] / excess[2] - 5.0).abs() < 0.5, "{served:?}");
}

/// A marker holds a burst, fills at the contract's rate with its margin, finds room for a head that is
/// larger than it, and says to the nanosecond when it can pay.
#[test]
fn a_marker_pays_when_it_says() {
    let mut marker = Marker::new(1_000, &settings());
    for _ in 0..100 {
        assert!(marker.pay(Instant::ZERO, WHOLE, 1_000));
    }
    for cost in [1_000, 2_500, 500_000] {
        let at = marker.holds(cost, WHOLE);
        let before = Instant::from_nanos(at.as_nanos() - 1);
        assert!(!marker.pay(before, WHOLE, cost) && marker.pay(at, WHOLE, cost), "{cost}");
    }
    // 100 ms at once, then 503.5 requests at 1050 per second.
    let expected = 503.5 / 1_050.0 * 1e9;
    assert!((marker.holds(0, WHOLE).as_nanos() as f64 - expected).abs() < 3.0);
}
