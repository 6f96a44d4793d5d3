//! The whole of `weir reproduce control`: every run that a claim needs, on all cores.

use super::contestants::{self, INTERVALS, SCENARIOS};
use super::scenarios::{self, Scenario, scenario};
use super::score::{Course, TenantFigures};
use super::script::{Measured, Script, play};
use super::{ArrivalModel, Set, interval, two};
use crate::Settings;
use crate::contestant::Contestant;
use serde::Serialize;
use std::collections::BTreeMap;
use weir_flow::control::{Build, POLICIES};
use weir_flow::policy::Choice;
use weir_sim::cores;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The first seed.
    pub seed: u64,
    /// The nine intervals, by set and arrivals.
    pub tables: Vec<Table>,
    /// The stress scenarios.
    pub scenarios: Vec<ScenarioRow>,
    /// The second tenant alone, asking for 98 % of both contracts.
    pub idle: Vec<IdleRow>,
    /// How the third interval went, under TA3-85 and TA4: thousands of samples, for pictures only.
    #[serde(skip)]
    pub courses: Vec<(&'static str, Course)>,
}

/// Intervals by policy, for one set and one kind of arrivals.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// `A` or `B`.
    pub set: &'static str,
    /// `constant` or `poisson`.
    pub arrivals: &'static str,
    /// Runs per cell.
    pub seeds: u32,
    /// By policy, then by interval.
    pub rows: Vec<Row>,
}

/// One policy in one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: &'static str,
    /// 1 to 9.
    pub interval: u32,
    /// Both tenants.
    pub tenants: [TenantFigures; 2],
}

/// One policy in one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRow {
    /// 1 to 12.
    pub scenario: u32,
    /// What it is.
    pub title: &'static str,
    /// The policy.
    pub policy: &'static str,
    /// Share of satisfied requests of the worst tenant who keeps its contract.
    pub worst: f64,
    /// Requests per second of all tenants.
    pub completed_per_second: f64,
    /// The same in the scenario's second window, if it has one.
    pub later: Option<(f64, f64)>,
}

/// One policy with the second tenant alone.
#[derive(Clone, Debug, Serialize)]
pub struct IdleRow {
    /// `A` or `B`.
    pub set: &'static str,
    /// `constant` or `poisson`.
    pub arrivals: &'static str,
    /// The policy.
    pub policy: &'static str,
    /// The second tenant.
    pub tenant: TenantFigures,
}

/// Both models of arrivals with their names.
const ARRIVALS: [(ArrivalModel, &str); 2] =
    [(ArrivalModel::Constant, "constant"), (ArrivalModel::Poisson, "poisson")];

const SETS: [(Set, &str); 2] = [(Set::A, "A"), (Set::B, "B")];

/// The policies that are tried with the second tenant alone.
const IDLE: [&str; 3] = ["TA1", "TA2-85", "TA3-85"];

/// The policies whose course is shown.
const SHOWN: [&str; 2] = ["TA3-85", "TA4"];

/// Which cell a run belongs to. Runs of one cell differ in their seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Course(usize),
    Scenario(u32, usize),
    Interval { set: usize, arrivals: usize, policy: usize, interval: u32 },
    Idle { set: usize, arrivals: usize, policy: usize },
}

struct Job {
    cell: Cell,
    seed: u64,
}

impl Cell {
    /// How often it is run if nothing else is asked for: where a required claim depends on chance, as often as its mean
    /// needs.
    fn usual(self) -> u32 {
        match self {
            Self::Course(_) => 1,
            Self::Interval { policy, interval: 3 | 5..=8, .. }
                if is_claimed(INTERVALS[policy].label) =>
            {
                ENOUGH
            }
            Self::Scenario(number, policy)
                if scenarios::JUDGED.contains(&number) && is_claimed(SCENARIOS[policy].label) =>
            {
                ENOUGH
            }
            Self::Scenario(..) | Self::Interval { set: 0, arrivals: 1, .. } => 3,
            Self::Interval { .. } | Self::Idle { .. } => 2,
        }
    }

    /// The seeds of its runs.
    fn seeds(self, settings: Settings) -> impl Iterator<Item = u64> {
        let settings = match self {
            Self::Course(_) => Settings { seeds: None, ..settings },
            _ => settings,
        };
        settings.seeds(self.usual())
    }
}

/// Everything to run; what takes long comes first.
fn jobs(settings: Settings) -> Vec<Job> {
    let mut cells: Vec<_> = (0..SHOWN.len()).map(Cell::Course).collect();
    for number in (1..=scenarios::COUNT).rev() {
        cells.extend((0..SCENARIOS.len()).map(|policy| Cell::Scenario(number, policy)));
    }
    for set in 0..SETS.len() {
        for arrivals in 0..ARRIVALS.len() {
            for policy in 0..INTERVALS.len() {
                cells.extend((1..=9).map(|interval| Cell::Interval {
                    set,
                    arrivals,
                    policy,
                    interval,
                }));
            }
            let idle = |policy| Cell::Idle { set, arrivals, policy };
            cells.extend((0..IDLE.len()).map(idle));
        }
    }
    let runs = |cell: Cell| cell.seeds(settings).map(move |seed| Job { cell, seed });
    cells.into_iter().flat_map(runs).collect()
}

