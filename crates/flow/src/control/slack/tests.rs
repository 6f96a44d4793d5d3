use super::bucket::{Bucket, SCALE_ONE};
use super::*;
use crate::control::{Contract, Group, Ops, Row, Target};
use crate::request::TenantId;
use crate::rng::Rng;
use crate::testing;
use alloc::collections::BTreeSet;
use alloc::vec;
use core::cmp::Reverse;
use slotmap::SlotMap;
use std::collections::BinaryHeap;

const PROMISE: Duration = Duration::from_millis(41);
const HALF_SECOND: Duration = Duration::from_millis(500);

fn settings() -> Settings {
    Settings::from(testing::choice(&POLICY, &[]).values())
}

/// Feeds a window with an ending every 200 us, with 8 at the device and excess waiting, for this many
/// seconds. `misses` says from the time in milliseconds, the number of the ending and the window whether
/// it is a miss. Returns whether each change was a waiver (true) or its end.
fn feed(
    window: &mut Window,
    seconds: u64,
    misses: impl Fn(u64, u64, &Window) -> bool,
) -> Vec<bool> {
    let mut verdicts = Vec::new();
    for n in 1..=seconds * 5_000 {
        let now = Instant::from_nanos(n * 200_000);
        while window.period_over(now).is_some() {
            let misfit = window.period_outcome().misfit;
            verdicts.extend(window.end_period(misfit).iter().map(|verdict| verdict.1));
        }
        window.set_full(now);
        let late = misses(n / 5, n, window);
        let device = if late { PROMISE } else { Duration::from_millis(1) };
        window.count_ending(now, 0, device, 8);
        window.update(now);
    }
    verdicts
}

fn window() -> Window {
    Window::new(settings(), vec![(PROMISE, 990_000); 2])
}

/// With fewer misses than one in a hundred the window grows to its end, with more it shrinks to its
/// floor; in neither case is there a waiver.
#[test]
fn the_window_follows_the_misses() {
    let mut good = window();
    assert_eq!(feed(&mut good, 20, |_, n, _| n.is_multiple_of(200)), []);
    assert!(good.has_room(3_000));
    let mut bad = window();
    assert_eq!(feed(&mut bad, 20, |_, n, _| n.is_multiple_of(50)), []);
    assert!(!bad.has_room(9) && bad.has_room(7));
}

/// One miss shrinks by the whole factor of its share, 99 hits make up for it, up to what eight at the
/// device can do in one step.
#[test]
fn a_miss_and_its_hits_cancel() {
    let mut window = window();
    window.set_full(Instant::ZERO);
    let at = Instant::from_nanos(1);
    window.count_ending(at, 0, PROMISE, 8);
    window.update(at);
    // 64 * e^(-0.99 / 8) is 56.5.
    assert!(window.has_room(56) && !window.has_room(57));
    for _ in 0..99 {
        window.count_ending(at, 0, Duration::ZERO, 8);
        window.update(at);
    }
    assert!(window.has_room(63) && !window.has_room(65));
}

/// Misses that no window prevents: the objective gets a waiver, and the window opens while it
/// is, but for a trial of the floor now and then.
#[test]
fn an_infeasible_objective_gets_a_waiver() {
    let mut window = window();
    let verdicts = feed(&mut window, 30, |_, n, _| n.is_multiple_of(16));
    assert!(verdicts[0]);
    let strict = verdicts.iter().filter(|&&infeasible| !infeasible).count();
    assert!((2..5).contains(&strict), "{verdicts:?}");
    assert!(verdicts.last() == Some(&true) && window.has_room(1_000));
}

