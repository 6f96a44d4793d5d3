use super::ring::Record;
use super::*;
use crate::link_hosts::LinkHosts;
use crate::operator::protocol::{Slow, SlowRequest};
use weir_flow::control::Promises;
use weir_flow::dispatch::Owner;
use weir_flow::error::IoError;
use weir_flow::event::{StageTimes, StorageIo, Trail};
use weir_flow::request::{BackendId, LinkId, Op, PathId, Tag, TenantId, VolumeId};
use weir_flow::units::Extent;

const SETTINGS: Recorder = Recorder { memory: 64 * 1_024, slow: Duration::from_millis(100) };

/// The objective of requests that miss it.
const TARGET: Duration = Duration::from_micros(700);

fn flight() -> Flight {
    Flight::new(SETTINGS, 0x71e0).unwrap()
}

fn request(tenant: u32) -> Request {
    Request {
        tag: Tag(0),
        tenant: TenantId::new(tenant),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        op: Op::Read,
        extent: Extent::new(0, 4_096),
        fua: false,
        ordered: false,
        job: false,
    }
}

/// A request of a tenant ends after this many microseconds in a pipeline that does nothing else.
fn end(
    flight: &mut Flight,
    at: Instant,
    tenant: u32,
    micros: u64,
    missed: bool,
) -> Option<SlowLine> {
    let request = request(tenant);
    let times = times(micros);
    let arrived = Instant::from_nanos(at.as_nanos() - times.total().as_nanos());
    let trail = Trail { path: Some(PathId::new(0)), ..Trail::default() };
    let (row, outcome) = (missed.then_some(0), Ok(()));
    let completed = Completed { request: &request, row, arrived, times: &times, outcome, trail };
    let scored = missed.then_some(Scored { missed: true, target: TARGET, allowed_ppm: 10_000 });
    flight.completed(at, &completed, scored)
}

/// The times of a pipeline whose device takes so long.
fn times(micros: u64) -> StageTimes {
    use std::cell::Cell;
    use weir_flow::accept::{Cap, Layout, Volume};
    use weir_flow::dispatch::Shares;
    use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies};
    use weir_flow::stage::Stage;

    struct Seen<'a>(&'a Cell<StageTimes>);
    impl Observer for Seen<'_> {
        fn event(&mut self, _: Instant, event: Event<'_>) {
            if let Event::Completed(completed) = event {
                self.0.set(*completed.times);
            }
        }
    }
    let volume = Volume {
        capacity: 1 << 30,
        layout: Layout::One(BackendId::new(0)),
        max_transfer: u64::MAX,
        cap: Cap::default(),
    };
    let config = Config {
        volumes: vec![volume],
        backends: vec![Backend::alike(1)],
        promises: Promises::default(),
        shares: Shares::default(),
        limits: Limits::default(),
        paths: weir_flow::path::Settings::default(),
        cache: weir_flow::cache::Settings::default(),
        policies: Policies::default(),
    };
    let seen = Cell::new(StageTimes::default());
    let mut pipeline = Pipeline::new(&config, Seen(&seen));
    pipeline.handle(Instant::ZERO, Input::Arrive(request(0)));
    let Some(Action::Store(io)) = pipeline.poll(Instant::ZERO) else { panic!("it is read") };
    let now = Instant::ZERO + Duration::from_micros(micros);
    pipeline.handle(now, Input::Stored { key: io.key, outcome: Ok(()) });
    let Some(Action::Transfer { key, part, .. }) = pipeline.poll(now) else { panic!("it ends") };
    pipeline.handle(now, Input::Sent { key, bytes: part.length });
    seen.get()
}

fn asked(flight: &mut Flight, now: Instant, asked: &Asked) -> Result<Vec<SlowRequest>, String> {
    answer(flight, now, asked).map(|slow| slow.told)
}

fn answer(flight: &mut Flight, now: Instant, asked: &Asked) -> Result<Slow, String> {
    let names = Names {
        tenant: &|id| format!("t{}", id.index()),
        volume: &|_| "disk".to_owned(),
        backend: &|_| "array".to_owned(),
        hosts: &LinkHosts::default(),
    };
    flight.slow(now, asked, &names).map_err(|refusal| refusal.to_string())
}

fn all(limit: usize) -> Asked {
    let (id, tenant, volume, rule, after) = (None, None, None, None, None);
    Asked { id, within: last(60), tenant, volume, rule, after, limit }
}

