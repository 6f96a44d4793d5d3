//! What a recorded run would have done under another policy, contract, cache or device.
//!
//! The recording is replayed once as it is; what went in and out then says which requests waited for which
//! (`arrivals`), how long each I/O took, and, if the schedule changes, how a device behaves that gives such times
//! (`fit`). Before the question is asked, the same machinery must reproduce the recorded figures under the recorded
//! configuration: first with everything recorded, then with the model. What does not pass is refused, with the reason.

mod answer;
mod arrivals;
mod device;
mod evidence;
mod fit;
mod question;
mod scores;
mod world;

pub use answer::{Answer, Check, Compared, Objectives};
pub use arrivals::{Arrivals, Class, Issuer};
pub use fit::{Fitted, Grade};
pub use question::{Device, Question, Rules};
pub use scores::Figures;

use crate::cores;
use crate::replay::{Replay, ReplayError, Verdict, replay_before};
use arrivals::{Schedule, limited};
use device::{Source, Support, needed};
use evidence::{Evidence, Times};
use fit::{Model, fit};
use scores::{Row, Scores};
use std::collections::BTreeMap;
use std::io::Read;
use weir_flow::cache;
use weir_flow::pipeline::Config;
use weir_flow::policy::Choice;
use world::{Run, run};

/// Requests below which a row has no median.
const FEWEST_P50: u64 = 1_000;

/// Requests below which a row has no 99th percentile.
pub const FEWEST_P99: u64 = 10_000;

/// The share by which percentiles may be off with recorded times.
const EXACT: f64 = 0.01;

/// The share by which they may be off with a model.
const MODELLED: f64 = 0.05;

/// Asks a recording.
pub fn ask(
    source: impl Read,
    question: &Question,
    progress: impl FnMut(u64),
) -> Result<Answer, ReplayError> {
    let begin = |config: &Config| (Scores::new(&config.promises), Evidence::new(config));
    let (replay, was, evidence, _) = replay_before(source, begin, progress)?;
    let times = Times::new(&evidence.ios);
    let mut asking = Asking { question, evidence: &evidence, times: &times, was };
    Ok(asking.answer(replay))
}

/// A question and what there is to answer it from.
struct Asking<'a> {
    question: &'a Question,
    evidence: &'a Evidence,
    times: &'a Times<'a>,
    was: Scores,
}

/// Runs of one configuration, with the median, lowest and highest figures of each row.
struct Runs {
    figures: BTreeMap<Row, (Figures, Figures, Figures)>,
    first: Run,
    path_lost: bool,
}

impl Runs {
    fn new(runs: Vec<Run>) -> Self {
        let mut all: BTreeMap<Row, Vec<Figures>> = BTreeMap::new();
        for run in &runs {
            for (row, figures) in run.scores.figures() {
                all.entry(row).or_default().push(figures);
            }
        }
        let figures = all.into_iter().map(|(row, all)| (row, spread(&all))).collect();
        let path_lost = runs.iter().any(|run| run.path_lost);
        let first = runs.into_iter().next().expect("there is a run");
        Self { figures, first, path_lost }
    }
}