/// A class with five endings a second is found out as well, within two minutes, though half of the periods
/// have none.
#[test]
fn few_requests_are_enough_for_a_waiver() {
    let mut window = window();
    let mut verdicts = Vec::new();
    for n in 1..=600 {
        let now = Instant::from_nanos(n * 200_000_000);
        while window.period_over(now).is_some() {
            verdicts.extend(window.end_period(false).iter().map(|verdict| verdict.1));
        }
        window.set_full(now);
        let device = if n % 5 == 0 { PROMISE } else { Duration::ZERO };
        window.count_ending(now, 0, device, 8);
        window.update(now);
    }
    assert_eq!(verdicts.first(), Some(&true));
}

/// Where a larger window makes more of the misses, an excuse costs half as many again and no more.
#[test]
fn a_waiver_has_its_price() {
    let mut window = window();
    let late = std::cell::Cell::new(0);
    // A twentieth at the floor, a seventh in a window of more than 64.
    let verdicts = feed(&mut window, 40, |ms, n, window| {
        let misses = n.is_multiple_of(if window.has_room(64) { 7 } else { 20 });
        late.set(late.get() + u64::from(misses && ms > 20_000));
        misses
    });
    assert!(verdicts[0]);
    let share = late.get() * 1_000 / (20 * 5_000);
    assert!((60..80).contains(&share), "{share} in a thousand");
}

/// Load that passes within a second and a half leads to no waiver, nor does an objective that the floor
/// keeps.
#[test]
fn misses_that_pass_or_can_be_cured_get_no_waiver() {
    for end in (200..1_500).step_by(50) {
        let passes = |ms, n: u64, _: &Window| ms < end && n.is_multiple_of(10);
        assert_eq!(feed(&mut window(), 10, passes), [], "load until {end} ms");
    }
    let cured =
        |_, n: u64, window: &Window| n.is_multiple_of(if window.has_room(9) { 8 } else { 40 });
    assert_eq!(feed(&mut window(), 40, cured), []);
}

/// The requests per second of a tenant, their start, and its contract.
struct Load {
    contract: Option<Contract>,
    rate: u64,
    from: Duration,
}

/// When each of a tenant's requests came and ended.
struct Served(Vec<(Instant, Instant)>);

impl Served {
    fn within(at: Instant, (from, to): (u64, u64)) -> bool {
        (from * 1_000_000_000..to * 1_000_000_000).contains(&at.as_nanos())
    }

    /// The response times of those that came between two seconds.
    fn came(&self, between: (u64, u64)) -> Vec<Duration> {
        let came = self.0.iter().filter(|(came, _)| Self::within(*came, between));
        came.map(|(came, ended)| ended.since(*came)).collect()
    }

    /// How many ended per second between two seconds.
    fn rate(&self, between: (u64, u64)) -> u64 {
        let ended = self.0.iter().filter(|(_, ended)| Self::within(*ended, between));
        ended.count() as u64 / (between.1 - between.0)
    }
}

/// Runs loads against a device that serves one request at a time in `service`.
fn run(loads: &[Load], groups: &[Group], service: Duration, seconds: u64) -> Vec<Served> {
    run_changing(loads, groups, service, seconds, &mut |_| None)
}

