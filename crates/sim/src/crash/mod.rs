//! The crash enumerator: small workloads through the real write-back log, crashed at every I/O boundary.
//!
//! A workload comes from a seed: settings, hosts, what they ask for, and the order in which everything
//! happens. It is driven through the [`Pipeline`](weir_flow::pipeline::Pipeline) that `weir serve` has, with a
//! write-back log and a read buffer, over a log device and an upstream that at a crash keep any sectors of what
//! was not flushed. Whenever an I/O of either begins or ends, and whenever a host is answered, crashes are made
//! in many ways, each is recovered from, and what is there then is held against what hosts were told. Now and
//! then a crash, or a stop, is the end of one life of the gateway and the beginning of the next, in which there
//! are crashes again.
//!
//! Where the upstream is away, hosts overwrite what the log has, and the log is cleaned, with crashes at each step of that.
//!
//! Paths, sessions and other gateways belong to it: writes of a lost session or of an earlier life are executed late,
//! paths fail over, another gateway takes the unit over, settings change, and sectors of the log device rot.
//!
//! A [`Bug`] is a mistake made on purpose: that it is found shows what the laws are worth.

mod bug;
mod cleaning;
mod content;
mod device;
mod events;
mod forge;
mod history;
mod journal;
mod judge;
mod lasting;
mod loss;
mod lost;
mod plan;
mod recovery;
mod rot;
mod shell;
mod target;
mod tear;

pub use bug::Bug;
pub use events::EventCount;
pub use history::Broken;
pub use loss::Loss;

use crate::cores;
use content::{Content, Image, SECTOR, Store};
use device::{Device, Id};
use events::{Event, Events};
use history::History;
use journal::Journal;
use judge::Judge;
use lasting::Lasting;
use lost::Lost;
use plan::{Ask, Plan};
use recovery::World;
use serde::Serialize;
use shell::{Fault, Shell};
use std::collections::{BTreeMap, BTreeSet};
use target::Target;
use tear::Tear;
use weir_flow::cache::writeback::format_new;
use weir_flow::rng::Rng;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The first seed; further workloads take those that follow.
    pub seed: u64,
    /// How many different states of both devices are wanted.
    pub states: u64,
    /// A mistake.
    pub bug: Option<Bug>,
    /// Whether a violation is to be told, with as few requests as it needs; that takes some seconds.
    pub told: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The first seed.
    pub seed: u64,
    /// Workloads that were run.
    pub workloads: u64,
    /// Lives of the gateway in them: each but the last of a workload ends in a crash.
    pub lives: u64,
    /// Moments at which crashes were made.
    pub points: u64,
    /// States of both devices after a crash, equal ones counted once.
    pub states: u64,
    /// States that were recovered and checked: one that is equal to an earlier one again, if hosts had been
    /// promised more by then.
    pub checked: u64,
    /// Those of them in which the log had something that was not upstream.
    pub dirty: u64,
    /// Of them, how many were opened once more with a rotten sector of the log device.
    pub rotten: u64,
    /// How they came about.
    pub kinds: Vec<Kind>,
    /// How often what befalls gateways has happened.
    pub events: Vec<EventCount>,
    /// The first that broke a law.
    pub violation: Option<Violation>,
}

/// States that a device had after a kind of loss.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kind {
    /// What was lost.
    pub loss: &'static str,
    /// States, equal ones counted once, in which the log device has lost this.
    pub log: u64,
    /// The same of the upstream.
    pub upstream: u64,
}

/// A law that was broken, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the workload: `weir crash --seed` with it begins with this.
    pub seed: u64,
    /// The law.
    pub law: &'static str,
    /// What is wrong.
    pub what: String,
    /// What the crash has lost; nothing if there was none.
    pub crash: Option<String>,
    /// The settings, in words.
    pub settings: String,
    /// How many requests the workload had, and has after all were left out without which it still happens.
    pub requests: (usize, usize),
    /// What happened, up to the crash.
    pub story: Vec<String>,
}

