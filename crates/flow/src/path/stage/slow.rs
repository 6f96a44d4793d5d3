//! Ejects slow paths and lets them return: a path that is an order of magnitude slower than the best of its group is
//! ejected, probed with small reads, and comes back.
//!
//! Long responses alone may be a slow path or a long queue. So a path with such responses gets one
//! I/O at a time for a moment: then they are one thing, or the other.
use super::pace::{Factor, ONE, SAMPLES};
use super::path_state::{Finding, Health, PathState, Probing, Suspicion};
use super::{BackendPaths, Core, Io};
use crate::clock::{Duration, Instant};
use crate::path::{Settings, Why};
use crate::request::{Op, RequestKey};

impl BackendPaths {
    /// Learns from an I/O that was answered; true if that changes what the path is good for.
    pub(super) fn learn(
        &mut self,
        settings: &Settings,
        now: Instant,
        path: usize,
        io: &Io,
    ) -> bool {
        let path_state = &mut self.paths[path];
        let service = path_state.pace.service(now, io.since);
        let response = now.since(io.since);
        let known = path_state.pace.is_known();
        let better = self.best(now, path);
        // Only the better paths say what an I/O costs, or a slow one would be its own measure.
        let pace = |path: usize| &self.paths[path].pace;
        let good = better.is_none_or(|best| {
            !known || pace(path).recent_service() <= pace(best).fair_service() * 2
        });
        if good && !io.probe {
            self.shape.learn(io.context.bytes, service);
        }
        let cost = self.shape.cost(io.context.bytes);
        self.paths[path].pace.learn(cost, service, response);
        if io.probe {
            let factor = |cost| response.as_nanos().saturating_mul(ONE) / cost;
            let half = u64::from(settings.slow_factor / 2);
            let usual = better.map(|best| self.paths[best].pace.usual_response());
            let Probing { shape, slowness, .. } = self.paths[path].probing;
            let finding = if usual.is_some_and(|usual| factor(cost) > usual * half) {
                Finding::Slow
            } else if factor(shape.cost(io.context.bytes)) * half <= slowness {
                Finding::Well
            } else {
                Finding::Unclear
            };
            return self.probed(settings, now, path, finding);
        }
        let Some(best) = better.filter(|_| self.paths[path].usable) else { return false };
        let best = self.paths[best].pace;
        let path_state = &mut self.paths[path];
        if path_state.pace.is_slower(&best, settings.slow_factor) {
            self.eject(settings, now, path, self.paths[path].pace.recent_service());
            return true;
        }
        match &mut path_state.suspicion {
            Suspicion::Narrow { since, alone } => {
                *alone += usize::from(io.since >= *since);
                if *alone < SAMPLES {
                    return false;
                }
                path_state.suspicion = Suspicion::None { until: now + ACQUITTED };
            }
            Suspicion::None { until }
                if *until <= now && path_state.pace.is_suspect(&best, settings.slow_factor) =>
            {
                path_state.suspicion = Suspicion::Narrow { since: now, alone: 0 };
            }
            Suspicion::None { .. } => return false,
        }
        true
    }

    /// The best other path of the same group that is in use and has ended something of late.
    fn best(&self, now: Instant, path: usize) -> Option<usize> {
        let path_state = &self.paths[path];
        let fit = |other: &&(usize, &PathState)| {
            other.0 != path
                && other.1.group == path_state.group
                && other.1.usable
                && !other.1.is_doubted()
                && other.1.pace.is_known()
                && other.1.pace.ended() + RECENT >= now
        };
        let paths = self.paths.iter().enumerate();
        let best = paths.filter(|other| fit(&other)).min_by_key(|one| one.1.pace.fair_service());
        best.map(|(index, _)| index)
    }