/// The same with changes: every half second, `change` may return other contracts.
fn run_changing(
    loads: &[Load],
    groups: &[Group],
    service: Duration,
    seconds: u64,
    change: &mut dyn FnMut(Instant) -> Option<Vec<Option<Contract>>>,
) -> Vec<Served> {
    let contracts = loads.iter().map(|load| load.contract.clone()).collect();
    let mut promises = Promises { contracts, groups: groups.to_vec() };
    assert_eq!(promises.validate(), Ok(()));
    let mut slack = Slack::new(settings(), &promises);
    let mut next_change = Instant::ZERO + HALF_SECOND;
    let mut queued = BTreeSet::new();
    let mut keys = SlotMap::<RequestKey, (Instant, usize, Instant)>::with_key();
    let mut arrivals = BinaryHeap::new();
    for (tenant, load) in loads.iter().enumerate() {
        arrivals.push(Reverse((Instant::ZERO + load.from, tenant)));
    }
    let (mut ends, mut free) = (BinaryHeap::new(), Instant::ZERO);
    let mut served: Vec<Served> = loads.iter().map(|_| Served(Vec::new())).collect();
    let request =
        |tenant: usize| Request { tenant: TenantId::new(tenant as u32), ..testing::request(0) };
    let last = Instant::ZERO + Duration::from_secs(seconds);
    loop {
        let arrival = arrivals.peek().map(|&Reverse((at, _))| at);
        let end = ends.peek().map(|&Reverse((at, _))| at);
        if arrival.is_some_and(|at| at >= next_change) {
            let now = next_change;
            next_change += HALF_SECOND;
            if let Some(contracts) = change(now) {
                promises.contracts = contracts;
                assert!(slack.set_promises(now, &testing::choice(&POLICY, &[]), &promises));
                for &(_, key) in &queued {
                    let request = request(keys[key].1);
                    slack.arrive(now, key, &request, testing::row(&promises, &request));
                }
            }
        }
        let times = [slack.next_deadline(), end, arrival];
        let now = times.into_iter().flatten().min().expect("something happens");
        if now > last {
            return served;
        }
        if times[0] == Some(now) {
            slack.handle_deadline(now);
        } else if end == Some(now) {
            let Reverse((_, key)) = ends.pop().expect("it was peeked at");
            let (came, tenant, released) = keys[key];
            slack.complete(now, key, &request(tenant), now.since(released));
            served[tenant].0.push((came, now));
        } else {
            let Reverse((_, tenant)) = arrivals.pop().expect("it was peeked at");
            let key = keys.insert((now, tenant, now));
            let request = request(tenant);
            queued.insert((now, key));
            slack.arrive(now, key, &request, testing::row(&promises, &request));
            let gap = Duration::from_nanos(1_000_000_000 / loads[tenant].rate);
            arrivals.push(Reverse((now + gap, tenant)));
        }
        while let Some((key, _)) = slack.poll(now) {
            queued.remove(&(keys[key].0, key));
            keys[key].2 = now;
            free = now.max(free) + service;
            ends.push(Reverse((free, key)));
        }
    }
}

fn contract(iops: u32) -> Contract {
    Contract::new(iops, 4_096, PROMISE)
}

/// However long another tenant has had the device alone, a tenant that comes late and stays within its
/// contract is served in time: from its first request on if the other one has a contract too, and after the
/// largest window has drained if it has none.
#[test]
fn a_late_victim_is_served_at_once() {
    for (violator, begin) in [(Some(contract(1_500)), 3), (None, 5)] {
        let loads = [
            Load { contract: Some(contract(3_500)), rate: 2_000, from: Duration::from_secs(3) },
            Load { contract: violator, rate: 8_000, from: Duration::ZERO },
        ];
        let served = run(&loads, &[], Duration::from_micros(180), 7);
        let times = served[0].came((begin, begin + 1));
        let kept = times.iter().filter(|&&time| time <= PROMISE).count();
        assert!(times.len() > 1_900, "{}", times.len());
        assert!(kept * 100 >= times.len() * 98, "{kept} of {}", times.len());
    }
}

/// The share of misses, in 1000ths, that a tenant within its contract sees between two seconds, beside one that floods
/// the device, while `change` changes contracts; the third tenant is a neighbour within its contract.
fn misses(change: &mut dyn FnMut(Instant, &mut [Option<Contract>])) -> u64 {
    let loads = [
        late(contract(2_500), 2_000, 0),
        late(contract(1_000), 9_000, 0),
        late(contract(500), 400, 0),
    ];
    let mut contracts: Vec<_> = loads.iter().map(|load| load.contract.clone()).collect();
    let served = run_changing(&loads, &[], Duration::from_micros(180), 30, &mut |now| {
        let before = contracts.clone();
        change(now, &mut contracts);
        (contracts != before).then(|| contracts.clone())
    });
    let times = served[0].came((5, 29));
    times.iter().filter(|&&time| time > PROMISE).count() as u64 * 1_000 / times.len() as u64
}