impl Job {
    fn script(&self) -> (Script, Choice<Build>) {
        let choice = |list: &[Contestant], index: usize| list[index].choice(POLICIES);
        match self.cell {
            Cell::Course(policy) => {
                let script = interval(Set::A, 3, ArrivalModel::Poisson, self.seed);
                (Script { course: true, ..script }, contestants::called(SHOWN[policy]))
            }
            Cell::Scenario(number, policy) => {
                let mut choice = choice(SCENARIOS, policy);
                if matches!(number, 9 | 10) && SCENARIOS[policy].label.ends_with("p95") {
                    // A window of some 20 requests or response times; the default is for disks.
                    choice.set("window", 5_000_000).expect("its shortest");
                }
                (scenario(number, self.seed).script, choice)
            }
            Cell::Interval { set, arrivals, policy, interval: number } => {
                let script = interval(SETS[set].0, number, ARRIVALS[arrivals].0, self.seed);
                (script, choice(INTERVALS, policy))
            }
            Cell::Idle { set, arrivals, policy } => {
                let set = SETS[set].0;
                let both: u32 = set.contracts().iter().map(|contract| contract.rows[0].iops).sum();
                let rates = [0.0, 0.98 * f64::from(both)];
                let script = two(set, 10, rates, ARRIVALS[arrivals].0, self.seed);
                (script, contestants::called(IDLE[policy]))
            }
        }
    }
}

/// Runs everything. `progress` hears of the share that is done, from any thread.
pub fn run(settings: Settings, progress: &(dyn Fn(f64) + Sync)) -> Study {
    let jobs = jobs(settings);
    let measured = cores::run(&jobs, progress, |job| {
        let (script, choice) = job.script();
        play(&script, &choice)
    });
    let runs = jobs.iter().map(|job| (job.cell, job.seed)).zip(measured).collect();
    Found { settings, runs }.study()
}

/// What every run measured.
struct Found {
    settings: Settings,
    runs: BTreeMap<(Cell, u64), Measured>,
}

impl Found {
    fn runs(&self, cell: Cell) -> impl Iterator<Item = &Measured> {
        cell.seeds(self.settings).map(move |seed| &self.runs[&(cell, seed)])
    }

    /// The means over the seeds, by tenant; `None` without such a window.
    fn mean(&self, cell: Cell, window: usize) -> Option<Vec<TenantFigures>> {
        let runs: Option<Vec<_>> = self.runs(cell).map(|run| run.windows.get(window)).collect();
        let runs = runs?;
        let tenant = |tenant| runs.iter().map(|run| run[tenant]).collect::<Vec<_>>();
        Some((0..runs[0].len()).map(|id| TenantFigures::mean(&tenant(id))).collect())
    }

    fn pair(&self, cell: Cell) -> [TenantFigures; 2] {
        let tenants = self.mean(cell, 0).expect("every run has a window");
        tenants.try_into().expect("a set has two tenants")
    }

    fn study(&self) -> Study {
        let mut tables = Vec::new();
        let mut idle = Vec::new();
        for (set, (_, set_name)) in SETS.into_iter().enumerate() {
            for (arrivals, (_, name)) in ARRIVALS.into_iter().enumerate() {
                tables.push(self.table(set, arrivals));
                idle.extend(IDLE.into_iter().enumerate().map(|(index, policy)| IdleRow {
                    set: set_name,
                    arrivals: name,
                    policy,
                    tenant: self.pair(Cell::Idle { set, arrivals, policy: index })[1],
                }));
            }
        }
        let scenarios: Vec<_> = (1..=scenarios::COUNT)
            .flat_map(|number| (0..SCENARIOS.len()).map(move |policy| (number, policy)))
            .map(|(number, policy)| self.scenario(number, policy))
            .collect();
        let course = |index| self.runs(Cell::Course(index)).next().map(|run| run.course.clone());
        let courses = SHOWN.into_iter().enumerate();
        let courses =
            courses.map(|(index, policy)| (policy, course(index).unwrap_or_default())).collect();
        Study { seed: self.settings.seed, tables, scenarios, idle, courses }
    }

    fn table(&self, set: usize, arrivals: usize) -> Table {
        let cell = |policy, interval| Cell::Interval { set, arrivals, policy, interval };
        let row = |policy: usize, interval| Row {
            policy: INTERVALS[policy].label,
            interval,
            tenants: self.pair(cell(policy, interval)),
        };
        let all = (0..INTERVALS.len()).flat_map(|policy| (1..=9).map(move |n| (policy, n)));
        Table {
            set: SETS[set].1,
            arrivals: ARRIVALS[arrivals].1,
            seeds: self.runs(cell(0, 1)).count() as u32,
            rows: all.map(|(policy, number)| row(policy, number)).collect(),
        }
    }

    fn scenario(&self, number: u32, policy: usize) -> ScenarioRow {
        let Scenario { conforming, title, .. } = scenario(number, self.settings.seed);
        let judged = |window| {
            let tenants = self.mean(Cell::Scenario(number, policy), window)?;
            let shares = tenants[conforming.clone()].iter().map(|tenant| tenant.satisfied);
            let worst = shares.fold(1.0, f64::min);
            Some((worst, tenants.iter().map(|tenant| tenant.completed_per_second).sum()))
        };
        let (worst, completed_per_second) = judged(0).expect("every run has a window");
        let policy = SCENARIOS[policy].label;
        ScenarioRow {
            scenario: number,
            title,
            policy,
            worst,
            completed_per_second,
            later: judged(1),
        }
    }
}

/// Whether a required claim depends on chance in the runs of this contestant.
fn is_claimed(label: &str) -> bool {
    label.starts_with("TA") && !label.ends_with("p95")
}

/// Runs of a cell whose mean decides a required claim.
const ENOUGH: u32 = 10;
