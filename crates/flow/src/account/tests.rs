use super::*;
use crate::accept::{Cap, Layout, Volume};
use crate::clock::Duration;
use crate::control::{Ops, Row, Target};
use crate::event::{StageTimes, Trail};
use crate::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies, SetControl};
use crate::policy::Rule;
use crate::request::{BackendId, Op, Outcome, PathId, RequestKey};
use crate::rng::Rng;
use crate::stage::Stage;
use crate::testing::{promises, request};
use crate::units::Extent;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use std::vec::Vec;

const MILLI: Duration = Duration::from_millis(1);

/// A contract of 1 ms for 99 % of everything.
fn contract() -> Contract {
    Contract::new(1_000, 8_192, MILLI)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// What the first row has counted for a direction: all, and misses of the first target.
fn counted(accounts: &mut Accounts, wanted: Direction) -> (u64, u64) {
    let account = accounts.tenant(TenantId::new(0)).unwrap();
    let row = account.rows().find(|&(row, direction, _)| (row, direction) == (0, wanted));
    let Some((.., score)) = row else { return (0, 0) };
    let tally = score.hour(at(10));
    (tally.count, tally.missed[0])
}

fn end(accounts: &mut Accounts, request: &Request, spent: Duration, outcome: Outcome) {
    let mut times = StageTimes::default();
    times.charge(crate::event::StageName::Storage, spent, Rule(&"storage/device"));
    let contract = accounts.contract(request.tenant);
    let row = contract.and_then(|contract| contract.row(request, 0)).map(|row| row as u8);
    let completed = Completed {
        request,
        row,
        arrived: Instant::ZERO,
        times: &times,
        outcome,
        trail: Trail::default(),
    };
    accounts.event(at(10), Event::Completed(completed));
}

/// Refused requests and those that storage failed are misses; a mistake of the host is judged by its time.
#[test]
fn what_counts_as_a_miss() {
    let cases = [
        (Ok(()), 0),
        (Err(IoError::OutOfRange), 0),
        (Err(IoError::WriteProtected), 0),
        (Err(IoError::Medium), 1),
        (Err(IoError::NoPath), 1),
        (Err(IoError::NoSpace), 1),
    ];
    for (outcome, missed) in cases {
        let mut accounts = Accounts::new(&promises(&[Some(contract())]));
        end(&mut accounts, &request(1), MILLI, outcome);
        assert_eq!(counted(&mut accounts, Direction::Read), (1, missed), "{outcome:?}");
        assert_eq!(accounts.tenant(TenantId::new(0)).unwrap().ledger.late.count, missed);
    }
    let mut accounts = Accounts::new(&promises(&[Some(contract())]));
    accounts.event(at(10), Event::Refused(&request(1), Some(0)));
    assert_eq!(counted(&mut accounts, Direction::Read), (1, 1));
    assert_eq!(accounts.tenant(TenantId::new(0)).unwrap().ledger.refused, 1);
}

/// Reads and writes are scored apart, each under the row of its size; what no row is about is in the
/// ledger alone, and who never asked takes no memory.
#[test]
fn rows_and_directions_are_apart() {
    let row = |size| Row {
        ops: Ops::Write,
        size,
        iops: 10,
        load_permille: None,
        targets: vec![Target { quantile_ppm: 990_000, response: MILLI }],
    };
    let writes = Contract { rows: vec![row(4_096), row(65_536)], ..contract() };
    let mut accounts = Accounts::new(&promises(&[None, None, Some(writes)]));
    let asked = Request { tenant: TenantId::new(2), ..request(1) };
    let write = |length| Request { op: Op::Write, extent: Extent::new(0, length), ..asked };
    end(&mut accounts, &asked, MILLI, Ok(()));
    end(&mut accounts, &write(4_096), MILLI, Ok(()));
    end(&mut accounts, &write(8_192), MILLI * 2, Ok(()));
    assert_eq!(accounts.tenants().map(|(tenant, _)| tenant.index()).collect::<Vec<_>>(), [2]);
    let account = accounts.tenant(TenantId::new(2)).unwrap();
    let rows: Vec<_> = account
        .rows()
        .map(|(row, direction, score)| (row, direction, score.hour(at(10)).missed[0]))
        .collect();
    assert_eq!(rows, [(0, Direction::Write, 0), (1, Direction::Write, 1)]);
    assert_eq!((account.ledger.total.count, account.ledger.late.count), (3, 1));
    assert_eq!(account.ledger.beyond_ns, 1_000_000);
}

/// A tenant that asks for more falls under the row for its load and is judged by that row's targets; past
/// the last one it is promised nothing, whether served or refused. So are waiting requests when contracts change.
#[test]
fn load_moves_a_tenant_to_another_row() {
    let row = |load, millis| {
        let targets = Contract::new(1, 1, MILLI * millis).rows.remove(0).targets;
        let load_permille = Some(load);
        Row { ops: Ops::Any, size: 8_192, iops: 100, load_permille, targets }
    };
    let with = |rows: &[Row]| {
        promises(&[Some(Contract { rows: rows.to_vec(), ..Contract::new(100, 8_192, MILLI) })])
    };
    let (low, high) = (row(200, 2), row(500, 8));
    let bands = with(&[low.clone(), high.clone()]);
    let volume = Volume {
        capacity: 1 << 20,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: 16 << 10,
        cap: Cap::default(),
    };
    let config = Config {
        volumes: vec![volume],
        backends: vec![Backend::alike(1)],
        promises: bands.clone(),
        shares: crate::dispatch::Shares::default(),
        limits: Limits { max_tenant_requests: 1, ..Limits::default() },
        paths: crate::path::Settings::default(),
        cache: crate::cache::Settings::default(),
        policies: Policies::default(),
    };
    let mut pipeline = Pipeline::new(&config, Accounts::new(&bands));
    let mut serve = |now: u64, set_control: Option<&Promises>| {
        pipeline.handle(at(now), Input::Arrive(request(now)));
        while let Some(action) = pipeline.poll(at(now)) {
            let Action::Store(io) = action else { panic!("{action:?}") };
            if let Some(promises) = set_control {
                let control = Policies::default().control;
                let set_control = Arc::new(SetControl { control, promises: promises.clone() });
                pipeline.handle(at(now), Input::SetControl(set_control));
            }
            // There is room for one: a second one is refused, at its load.
            pipeline.handle(at(now), Input::Arrive(request(now)));
            assert!(matches!(pipeline.poll(at(now)), Some(Action::Refuse { .. })));
            pipeline.handle(at(now + 5), Input::Stored { key: io.key, outcome: Ok(()) });
            let Some(Action::Transfer { key, part, .. }) = pipeline.poll(at(now + 5)) else {
                panic!()
            };
            pipeline.handle(at(now + 5), Input::Sent { key, bytes: part.length });
        }
        let account = pipeline.observer_mut().tenant(TenantId::new(0)).unwrap();
        let score = |(row, _, score): (usize, _, &mut Attainment)| {
            let whole = score.whole(at(now + 5)).counts;
            (row, whole.count, whole.missed[0])
        };
        account.rows().map(score).collect::<Vec<_>>()
    };
    for step in 0..10 {
        serve(step * 10, None);
    }
    assert_eq!(serve(100, None), [(0, 20, 20), (1, 2, 1)], "5 ms miss 2 ms, and meet 8 ms");
    for step in 11..25 {
        serve(step * 10, None);
    }
    assert_eq!(serve(250, None), [(0, 20, 20), (1, 30, 15)], "past 50 in a second");
    assert_eq!(serve(2_000, None), [(0, 22, 22), (1, 30, 15)], "and back");
    let swapped = with(&[row(200, 8), high]);
    assert_eq!(serve(4_000, Some(&swapped)), [(0, 2, 1)], "judged by the new row");
}

/// Other rows start anew, the same rows continue; the ledger always continues.
#[test]
fn new_promises_start_anew() {
    let mut accounts = Accounts::new(&promises(&[Some(contract())]));
    end(&mut accounts, &request(1), MILLI * 2, Ok(()));
    let heavier = Contract { weight: 7, ..contract() };
    accounts.event(at(10), Event::ControlSet(&promises(&[Some(heavier)])));
    assert_eq!(counted(&mut accounts, Direction::Read), (1, 1), "the rows are the same");
    let laxer = Contract::new(1_000, 8_192, MILLI * 2);
    accounts.event(at(10), Event::ControlSet(&promises(&[Some(laxer)])));
    assert_eq!(counted(&mut accounts, Direction::Read), (0, 0));
    end(&mut accounts, &request(1), MILLI * 2, Ok(()));
    assert_eq!(counted(&mut accounts, Direction::Read), (1, 0));
    accounts.event(at(10), Event::ControlSet(&Promises::default()));
    end(&mut accounts, &request(1), MILLI * 9, Ok(()));
    assert_eq!(counted(&mut accounts, Direction::Read), (0, 0));
    assert_eq!(accounts.tenant(TenantId::new(0)).unwrap().ledger.total.count, 3);
}

/// Sums of what the pipeline told, taken without the ledger: by tenant the time from arrival to end.
#[derive(Default)]
struct Sums(BTreeMap<usize, (u64, u128, u64)>);

impl Observer for Sums {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Completed(done) => {
                let sum = self.0.entry(done.request.tenant.index()).or_default();
                sum.0 += 1;
                sum.1 += u128::from(now.since(done.arrived).as_nanos());
            }
            Event::Refused(request, _) => self.0.entry(request.tenant.index()).or_default().2 += 1,
            _ => {}
        }
    }
}