/// Runs workloads until there were enough states, or a law was broken. `progress` hears of the share that
/// is done.
pub fn run(settings: Settings, progress: &(dyn Fn(f64) + Sync)) -> Report {
    let mut report = Report {
        seed: settings.seed,
        workloads: 0,
        lives: 0,
        points: 0,
        states: 0,
        checked: 0,
        dirty: 0,
        rotten: 0,
        kinds: Vec::new(),
        events: Vec::new(),
        violation: None,
    };
    let mut events = Events::default();
    let mut images = BTreeSet::new();
    let mut kinds: BTreeMap<(Loss, Loss), u64> = BTreeMap::new();
    let mut next = settings.seed;
    while report.states < settings.states && report.violation.is_none() {
        let plans: Vec<Plan> =
            (next..next + AT_ONCE).map(|seed| Plan::new(seed).provoking(settings.bug)).collect();
        next += AT_ONCE;
        let ends = cores::run(&plans, &|_| (), |plan| play(plan, settings.bug, false));
        for (plan, end) in plans.iter().zip(ends) {
            report.workloads += 1;
            report.lives += end.lives;
            report.points += end.judge.points;
            report.checked += end.judge.checked;
            report.dirty += end.judge.dirty;
            report.rotten += end.judge.rotten;
            events += end.events;
            images.extend(end.judge.images);
            for (kind, (new, _)) in end.judge.kinds {
                *kinds.entry(kind).or_default() += new;
            }
            let bug = settings.bug;
            if end.fault.is_some() && is_its_own(plan, bug) {
                let short = if settings.told { shortened(plan, bug) } else { plan.clone() };
                report.violation = Some(explain(plan, &short, bug));
                break;
            }
        }
        report.states = images.len() as u64;
        progress((report.states as f64 / settings.states as f64).min(1.0));
    }
    report.events = events.told();
    report.kinds = Loss::ALL
        .map(|loss| {
            let sum = |is: &dyn Fn(&(Loss, Loss)) -> bool| {
                kinds.iter().filter(|(kind, _)| is(kind)).map(|(_, new)| new).sum()
            };
            let (log, upstream) = (sum(&|kind| kind.0 == loss), sum(&|kind| kind.1 == loss));
            Kind { loss: loss.name(), log, upstream }
        })
        .to_vec();
    report
}

/// Workloads that are run before it is seen whether there were enough.
const AT_ONCE: u64 = 8;

/// How a workload ended.
struct End {
    judge: Judge,
    events: Events,
    lives: u64,
    fault: Option<Fault>,
    story: Vec<String>,
}

/// Runs a workload.
fn play(plan: &Plan, bug: Option<Bug>, story: bool) -> End {
    let mut lasting = Lasting {
        store: Store::new(),
        history: History::new(plan.sectors),
        story: story.then(Vec::new),
        tags: 0,
        own: 0,
        void: false,
        logs: 0,
        journal: Journal::default(),
        lost: Lost::default(),
        other: Image::new(),
        events: Events::default(),
    };
    if plan.copies > 0 {
        lasting.other = shell::other_volume(&mut lasting, plan.sectors);
    }
    let (mut judge, mut lives) = (Judge::default(), 0);
    let fault = live(plan, bug, &mut lasting, &mut judge, &mut lives).err();
    lasting.events[Event::Rot] = judge.rotten;
    lasting.events[Event::Tear] = judge.torn;
    lasting.events[Event::Journal] += judge.records;
    let events = lasting.events;
    End { judge, events, lives, fault, story: lasting.story.unwrap_or_default() }
}