    /// Takes a path out of use that is so slow.
    pub(super) fn eject(
        &mut self,
        settings: &Settings,
        now: Instant,
        path: usize,
        slowness: Factor,
    ) {
        let path_state = &mut self.paths[path];
        if matches!(path_state.health, Health::Returning { .. }) {
            // It came back too soon.
            path_state.probing.pause = longer(settings, path_state.probing.pause);
        }
        path_state.health = Health::Ejected;
        path_state.probing.good = 0;
        path_state.probing.next = now + path_state.probing.pause;
        path_state.probing.since = now;
        path_state.probing.shape = self.shape;
        path_state.probing.slowness = slowness;
        self.ejected += 1;
    }

    /// The ejected path that this request is to probe, if it is fit for that and one is due.
    pub(super) fn probe(
        &mut self,
        core: &mut Core,
        now: Instant,
        key: RequestKey,
    ) -> Option<usize> {
        let io = &mut core.ios[key];
        if self.ejected == 0
            || io.context.op != Op::Read
            || io.context.bytes > PROBE_BYTES
            || io.retries > 0
        {
            return None;
        }
        let due = |path_state: &PathState| {
            path_state.health == Health::Ejected
                && path_state.is_reachable()
                && path_state.probing.out.is_none()
                && path_state.probing.next <= now
        };
        let path = self.paths.iter().position(due)?;
        io.probe = true;
        self.paths[path].probing.out = Some(key);
        Some(path)
    }

    /// A probe has ended; true if the path comes back.
    pub(super) fn probed(
        &mut self,
        settings: &Settings,
        now: Instant,
        path: usize,
        finding: Finding,
    ) -> bool {
        let path_state = &mut self.paths[path];
        if path_state.health != Health::Ejected {
            return false;
        }
        let probing = &mut path_state.probing;
        if finding == Finding::Well {
            probing.good += 1;
            probing.next = now + settings.probe_interval;
            if probing.good < settings.probes_to_return {
                return false;
            }
            self.bring_back(path, Why::Probed);
            return true;
        }
        probing.good = 0;
        probing.pause = longer(settings, probing.pause);
        probing.next = now + probing.pause;
        let tried = finding == Finding::Unclear && probing.since + TRIAL <= now;
        if tried {
            self.bring_back(path, Why::Trial);
        }
        tried
    }

    fn bring_back(&mut self, path: usize, why: Why) {
        let path_state = &mut self.paths[path];
        (path_state.health, path_state.back) = (Health::Good, why);
        self.ejected -= 1;
    }

    /// When an ejected path is tried without a probe, or its probe is overdue.
    pub(super) fn trial(&self, core: &Core, path: usize) -> Instant {
        let probing = &self.paths[path].probing;
        match probing.out {
            None => probing.next + TRIAL,
            Some(key) => {
                let io = &core.ios[key];
                io.since + self.overdue_after(&core.settings, path, io.context.bytes)
            }
        }
    }

    /// Sends an overdue probe to another path, or tries a path that could not be probed.
    pub(super) fn overdue_probe(&mut self, core: &mut Core, now: Instant, path: usize) {
        let path_state = &self.paths[path];
        if path_state.health != Health::Ejected || self.trial(core, path) > now {
            return;
        }
        match path_state.probing.out {
            Some(key) => self.abandon_read(core, now, key),
            None => self.bring_back(path, Why::Trial),
        }
    }
}

/// The next longer time between probes.
fn longer(settings: &Settings, pause: Duration) -> Duration {
    (pause * 2).min(settings.probe_interval_max)
}

/// The largest read that is sent as a probe.
const PROBE_BYTES: u64 = 64 << 10;

/// A path that could not be probed for so long, as nobody reads, or whose probes were unclear, is tried.
const TRIAL: Duration = Duration::from_secs(30);

/// How long a path is above suspicion that was fast with one I/O at a time.
const ACQUITTED: Duration = Duration::from_secs(1);

/// A path whose last I/O ended longer ago says nothing about others.
const RECENT: Duration = Duration::from_secs(1);