/// In a random run with every kind of delay, cut requests, lost paths, errors and other policies half way,
/// each tenant's ledger adds up to exactly the time between its arrivals and ends.
#[test]
fn the_ledger_is_exact_in_a_storm() {
    for seed in 0..10 {
        let mut rng = Rng::stream(seed, "storm");
        let backend = BackendId::new(0);
        let cap = Cap::default();
        let volume =
            Volume { capacity: 1 << 20, layout: Layout::One(backend), max_transfer: 16 << 10, cap };
        let contracts = promises(&[Some(Contract::new(1_000_000, 4_096, MILLI)), None]);
        let mut policies = Policies::default();
        policies.dispatch.set("depth", 1 + rng.below(8)).unwrap();
        policies.control = crate::policy::Choice::named(crate::control::POLICIES, "ta1").unwrap();
        let limits =
            Limits { max_requests: 64, link_window: 1 + rng.below(20_000), ..Limits::default() };
        let config = Config {
            volumes: vec![volume],
            backends: vec![Backend::alike(2)],
            promises: contracts.clone(),
            shares: crate::dispatch::Shares::default(),
            limits,
            paths: crate::path::Settings::default(),
            cache: crate::cache::Settings::default(),
            policies: policies.clone(),
        };
        let observer = (Accounts::new(&contracts), Sums::default());
        let mut pipeline = Pipeline::new(&config, observer);
        let (mut now, mut tag) = (0, 0);
        let (mut devices, mut links) = (Vec::<RequestKey>::new(), Vec::new());
        loop {
            now += rng.below(3_000);
            let done = tag >= 2_000;
            let input = match rng.below(10) {
                0..4 if !done => {
                    tag += 1;
                    let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][rng.below(4) as usize];
                    let length = if op == Op::Flush { 0 } else { 1 + rng.below(48 << 10) };
                    // Some are out of range.
                    let extent = Extent::new(rng.below(1 << 20), length);
                    let tenant = TenantId::new(rng.below(3) as u32);
                    if tag == 1_000 {
                        let control = Policies::default().control;
                        let set_control = SetControl { control, promises: contracts.clone() };
                        Input::SetControl(Arc::new(set_control))
                    } else {
                        Input::Arrive(Request { tenant, op, extent, ..request(tag) })
                    }
                }
                0..8 if !devices.is_empty() => {
                    let key = devices.swap_remove(rng.below(devices.len() as u64) as usize);
                    let outcome = match rng.below(30) {
                        0 => Err(IoError::Medium),
                        1 => Err(IoError::PathFailed),
                        _ => Ok(()),
                    };
                    Input::Stored { key, outcome }
                }
                8 => Input::PathUp(backend, PathId::new(rng.below(2) as u32)),
                _ if !links.is_empty() => links.swap_remove(rng.below(links.len() as u64) as usize),
                _ if done && pipeline.outstanding() == 0 => break,
                _ => match pipeline.next_deadline() {
                    Some(deadline) if done => {
                        now = now.max(deadline.as_nanos());
                        let now = Instant::from_nanos(now);
                        pipeline.handle_deadline(now);
                        collect(&mut pipeline, now, &mut devices, &mut links);
                        continue;
                    }
                    _ => continue,
                },
            };
            let now = Instant::from_nanos(now);
            pipeline.handle(now, input);
            collect(&mut pipeline, now, &mut devices, &mut links);
        }
        let (accounts, Sums(sums)) = pipeline.observer_mut();
        assert_eq!(sums.len(), 3);
        for (tenant, account) in accounts.tenants() {
            let ledger = &account.ledger;
            let told = (ledger.total.count, ledger.total.nanos, ledger.refused);
            assert_eq!(told, sums[&tenant.index()]);
            let parts: u128 = ledger.lines().iter().map(|line| line.all.nanos).sum();
            assert_eq!(parts, ledger.total.nanos, "to the nanosecond");
            let late: u128 = ledger.lines().iter().map(|line| line.late.nanos).sum();
            assert_eq!(late, ledger.late.nanos);
            assert!(ledger.lines().len() > 3, "several causes: {ledger:?}");
        }
    }
}

fn collect(
    pipeline: &mut Pipeline<(Accounts, Sums)>,
    now: Instant,
    devices: &mut Vec<RequestKey>,
    links: &mut Vec<Input>,
) {
    while let Some(action) = pipeline.poll(now) {
        match action {
            Action::Store(io) => devices.push(io.key),
            Action::Transfer { key, part, .. } => {
                links.push(Input::Sent { key, bytes: part.length });
            }
            Action::Refuse { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