fn live(
    whole: &Plan,
    bug: Option<Bug>,
    lasting: &mut Lasting,
    judge: &mut Judge,
    lives: &mut u64,
) -> Result<(), Fault> {
    let mut rng = Rng::stream(whole.seed, "crash/ends");
    let upstream = vec![Content::default(); whole.sectors as usize];
    let mut target = Target::new(Device::new(upstream, whole.settings.upstream_flush));
    let mut log_device = new_log(whole, lasting);
    for (life, asks) in whole.lives.iter().enumerate() {
        let plan = &whole.of_life(life);
        *lives += 1;
        if plan.changes {
            lasting.events[Event::Settings] += u64::from(life > 0);
            let world = world(plan, bug, lasting, &log_device, &target);
            recovery::refuses_other_sizes(&world, log_device.visible())?;
            if life > 0 && bug == Some(Bug::MisfitMadeNew) && rng.below(4) == 0 {
                log_device = new_log(plan, lasting);
            }
        }
        if lasting.void {
            lasting.events.count(Event::VoidLog);
            // As the message to an operator says.
            log_device = new_log(plan, lasting);
        }
        if let Some(record) = lasting.journal.left(&mut rng) {
            // As a start does before anything else.
            let record = if bug == Some(Bug::AtomicRecordForgotten) { None } else { Some(record) };
            if let Some(record) = &record {
                lasting.events.count(Event::Journal);
                let id = target.device.begin(record.first, record.contents.iter().copied());
                target.device.end_durable(id);
            }
        }
        lasting.journal.restart(None);
        let lost = lasting.lost.left(&mut rng);
        lasting.lost.restart(lost.clone());
        let opened = recovery::open(
            &world(plan, bug, lasting, &log_device, &target),
            (log_device.visible(), &[]),
            &lost,
        )?;
        let upstream = match &target.rival {
            Some(rival) => rival.before.clone(),
            None => lasting.store.all_tokens(target.device.visible()),
        };
        let volume = opened.volume(&lasting.store, upstream)?;
        lasting.history.give_up(lost.iter().flat_map(lost::sectors_of));
        let found = lasting.history.restart(&volume)?;
        if log_device.is_settled() {
            lasting.history.settle();
        }
        if let Some(story) = &mut lasting.story {
            story.push(format!("life {}: recovery finds {found}", life + 1));
        }
        let recovered = opened.recovered;
        let mut shell =
            Shell::new((plan, bug), (lasting, judge), (life, recovered), (log_device, target));
        if life + 1 == whole.lives.len() {
            return shell.live(asks, None);
        }
        let steps = rng.below(asks.len() as u64 * STEPS_PER_REQUEST + 10);
        shell.live(asks, Some(steps))?;
        if rng.below(4) == 0 {
            shell.stop()?;
        }
        (log_device, target) = shell.into_devices();
        lasting.events.count(Event::Crash);
        if lasting.history.is_loose() && !lasting.void {
            // The upstream may have parts of writes that were not acknowledged, and lose them later. What hosts
            // were told has been held against every crash until here.
            return Ok(());
        }
        let (log_cut, upstream_cut) = (rng.below(3) > 0, rng.below(3) == 0);
        if upstream_cut {
            target.abort_all(&mut rng);
        }
        let (late, cached) = (target.late(), plan.settings.upstream_flush);
        let tears = plan.tears.then_some(&mut lasting.store);
        let ended = [
            cut(&mut log_device, log_cut, (true, &[]), tears, &mut rng),
            cut(&mut target.device, upstream_cut, (cached, &late), None, &mut rng),
        ];
        if upstream_cut && target.rival.is_none() {
            // What the log has behind a change in the debt would hide its loss.
            lasting.history.lost(&lasting.store.all_tokens(target.device.visible()));
        }
        if let Some(story) = &mut lasting.story {
            let [log_device, upstream_device] = ended;
            story.push(format!("crash: log device {log_device}, upstream {upstream_device}"));
        }
    }
    Ok(())
}