/// A contract that is changed every half second costs no other tenant a thing: neither a change of the neighbour's
/// objective, nor of its rate, nor of the contract of the tenant that floods the device.
#[test]
fn a_change_costs_no_other_tenant() {
    assert!(misses(&mut |_, _| {}) <= 10);
    let millis = |millis| Duration::from_millis(millis);
    let toggled = |now: Instant| (now.as_nanos() / HALF_SECOND.as_nanos()).is_multiple_of(2);
    for changed in [1, 2] {
        let objective = misses(&mut |now, contracts| {
            let time = if toggled(now) { millis(41) } else { millis(60) };
            contracts[changed] = Some(Contract::new(500 * (3 - changed as u32), 4_096, time));
        });
        let rate = misses(&mut |now, contracts| {
            contracts[changed] = Some(contract(if toggled(now) { 500 } else { 450 }));
        });
        let ended = misses(&mut |now, contracts| {
            contracts[changed] = toggled(now).then(|| contract(500));
        });
        assert!(
            [objective, rate, ended].iter().all(|&one| one <= 10),
            "{objective} {rate} {ended} of 1000"
        );
    }
}

/// The second after a tenant's own change is no worse than twice what it is promised then. (To a quarter it can be: what
/// is at the devices when the change comes cannot be taken back.)
#[test]
fn ones_own_change_acts_at_once() {
    let flood = late(contract(1_000), 9_000, 0);
    for (before, after) in [(40, 20), (41, 30), (20, 40)] {
        let own = |millis| Contract::new(2_500, 4_096, Duration::from_millis(millis));
        let loads = [
            late(own(before), 2_000, 0),
            Load { contract: flood.contract.clone(), ..late(contract(1), 9_000, 0) },
        ];
        let served = run_changing(&loads, &[], Duration::from_micros(180), 12, &mut |now| {
            let at = Instant::ZERO + Duration::from_secs(10);
            (now == at).then(|| vec![Some(own(after)), flood.contract.clone()])
        });
        let mut times = served[0].came((10, 11));
        times.sort_unstable();
        let p99 = times[times.len() * 99 / 100];
        assert!(p99 <= Duration::from_millis(2 * after), "{before} to {after} ms: p99 {p99}");
    }
}

/// A change gives no tokens away: a bucket that was empty is not full afterwards, and a limit holds on.
#[test]
fn a_change_gives_no_burst() {
    let limited = |weight| Contract { limit: Some(200), weight, ..contract(100) };
    let loads = [late(limited(1), 1_000, 0)];
    let mut weight = 1;
    let served = run_changing(&loads, &[], Duration::from_micros(10), 10, &mut |_| {
        weight += 1;
        Some(vec![Some(limited(weight))])
    });
    assert!((1_990..=2_021).contains(&served[0].0.len()), "{}", served[0].0.len());
}

/// Excess is divided in proportion to the contracts: of three tenants that ask for too much the one
/// with twice the contract gets twice as much beyond what all are guaranteed.
#[test]
fn excess_is_divided_by_contracts() {
    let load = |contract| Load { contract, rate: 5_000, from: Duration::ZERO };
    let loads = [load(Some(contract(1_000))), load(Some(contract(500))), load(None)];
    let served = run(&loads, &[], Duration::from_micros(200), 6);
    let served: Vec<usize> = served.iter().map(|served| served.0.len()).collect();
    let excess = [served[0] as f64 - 6_300.0, served[1] as f64 - 3_150.0, served[2] as f64];
    assert!((excess[0] / excess[1] - 2.0).abs() < 0.1, "{served:?}");
    assert!((excess[1] / excess[2] - 5.0).abs() < 0.5, "{served:?}");
}