fn last(seconds: u64) -> Within {
    Within::last(Duration::from_secs(seconds))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A tenant with slower requests than all others does not take their places: a list has the slowest of each, and what missed an
/// objective comes first.
#[test]
fn a_noisy_tenant_does_not_fill_the_list() {
    let mut flight = flight();
    for step in 0..600 {
        end(&mut flight, at(100 + step), 1, 50_000 + step, false);
        if step % 20 == 0 {
            end(&mut flight, at(100 + step), 0, 900 + step, false);
        }
    }
    end(&mut flight, at(700), 0, 800, true);
    let told = asked(&mut flight, at(705), &all(32)).unwrap();
    let of = |tenant: &str| told.iter().filter(|one| one.tenant == tenant).count();
    assert_eq!((told.len(), of("t0"), of("t1")), (32, 16, 16));
    assert_eq!((&told[0].tenant[..], &told[0].reason[..]), ("t0", "late"));
    assert!(told[1..].is_sorted_by(|one, next| one.response_ns >= next.response_ns));
    assert_eq!(told[1].response_ns, 50_599_000, "the slowest of all is there");
    let few = asked(&mut flight, at(705), &all(4)).unwrap();
    assert_eq!(few.iter().filter(|one| one.tenant == "t0").count(), 2);
}

/// With more tenants than places the slowest come in, whatever their tenant.
#[test]
fn many_tenants_compete_by_time() {
    let mut flight = flight();
    for tenant in 0..500 {
        end(&mut flight, at(100), tenant, 1_000 + u64::from(tenant * 7 % 500), false);
    }
    let told = asked(&mut flight, at(101), &all(32)).unwrap();
    let times: Vec<_> = told.iter().map(|one| one.response_ns / 1_000).collect();
    let wanted: Vec<_> = (1_468..1_500).rev().collect();
    assert_eq!(times, wanted);
}

/// Slow requests of a second are found for a minute, the slowest of a minute for an hour, and those of an hour for a day; memory
/// does not grow.
#[test]
fn the_slowest_stay_longer() {
    let mut flight = flight();
    let second = |n: u64| at(1_000 * n + 999);
    let most = |flight: &Flight| flight.status(second(1)).memory_bytes;
    let mut peak = 0;
    for n in 0..90_000 {
        end(&mut flight, second(n), 0, if n == 20_000 { 90_000 } else { 500 }, false);
        if n == 89_000 {
            peak = most(&flight);
        }
    }
    let now = second(90_000);
    let longest = |flight: &mut Flight, within| {
        let told = asked(flight, now, &Asked { within, ..all(1) });
        told.unwrap()[0].response_ns / 1_000
    };
    assert_eq!(longest(&mut flight, last(60)), 500);
    assert_eq!(longest(&mut flight, last(3_600)), 500);
    assert_eq!(longest(&mut flight, last(86_400)), 90_000);
    assert!(asked(&mut flight, now, &all(0)).unwrap().is_empty());
    // Around a moment: within an hour or a minute of it, whatever was slower before and after that.
    let around = |seconds| Within::around(Duration::from_secs(seconds));
    assert_eq!(longest(&mut flight, around(70_000)), 90_000);
    assert_eq!(longest(&mut flight, around(70_000 - 1_790)), 90_000);
    assert_eq!(longest(&mut flight, around(70_000 - 1_810)), 500);
    assert_eq!(longest(&mut flight, around(70_000 + 1_810)), 500);
    assert_eq!(longest(&mut flight, around(1_000)), 500);
    assert!(
        asked(&mut flight, now, &Asked { within: around(u64::MAX / SECOND.as_nanos()), ..all(1) })
            .unwrap()
            .is_empty()
    );
    assert!(most(&flight) < peak + 200_000, "{peak}");
    let status = flight.status(now);
    assert!(status.seconds_ns >= 59 * SECOND.as_nanos(), "{status:?}");
    assert!(status.hours_ns >= 23 * 3_600 * SECOND.as_nanos(), "{status:?}");
}

/// An id is found while the ring or a list has its request, and not after that; the ring has a fixed size.
#[test]
fn ids_are_found_while_they_are_there() {
    let mut flight = flight();
    let line = end(&mut flight, at(200), 0, 150_000, false).unwrap();
    assert_eq!(line.id, "71e0-000000000000");
    assert_eq!((line.reason, line.rule), (Reason::Slow, "storage/device"));
    let records = SETTINGS.memory / size_of::<Record>() as u64;
    for _ in 0..records {
        assert!(end(&mut flight, at(300), 0, 10, false).is_none());
    }
    let find = |flight: &mut Flight, id: &str| {
        asked(flight, at(301), &Asked { id: Some(id.to_owned()), ..all(1) })
    };
    // It has left the ring, and is among the slowest.
    assert_eq!(find(&mut flight, &line.id).unwrap()[0].response_ns, 150_000_000);
    let last = format!("71e0-{records:012x}");
    assert_eq!(find(&mut flight, &last).unwrap()[0].response_ns, 10_000);
    for id in [&format!("71e0-{:012x}", records + 1)[..], "71e1-000000000000", "71e0", "", "x-y"] {
        let refused = find(&mut flight, id).unwrap_err();
        assert_eq!(refused, format!("no request has the id `{id}`"));
    }
    assert!(flight.ring.memory() as u64 <= SETTINGS.memory);
}

/// Lines for slow requests are limited, and so are attributions; nothing else is lost by that.
#[test]
fn lines_and_attributions_are_limited() {
    let mut flight = flight();
    let lines = (0..1_000).filter_map(|_| end(&mut flight, at(500), 0, 200_000, true)).count();
    assert_eq!((lines as u32, flight.explanations, flight.held_back), (LINES_BURST, 150, 950));
    for step in 0..1_000 {
        end(&mut flight, at(900), 1, 1_000 + step, false);
    }
    assert_eq!(flight.explanations, 0);
    let lines = (0..1_000).filter_map(|_| end(&mut flight, at(1_500), 0, 200_000, true)).count();
    assert_eq!(lines as u32, LINES_RATE);
    let ten = Asked { within: last(10), ..all(1) };
    assert_eq!(asked(&mut flight, at(1_501), &ten).unwrap().len(), 1);
    let counts = flight.kept.find(at(1_501), last(60), 1, |_| true).1;
    assert_eq!((counts.requests, counts.late), (3_000, 2_000));
}

/// The answer names the neighbour that was served, and a filter leaves others out.
#[test]
fn the_neighbour_is_named() {
    let mut flight = flight();
    // The first wait begins the history of the backend.
    end(&mut flight, at(50), 0, 2_000, false);
    let noisy = Owner::Tenant(TenantId::new(1));
    for step in 0..80 {
        let time = Duration::from_millis(30);
        let io = StorageIo { op: Op::Read, length: 262_144, time, alone: false };
        let service = Service::Storage(BackendId::new(0), noisy, io);
        flight.serve(at(100 + step), service);
    }
    end(&mut flight, at(180), 0, 80_000, false);
    let told = asked(&mut flight, at(181), &Asked { tenant: Some("t0".to_owned()), ..all(1) });
    let [one] = &told.unwrap()[..] else { panic!("one is asked for") };
    let most = one.mostly.as_ref().unwrap();
    assert_eq!((&most.who[..], most.is_tenant), ("t1", true));
    assert_eq!(one.waits[0].behind.iter().map(|part| part.time_ns).sum::<u64>(), one.response_ns);
    assert_eq!(one.backend.as_deref(), Some("array"));
    let none = |asked_for: Asked| asked(&mut flight, at(181), &asked_for).unwrap().is_empty();
    let mut none = none;
    assert!(none(Asked { tenant: Some("t7".to_owned()), ..all(1) }));
    assert!(none(Asked { volume: Some("other".to_owned()), ..all(1) }));
    assert!(none(Asked { rule: Some("control/window".to_owned()), ..all(1) }));
    assert!(!none(Asked { rule: Some("storage/device".to_owned()), ..all(1) }));
}

/// A request that failed is urgent, a refused one is only in the ring, and without memory there is no recorder.
#[test]
fn failures_and_the_switch() {
    let mut flight = flight();
    let (request, times, arrived) = (request(0), StageTimes::default(), at(99));
    let (row, outcome, trail) = (None, Err(IoError::Medium), Trail::default());
    let completed = Completed { request: &request, row, arrived, times: &times, outcome, trail };
    let line = flight.completed(at(100), &completed, None).unwrap();
    assert_eq!(line.reason, Reason::Failed);
    flight.refused(at(101), &request, None);
    let told = asked(&mut flight, at(102), &all(5)).unwrap();
    assert_eq!((told.len(), &told[0].reason[..]), (1, "failed"));
    let refused = Asked { id: Some("71e0-000000000001".to_owned()), ..all(1) };
    let told = asked(&mut flight, at(102), &refused).unwrap();
    assert_eq!(told[0].error.as_deref(), Some("refused"));
    assert!(Flight::new(Recorder { memory: 0, ..SETTINGS }, 0).is_none());
}

/// A request that is only in the ring says why it is slow, and has the objective that it had when it ended.
#[test]
fn the_ring_knows_reasons_and_objectives() {
    let mut flight = flight();
    end(&mut flight, at(200), 0, 150_000, false);
    end(&mut flight, at(200), 0, 800, true);
    for step in 0..32 {
        end(&mut flight, at(201), 0, 1_000 + step, true);
    }
    let mut find = |number: u64| {
        assert!(flight.kept.get(number).is_none(), "it has left the list");
        let id = Some(format!("71e0-{number:012x}"));
        asked(&mut flight, at(202), &Asked { id, ..all(1) }).unwrap().remove(0)
    };
    let told = |one: SlowRequest| (one.reason, one.target_ns);
    assert_eq!(told(find(0)), ("slow".to_owned(), None));
    assert_eq!(told(find(1)), ("late".to_owned(), Some(TARGET.as_nanos())));
}

/// The counts are those of the time that the answer names, which has all of what was asked for; what is between two requests
/// belongs to it.
#[test]
fn counts_are_of_the_time_that_is_told() {
    let mut flight = flight();
    let second = |n: u64| at(1_000 * n + 500);
    // One request a second for two hours, then none for ten minutes, then one.
    let ended: Vec<u64> = (0..7_200).chain([7_800]).collect();
    for &n in &ended {
        end(&mut flight, second(n), 0, 500, false);
    }
    let now = at(7_801_000);
    let seconds = Duration::from_secs;
    for within in [
        last(1),
        last(30),
        last(300),
        last(700),
        last(86_400),
        Within::around(seconds(0)),
        Within::around(seconds(300)),
        Within::around(seconds(1_200)),
        Within::around(seconds(3_000)),
        Within::around(seconds(7_000)),
    ] {
        let slow = answer(&mut flight, now, &Asked { within, ..all(1) }).unwrap();
        let before = |nanos: u64| now.as_nanos() - nanos;
        let told = before(slow.within_ns)..=before(slow.until_ns);
        let inside = ended.iter().filter(|&&n| told.contains(&second(n).as_nanos()));
        assert_eq!(slow.requests, inside.count() as u64, "{within:?}: {slow:?}");
        let Within { last, until } = within;
        assert!(slow.until_ns <= until.as_nanos(), "{within:?}: {slow:?}");
        let begin = (last.as_nanos() + until.as_nanos()).min(now.as_nanos());
        assert!(slow.within_ns >= begin, "{within:?}: {slow:?}");
    }
    let idle = answer(&mut flight, now, &Asked { within: Within::around(seconds(300)), ..all(1) });
    let Slow { requests, within_ns, until_ns, .. } = idle.unwrap();
    assert_eq!(
        (requests, within_ns / SECOND.as_nanos(), until_ns / SECOND.as_nanos()),
        (0, 330, 270)
    );
}

/// Who follows gets each request once, and all of those of another start, whose ids say nothing about this one.
#[test]
fn a_follower_of_another_start_misses_nothing() {
    let mut flight = flight();
    for step in 0..3 {
        end(&mut flight, at(200 + step), 0, 150_000, false);
    }
    let mut after = |id: Option<&str>| {
        let asked_for = Asked { after: id.map(str::to_owned), ..all(32) };
        let mut told = asked(&mut flight, at(300), &asked_for).unwrap();
        told.sort_by(|one, other| one.id.cmp(&other.id));
        told.iter().map(|one| one.id[16..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(after(None), ["0", "1", "2"]);
    assert_eq!(after(Some("71e0-000000000000")), ["1", "2"]);
    assert_eq!(after(Some("71e0-000000000002")), [""; 0]);
    for other in ["ffff-000000000002", "0000-000000000002", "71e0-000000000003", ""] {
        assert_eq!(after(Some(other)), ["0", "1", "2"], "{other}");
    }
}