/// Ends the I/Os of a device but for late ones: by a power cut, which with `tears` tears sectors, or because the gateway is
/// gone.
fn cut(
    device: &mut Device,
    power: bool,
    (cached, late): (bool, &[Id]),
    tears: Option<&mut Store>,
    rng: &mut Rng,
) -> &'static str {
    if !power {
        device.abandon(late, rng);
        return "continues, with its cache";
    }
    let loss = Loss::ALL[rng.below(Loss::ALL.len() as u64) as usize];
    let mut left = loss::crash(device, loss, rng);
    if let Some(store) = tears {
        for tear in Tear::some(device, rng) {
            let torn = tear.content(store);
            left.image[tear.sector() as usize] = store.name(&torn);
        }
    }
    *device = Device::new(left.image, cached);
    left.loss.lost()
}

/// Steps of a life that ends in a crash: half of all lives end before their requests do.
const STEPS_PER_REQUEST: u64 = 12;

fn world<'a>(
    plan: &'a Plan,
    bug: Option<Bug>,
    lasting: &'a Lasting,
    log: &'a Device,
    target: &'a Target,
) -> World<'a> {
    World { plan, bug, lasting, log, target }
}

/// The device of a new log.
fn new_log(plan: &Plan, lasting: &mut Lasting) -> Device {
    (lasting.void, lasting.logs) = (false, lasting.logs + 1);
    let mut bytes = vec![0; plan.settings.capacity as usize];
    for (at, page) in format_new(&plan.settings, plan.name(), lasting.logs, 1) {
        bytes[at as usize..at as usize + page.len()].copy_from_slice(&page);
    }
    let store = &mut lasting.store;
    let log = bytes.as_chunks::<SECTOR>().0.iter().map(|sector| store.name(sector)).collect();
    Device::new(log, true)
}

/// Whether what a workload shows with a mistake is for the mistake: all is well without it.
fn is_its_own(plan: &Plan, bug: Option<Bug>) -> bool {
    bug.is_none() || play(plan, None, false).fault.is_none()
}

/// A workload that breaks the same law with fewer requests.
fn shortened(plan: &Plan, bug: Option<Bug>) -> Plan {
    let law = |plan: &Plan| play(plan, bug, false).fault.map(|fault| fault.broken.law());
    let first = law(plan);
    let breaks = |plan: &Plan| law(plan) == first && is_its_own(plan, bug);
    let mut short = plan.clone();
    // Whole lives, then ever fewer requests at once.
    let mut at = 0;
    while at < short.lives.len() && short.lives.len() > 1 {
        let mut less = short.clone();
        less.lives.remove(at);
        if breaks(&less) { short = less } else { at += 1 }
    }
    let mut tries = TRIES;
    let mut width = short.requests().div_ceil(2);
    while width > 0 {
        let mut from = 0;
        while from < short.requests() && tries > 0 {
            tries -= 1;
            let less = without(&short, from, width);
            if breaks(&less) { short = less } else { from += width }
        }
        width /= 2;
    }
    short
}

/// What is wrong with a workload that breaks a law, told by one that is as long or shorter.
fn explain(plan: &Plan, short: &Plan, bug: Option<Bug>) -> Violation {
    let end = play(short, bug, true);
    let fault = end.fault.expect("it has just broken a law");
    Violation {
        seed: plan.seed,
        law: fault.broken.law(),
        what: fault.broken.to_string(),
        crash: fault.state.as_ref().map(|state| state.told()),
        settings: short.told(),
        requests: (plan.requests(), short.requests()),
        story: end.story,
    }
}

/// A plan without some of its requests, counted over all lives.
fn without(plan: &Plan, from: usize, width: usize) -> Plan {
    let mut index = 0;
    let mut less = plan.clone();
    for life in &mut less.lives {
        life.retain(|_: &Ask| {
            index += 1;
            !(from + 1..=from + width).contains(&index)
        });
    }
    less
}

/// Workloads that are tried in order to tell a shorter story.
const TRIES: u32 = 400;

#[cfg(test)]
mod tests;