/// A bucket holds a burst, fills at the contract's rate with its margin, finds room for a head that is
/// larger than it, and says to the nanosecond when it can pay.
#[test]
fn a_bucket_pays_when_it_says() {
    let mut clock = ScaledClock::new(50);
    let mut bucket = Bucket::new(1_000, Duration::from_millis(100));
    for _ in 0..100 {
        assert!(bucket.pay(1_000));
    }
    for cost in [1_000, 2_500, 500_000] {
        bucket.fill(&clock, cost);
        let at = clock.when(bucket.ready_at(cost));
        clock.advance(Instant::from_nanos(at.as_nanos() - 1));
        bucket.fill(&clock, cost);
        assert!(!bucket.pay(cost), "{cost}");
        clock.advance(at);
        bucket.fill(&clock, cost);
        assert!(bucket.pay(cost), "{cost}");
    }
    // 100 ms at once, then 503.5 requests at 1050 per second.
    let expected = 503.5 / 1_050.0 * 1e9;
    assert!((clock.when(bucket.ready_at(0)).as_nanos() as f64 - expected).abs() < 3.0);
    // At half the scale and without the margin it takes more than twice as long.
    let from = clock.when(bucket.ready_at(0));
    clock.set(SCALE_ONE / 2, 0);
    let twice = clock.when(bucket.ready_at(1_000)).since(from).as_nanos();
    assert!(twice.abs_diff(2_000_000) < 3, "{twice}");
}

fn late(contract: Contract, rate: u64, seconds: u64) -> Load {
    Load { contract: Some(contract), rate, from: Duration::from_secs(seconds) }
}

/// What a tenant has not used it may use later, at its peak and before others' excess, until it is
/// spent: two idle seconds at 500 a second pay for one second at three times the contract.
#[test]
fn credit_is_spent_before_others_share() {
    let saver = |credit| Contract {
        credit: Duration::from_secs(credit),
        peak_permille: 3_000,
        weight: 1,
        ..contract(500)
    };
    let served = |credit| {
        let loads = [late(saver(credit), 5_000, 2), late(contract(2_000), 9_000, 0)];
        let served = run(&loads, &[], Duration::from_micros(250), 4);
        [(2, 3), (3, 4)].map(|second| served[0].rate(second))
    };
    let [first, second] = served(60);
    assert!((1_300..=1_700).contains(&first), "{first} at its peak");
    assert!(second < 900, "{second} when the credit is spent");
    let [without, _] = served(0);
    assert!(without < 800, "{without} without credit");
}

/// Credit and the window outlive a change of contracts; credit is cut to the maximum of the new contract.
#[test]
fn a_successor_begins_where_it_ended() {
    let saver = |credit| {
        let contract = Contract { credit: Duration::from_secs(credit), ..contract(500) };
        Slack::new(settings(), &testing::promises(&[Some(contract)]))
    };
    let mut first = saver(60);
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let keys = testing::keys(2);
    first.arrive(at(20), keys[0], &testing::request(0), Some(0));
    assert_eq!(first.poll(at(20)).map(|(key, _)| key), Some(keys[0]));
    first.complete(at(21), keys[0], &testing::request(0), Duration::from_secs(1));
    let handover = first.handover(at(21));
    // It was idle for 21 s but for one request; a miss with one at the device is a factor of e.
    assert_eq!(handover.credits[0].as_nanos() / 100_000_000, 209);
    assert_eq!(handover.window, Some(24));
    let mut second = saver(10);
    second.take_over(at(21), &handover);
    assert_eq!(second.handover(at(21)).credits[0], Duration::from_secs(10));
    second.arrive(at(21), keys[1], &testing::request(0), Some(0));
    assert!(second.poll(at(21)).is_some());
    second.complete(at(21), keys[1], &testing::request(0), Duration::ZERO);
    assert_eq!(second.handover(at(21)).window, Some(24));
}