impl Asking<'_> {
    fn answer(&mut self, recorded: Replay) -> Answer {
        let names = self.question.rules.as_ref();
        let mut answer = Answer {
            recorded,
            refused: Vec::new(),
            device: "recorded",
            fits: Vec::new(),
            issuers: Vec::new(),
            requests: [0; 3],
            checks: Vec::new(),
            beyond: 0.0,
            host_wait_ns: 0.0,
            rows: Vec::new(),
            objectives: Vec::new(),
            tenants: names.map(|rules| rules.tenants.clone()).unwrap_or_default(),
            volumes: names.map_or_else(Vec::new, |rules| {
                rules.volumes.iter().map(|(name, _)| name.clone()).collect()
            }),
        };
        answer.refused = self.refusals(&answer.recorded);
        if !answer.refused.is_empty() {
            return answer;
        }
        let schedule = Schedule::new(&self.evidence.arrivals, self.question.arrivals);
        answer.requests = schedule.shares();
        answer.issuers.clone_from(&schedule.issuers);
        let config = match self.config() {
            Ok(config) => config,
            Err(reason) => {
                answer.refused.push(reason);
                return answer;
            }
        };
        if !self.machinery(&mut answer) {
            return answer;
        }
        if let Device::Auto | Device::Recorded = self.question.device {
            let runs = Runs::new(vec![self.run(&config, &schedule, Source::Recorded, 1)]);
            let Support { begun, found, alike, .. } = runs.first.support;
            let share = |part: u64| part as f64 / begun.max(1) as f64;
            if share(found) >= 0.99 && share(alike) >= 0.95 {
                self.conclude(&mut answer, &schedule, runs, &BTreeMap::new());
                return answer;
            }
            if self.question.device == Device::Recorded {
                answer.refused.push(format!(
                    "recorded times do not fit: {:.1} % of the I/Os were recorded (99 % are needed), and {:.1} % \
                     begin at about the recorded depth (95 % are needed); use `--device fitted`",
                    share(found) * 100.0,
                    share(alike) * 100.0
                ));
                return answer;
            }
        }
        self.modelled(&mut answer, &config, &schedule);
        answer
    }

    /// Answers with a model for the devices.
    fn modelled(&self, answer: &mut Answer, config: &Config, schedule: &Schedule) {
        if let Device::Named(model) = self.question.device {
            answer.device = "named";
            let needed = needed(config, model);
            if let Some(capacity) = model.capacity()
                && needed > capacity
            {
                answer.refused.push(format!(
                    "the device has {capacity} bytes and the volumes need {needed}: name a larger one"
                ));
                return;
            }
            let seeds: Vec<u64> = (1..=u64::from(self.question.seeds.max(1))).collect();
            let runs = cores::run(&seeds, &|_| (), |&seed| {
                self.run(config, schedule, Source::Named(model), seed)
            });
            self.conclude(answer, schedule, Runs::new(runs), &BTreeMap::new());
            return;
        }
        answer.device = "fitted";
        let models = self.fit();
        answer.fits = models.iter().flatten().map(|model| model.fitted.clone()).collect();
        let poor = answer.fits.iter().find(|fitted| fitted.grade == Grade::Poor);
        if let Some(Fitted { backend, path, error, .. }) = poor {
            answer.refused.push(format!(
                "the model of backend {backend}, path {path} is poor (error {:.0} %): record at several depths, or \
                 name a device",
                error * 100.0
            ));
            return;
        }
        if answer.fits.is_empty() {
            let reason =
                "no device has 200 I/Os to fit a model from: record for longer, or name a device";
            answer.refused.push(reason.to_owned());
            return;
        }
        let ends = self.ends(models);
        let all = |config: &Config, schedule: &Schedule| {
            let seeds = u64::from(self.question.seeds.max(1));
            let jobs: Vec<(usize, u64)> =
                (0..ends.len()).flat_map(|end| (1..=seeds).map(move |seed| (end, seed))).collect();
            let runs = cores::run(&jobs, &|_| (), |&(end, seed)| {
                self.run(config, schedule, Source::Fitted(&ends[end]), seed)
            });
            Runs::new(runs)
        };
        let check = all(&self.evidence.config, schedule);
        let failed =
            self.check(answer, "the model, under the recorded configuration", &check, MODELLED);
        self.conclude(answer, schedule, all(config, schedule), &failed);
    }

    /// Why the recording cannot answer the question at all.
    fn refusals(&self, recorded: &Replay) -> Vec<String> {
        let mut refused = Vec::new();
        match recorded.verdict() {
            Verdict::Same => {}
            Verdict::Different => refused.push(
                "the recording does not replay to its own digest: use the release that made it".to_owned(),
            ),
            Verdict::Cut => refused.push(
                "the recording has no end, because the gateway was killed: record with `weir stop` at the end".to_owned(),
            ),
        }
        let logs = &self.evidence.config.cache.logs;
        if logs.iter().any(Option::is_some) {
            let reason = "a volume has a log: a recording does not hold how long a log device takes with other writes";
            refused.push(reason.to_owned());
        }
        for &(at, what) in &self.evidence.trouble {
            let seconds = at.as_nanos() as f64 / 1e9;
            refused
                .push(format!("{what} at {seconds:.3} s, and its cause is not in the recording"));
        }
        let question = self.question;
        if let Some(at) = self.evidence.changed
            && (question.rules.is_some() || question.control.is_some())
        {
            let seconds = at.as_nanos() as f64 / 1e9;
            refused.push(format!(
                "contracts, weights or the control policy were changed at {seconds:.3} s: record without a reload"
            ));
        }
        if (self.evidence.arrivals.len() as u64) < FEWEST_P50 {
            refused.push(format!(
                "it has {} requests, and a median needs {FEWEST_P50}: record for longer",
                self.evidence.arrivals.len()
            ));
        }
        refused
    }

    /// The configuration that is asked for.
    fn config(&self) -> Result<Config, String> {
        let mut config = self.evidence.config.clone();
        let question = self.question;
        if let Some(rules) = &question.rules {
            if rules.volumes.len() != config.volumes.len() {
                return Err(format!(
                    "the file has {} volumes and the recording {}: they must be the same, in the same order",
                    rules.volumes.len(),
                    config.volumes.len()
                ));
            }
            for (volume, &(_, cap)) in config.volumes.iter_mut().zip(&rules.volumes) {
                volume.cap = cap;
            }
            let owners = std::mem::take(&mut config.cache.owners);
            let logs = std::mem::take(&mut config.cache.logs);
            config.promises = rules.promises.clone();
            config.shares = rules.shares.clone();
            config.limits = rules.limits;
            config.paths = rules.paths;
            config.cache = cache::Settings { owners, logs, ..rules.cache.clone() };
            config.policies = rules.policies.clone();
        }
        let policies = &mut config.policies;
        replace(&mut policies.cache, question.cache.as_ref());
        replace(&mut policies.prefetch, question.prefetch.as_ref());
        replace(&mut policies.control, question.control.as_ref());
        replace(&mut policies.dispatch, question.dispatch.as_ref());
        replace(&mut policies.path, question.path.as_ref());
        replace(&mut policies.transfer, question.transfer.as_ref());
        config.cache.size = question.cache_size.unwrap_or(config.cache.size);
        config
            .validate()
            .map_err(|reason| format!("the configuration of the question: {reason}"))?;
        Ok(config)
    }

    fn run(&self, config: &Config, schedule: &Schedule, source: Source<'_>, seed: u64) -> Run {
        let depth = self.question.depth;
        run(config, self.evidence, self.times, schedule, source, depth, seed)
    }

    /// Whether recorded arrivals, times and links give the recorded figures again.
    fn machinery(&self, answer: &mut Answer) -> bool {
        let open = Schedule::new(&self.evidence.arrivals, Arrivals::Open);
        let config = &self.evidence.config;
        let same = run(config, self.evidence, self.times, &open, Source::Recorded, None, 1);
        let what = "recorded configuration, devices and links";
        let failed = self.check(answer, what, &Runs::new(vec![same]), EXACT);
        if !failed.is_empty() {
            let reason =
                "the recorded figures do not come again from recorded times: see the first check";
            answer.refused.push(reason.to_owned());
        }
        failed.is_empty()
    }

    /// Compares percentiles with the recorded ones, and adds a check. Returns the rows that fail, with the reason.
    fn check(
        &self,
        answer: &mut Answer,
        what: &'static str,
        runs: &Runs,
        limit: f64,
    ) -> BTreeMap<Row, String> {
        let mut check = Check { what, p50: 0.0, p99: 0.0, passed: true };
        let mut failed = BTreeMap::new();
        for (row, was) in self.was.figures() {
            let Some((would, low, high)) = runs.figures.get(&row) else { continue };
            let p50 = Deviation::new("p50", was.p50_ns, would.p50_ns, (low.p50_ns, high.p50_ns));
            let p99 = Deviation::new("p99", was.p99_ns, would.p99_ns, (low.p99_ns, high.p99_ns));
            for (deviation, worst, fewest) in
                [(p50, &mut check.p50, FEWEST_P50), (p99, &mut check.p99, FEWEST_P99)]
            {
                if was.requests < fewest {
                    continue;
                }
                if deviation.share.abs() > worst.abs() {
                    *worst = deviation.share;
                }
                if deviation.share.abs() > limit && !deviation.within {
                    failed.entry(row).or_insert(deviation.reason);
                }
            }
        }
        check.passed = failed.is_empty();
        answer.checks.push(check);
        failed
    }

    /// A model of each station.
    fn fit(&self) -> Vec<Option<Model>> {
        let mut places = Vec::new();
        for (backend, config) in self.evidence.config.backends.iter().enumerate() {
            let first = self.evidence.stations[backend];
            let paths = config.groups.len() as u32;
            places.extend((0..paths).map(|path| (first + path, backend, path)));
        }
        cores::run(&places, &|_| (), |&(station, backend, path)| {
            fit(&self.evidence.ios, station, backend, path)
        })
    }

    /// The models with the fewest and the most servers that agree with the recording; one if there is only one.
    fn ends(&self, models: Vec<Option<Model>>) -> Vec<Vec<Option<Model>>> {
        let certain = |model: &Model| model.fitted.consistent.0 == model.fitted.consistent.1;
        if models.iter().flatten().all(certain) {
            return vec![models];
        }
        let end = |pick: fn((u32, u32)) -> u32| {
            let other = |(station, model): (u32, &Option<Model>)| {
                let model = model.as_ref()?;
                let servers = pick(model.fitted.consistent);
                Some(model.with_servers(&self.evidence.ios, station, servers))
            };
            (0..).zip(&models).map(other).collect()
        };
        vec![end(|(fewest, _)| fewest), end(|(_, most)| most)]
    }

    /// The rows of an answer.
    fn conclude(
        &self,
        answer: &mut Answer,
        schedule: &Schedule,
        mut runs: Runs,
        failed: &BTreeMap<Row, String>,
    ) {
        if runs.path_lost {
            let reason = "a path would be given up: how long it is gone is not in the recording";
            answer.refused.push(reason.to_owned());
            return;
        }
        let Support { begun, unseen, .. } = runs.first.support;
        answer.beyond = unseen as f64 / begun.max(1) as f64;
        let requests = self.evidence.arrivals.len().max(1);
        answer.host_wait_ns = runs.first.host_wait.as_nanos() as f64 / requests as f64;
        let too_deep = answer.device == "fitted" && answer.beyond > 0.2;
        let limited = limited(&schedule.issuers);
        for (row, was) in self.was.figures() {
            let (tenant, volume, kind) = row;
            let reason = if was.requests < FEWEST_P50 {
                Some(format!("{} requests are too few", was.requests))
            } else if too_deep {
                Some(format!(
                    "{:.0} % of the I/Os would be at depths that were not recorded: record at that depth, or name a device",
                    answer.beyond * 100.0
                ))
            } else {
                failed.get(&row).cloned()
            };
            let found = runs.figures.get(&row).filter(|_| reason.is_none());
            answer.rows.push(Compared {
                tenant,
                volume,
                op: ["read", "write", "other"][usize::from(kind)],
                was,
                would: found.map(|&(median, ..)| median),
                range: found.map(|&(_, low, high)| (low, high)),
                at_least: was.refused > 0 || limited.contains(&volume),
                reason,
            });
        }
        if answer.rows.iter().all(|row| row.would.is_none()) {
            answer.refused.push("no row of the table can be answered: see its reasons".to_owned());
        }
        let mut was = self.was.clone().targets();
        let would = runs.first.scores.targets();
        for (tenant, would) in would {
            let was = was.remove(&tenant).unwrap_or_default();
            answer.objectives.push(Objectives { tenant, was, would });
        }
    }
}