/// Where no tenant has an objective, requests go at once up to the largest window; what is beyond
/// waits for places, and then nothing is left that waits.
#[test]
fn without_objectives_only_the_largest_window_holds() {
    let mut slack = Slack::new(Settings { max: 3, ..settings() }, &Promises::default());
    let keys = testing::keys(5);
    let request = |tenant| Request { tenant: TenantId::new(tenant), ..testing::request(0) };
    for (&key, tenant) in keys.iter().zip([0, 0, 0, 0, 1]) {
        slack.arrive(Instant::ZERO, key, &request(tenant), None);
    }
    let mut released = Vec::new();
    let mut drain = |slack: &mut Slack| {
        released.extend(core::iter::from_fn(|| slack.poll(Instant::ZERO)).map(|(key, _)| key));
        released.len()
    };
    assert_eq!(drain(&mut slack), 3);
    for (ended, count) in [(0, 4), (1, 5), (2, 5)] {
        slack.complete(Instant::ZERO, keys[ended], &request(0), Duration::ZERO);
        assert_eq!(drain(&mut slack), count, "{ended} has ended");
    }
    assert_eq!((slack.queued, slack.inflight.len(), slack.next_deadline()), (0, 2, None));
    assert_eq!(released, keys);
}

/// What a member of a group does not use, another member gets as guaranteed; an outsider does not.
#[test]
fn a_group_lends_what_is_not_used() {
    let group = Group { parent: None, iops: 2_000, size: 4_096, limit: None, weight: 1 };
    let member = |iops| Contract { group: Some(0), weight: 1, ..contract(iops) };
    let served = |idle: u64| {
        let loads = [
            late(member(1_000), 3_000, 0),
            late(member(1_000), idle, 0),
            late(contract(1_900), 9_000, 0),
        ];
        let served = run(&loads, &[group], Duration::from_micros(200), 4);
        served.iter().map(|served| served.rate((1, 4))).collect::<Vec<_>>()
    };
    let (both, alone) = (served(1_000), served(10));
    assert!((1_000..1_150).contains(&both[0]), "{both:?}");
    assert!((1_950..2_150).contains(&alone[0]), "{alone:?}");
    assert!(alone[2] >= 1_900, "{alone:?}");
}

/// A limit holds on an idle device: a tenant's own, and that of a group over all its members.
#[test]
fn limits_hold_on_an_idle_device() {
    let group = Group { parent: None, iops: 300, size: 4_096, limit: Some(600), weight: 1 };
    let loads = [
        late(Contract { limit: Some(200), ..contract(100) }, 1_000, 0),
        late(Contract { group: Some(0), ..contract(200) }, 1_000, 0),
        late(Contract { group: Some(0), ..contract(100) }, 1_000, 0),
    ];
    let served = run(&loads, &[group], Duration::from_micros(10), 10);
    let ended: Vec<usize> = served.iter().map(|served| served.0.len()).collect();
    assert!((1_990..=2_021).contains(&ended[0]), "{ended:?}");
    let together = ended[1] + ended[2];
    assert!((5_970..=6_061).contains(&together), "{ended:?}");
    assert!(ended[1] > ended[2], "the larger contract gets more: {ended:?}");
}

/// When a device loses capacity, bronze gives way so that gold keeps its rate.
#[test]
fn bronze_gives_way_to_gold() {
    let bronze = Contract { tier: Tier::Bronze, ..contract(2_000) };
    let loads = [late(contract(2_000), 2_000, 0), late(bronze, 2_000, 0)];
    // 3000 a second where 4000 are promised.
    let served = run(&loads, &[], Duration::from_nanos(333_333), 30);
    let rates = [0, 1].map(|tenant: usize| served[tenant].rate((15, 30)));
    assert!(rates[0] >= 1_900 && rates[1] <= 1_100, "{rates:?}");
}