/// How far a figure is from the recorded one.
struct Deviation {
    share: f64,
    /// The recorded figure is within those of the runs.
    within: bool,
    reason: String,
}

impl Deviation {
    fn new(name: &str, was: u64, would: u64, (low, high): (u64, u64)) -> Self {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        Self {
            share: would as f64 / was.max(1) as f64 - 1.0,
            within: (low..=high).contains(&was),
            reason: format!(
                "the recorded {name} is {:.3} ms, and the recorded configuration gives {:.3} ms here",
                millis(was),
                millis(would)
            ),
        }
    }
}

fn replace<B: Clone>(choice: &mut Choice<B>, asked: Option<&Choice<B>>) {
    if let Some(asked) = asked {
        *choice = asked.clone();
    }
}

/// The median, lowest and highest of each figure.
fn spread(all: &[Figures]) -> (Figures, Figures, Figures) {
    let pick = |at: fn(usize) -> usize| {
        let numbers = |of: fn(&Figures) -> u64| {
            let mut numbers: Vec<u64> = all.iter().map(of).collect();
            numbers.sort_unstable();
            numbers[at(numbers.len())]
        };
        let floats = |of: fn(&Figures) -> f64| {
            let mut floats: Vec<f64> = all.iter().map(of).collect();
            floats.sort_by(f64::total_cmp);
            floats[at(floats.len())]
        };
        Figures {
            requests: numbers(|figures| figures.requests),
            refused: numbers(|figures| figures.refused),
            iops: floats(|figures| figures.iops),
            mean_ns: floats(|figures| figures.mean_ns),
            p50_ns: numbers(|figures| figures.p50_ns),
            p99_ns: numbers(|figures| figures.p99_ns),
        }
    };
    (pick(|count| count / 2), pick(|_| 0), pick(|count| count - 1))
}

#[cfg(test)]
mod tests;