/// Rows of a contract are watched for themselves: the tighter of two percentiles rules the window, and a
/// row for reads says nothing of writes.
#[test]
fn the_tightest_objective_counts() {
    let target =
        |quantile_ppm, millis| Target { quantile_ppm, response: Duration::from_millis(millis) };
    let wide = Contract::new(500, 4_096, Duration::from_millis(400));
    let mut tight = wide.clone();
    tight.rows[0].targets = vec![target(500_000, 4), target(990_000, 400)];
    let p50 = |victim: Contract| {
        let violator = Contract { weight: 100, ..wide.clone() };
        let loads = [late(victim, 400, 0), late(violator, 9_000, 0)];
        let mut times = run(&loads, &[], Duration::from_micros(200), 10)[0].came((5, 9));
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (loose, kept) = (p50(wide.clone()), p50(tight.clone()));
    assert!(loose > Duration::from_millis(20), "{loose}");
    assert!(kept < Duration::from_millis(5), "{kept}");
    tight.rows = vec![Row { ops: Ops::Write, ..tight.rows[0].clone() }];
    assert!(p50(tight) > Duration::from_millis(20), "reads have no objective");
}

/// What a run released, and when.
#[derive(Debug, Default)]
struct Trace {
    releases: Vec<(Instant, RequestKey, Rule)>,
    deadlines: Vec<Option<Instant>>,
    /// Requests that came while no queue held one.
    idle: u32,
}

/// A random load that comes and goes, with release on arrival or through the queues only.
fn run_random(on_arrival: bool, seed: u64) -> Trace {
    let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(3)));
    let promises =
        Promises { contracts: vec![contract(300), None, contract(20)], groups: Vec::new() };
    let settings = Settings::from(testing::choice(&POLICY, &[]).values());
    let mut slack = Slack::new(Settings { first: 12, ..settings }, &promises);
    slack.tenants.iter_mut().for_each(|tenant| tenant.plain &= on_arrival);
    let (mut rng, mut now) = (Rng::stream(seed, "short"), Instant::ZERO);
    let mut keys: SlotMap<RequestKey, _> = SlotMap::with_key();
    let (mut out, mut trace) = (Vec::new(), Trace::default());
    for step in 0..20_000 {
        now += Duration::from_nanos(rng.below(1_000_000));
        while let Some(at) = slack.next_deadline().filter(|&at| at <= now) {
            slack.handle_deadline(at);
        }
        if rng.below(100) < if step / 500 % 2 == 0 { 52 } else { 40 } || out.is_empty() {
            let mut request = testing::request(0);
            request.tenant = TenantId::new(rng.below(4) as u32);
            request.extent.length = 512 << rng.below(6);
            let key = keys.insert(request);
            trace.idle += u32::from(slack.is_idle());
            slack.arrive(now, key, &request, testing::row(&promises, &request));
        } else {
            let (key, released) = out.swap_remove(rng.below(out.len() as u64) as usize);
            slack.complete(now, key, &keys[key], now.since(released));
        }
        while let Some((key, rule)) = slack.poll(now) {
            out.push((key, now));
            trace.releases.push((now, key, rule));
        }
        trace.deadlines.push(slack.next_deadline());
    }
    trace
}

/// Release on arrival saves work and changes nothing: the same requests go at the same times under the
/// same rules, and the same deadlines are set, as through the queues.
#[test]
fn release_on_arrival_equals_release_from_the_queue() {
    for seed in 0..20 {
        let (direct, queued) = (run_random(true, seed), run_random(false, seed));
        assert!((1_000..direct.releases.len() as u32).contains(&direct.idle), "{}", direct.idle);
        assert!(direct.releases.iter().any(|&(.., rule)| rule == WINDOW));
        assert!(direct.deadlines.iter().any(Option::is_some), "a request was queued");
        assert!(direct.releases == queued.releases, "releases, seed {seed}");
        assert!(direct.deadlines == queued.deadlines, "deadlines, seed {seed}");
    }
}
