//! The first sessions and claims, before the gateway serves, and the last flush and logout, when it stops.

use super::Upstreams;
use super::network::{EventSource, Network};
use super::ownership::{Denied, Owner, Unowned};
use super::remembered::RememberedUnit;
use super::volume_on;
use crate::config::Config;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;

/// An upstream to which no path works.
#[derive(Clone, Debug, Error)]
pub struct Unreachable {
    /// Its name.
    pub upstream: String,
    /// How long the gateway has tried.
    pub within: Duration,
    /// Its paths.
    pub paths: Vec<UnreachablePath>,
}

/// A path that does not work.
#[derive(Clone, Debug)]
pub struct UnreachablePath {
    /// Its portal.
    pub portal: SocketAddr,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, within, paths } = self;
        write!(f, "no path to upstream `{upstream}` works within {within}")?;
        let mut number = 0;
        paths.iter().try_for_each(|UnreachablePath { portal, reason }| {
            number += 1;
            write!(f, "\n  path {} ({portal}): {reason}", number - 1)
        })
    }
}

/// Why upstreams cannot be used.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    Unowned(#[from] Unowned),
    /// The events of sockets cannot be waited for.
    #[error("cannot wait for events: {0}")]
    Wait(#[from] io::Error),
}

impl<N: Network> Upstreams<N> {
    /// Connects all paths at once, and returns when a path of each upstream works. The other paths are tried on.
    /// `remembered`, by upstream: units that may be away. The gateway starts without one that does not answer in time.
    pub(crate) fn connect(
        &mut self,
        events: &mut impl EventSource,
        remembered: Vec<Option<RememberedUnit>>,
    ) -> Result<(), StartError> {
        for (upstream, unit) in self.all.iter_mut().zip(remembered) {
            if let Some(unit) = unit {
                upstream.unit.remember(unit);
            }
        }
        self.context.now = events.now();
        let began = self.context.now;
        self.tick();
        let mut usable = None;
        loop {
            let by = |index: &usize| began + self.all[*index].paths.config.connect_timeout;
            let waits = |index: &usize| {
                let away = !self.all[*index].is_reachable();
                away && !(self.all[*index].unit.is_remembered() && by(index) <= self.context.now)
            };
            let waiting: Vec<usize> = (0..self.all.len()).filter(waits).collect();
            let until = if let Some(until) = waiting.iter().map(by).min() {
                if until <= self.context.now {
                    return Err(self.late(waiting.into_iter().find(|index| by(index) == until)));
                }
                until
            } else {
                // Hosts find more paths, and the log has fewer failures, if paths that connect now may finish.
                let all = *usable.get_or_insert(self.context.now) + OTHERS_WITHIN;
                let starting =
                    self.all.iter().any(|one| one.paths.iter().any(super::Path::is_starting));
                if all <= self.context.now || !starting {
                    break;
                }
                all
            };
            self.turn(events, Some(until))?;
        }
        for upstream in &mut self.all {
            if !upstream.is_reachable() {
                upstream.start_without();
            }
            upstream.paths.report_missing(&mut self.context);
        }
        Ok(())
    }

    /// Becomes the owner of every unit that has one, or says why not. Writes nothing to any unit. A unit that is away
    /// and remembered is claimed when it answers.
    pub(crate) fn claim(
        &mut self,
        events: &mut impl EventSource,
        config: &Config,
        owners: Vec<Option<Owner>>,
    ) -> Result<(), StartError> {
        self.context.now = events.now();
        let began = self.context.now;
        for (upstream, owner) in self.all.iter_mut().zip(owners) {
            if let Some(owner) = owner {
                upstream.claim(&mut self.context, owner);
            }
        }
        let mut owned = None;
        loop {
            let by = |index: &usize| began + self.all[*index].paths.config.connect_timeout;
            let waits = |index: &usize| {
                let unit = &self.all[*index].unit;
                let late = unit.is_remembered() && by(index) <= self.context.now;
                let claims = |owner: &Owner| !owner.holds && !owner.is_away();
                unit.owner.as_ref().is_some_and(claims) && !unit.is_absent() && !late
            };
            let waiting: Vec<usize> = (0..self.all.len()).filter(waits).collect();
            for index in 0..self.all.len() {
                if let Some(why) = self.owner(index).and_then(|owner| owner.denied.clone()) {
                    let volume = volume_on(config, index);
                    let volume = volume.map(|volume| config.volumes[volume].name.clone());
                    let upstream = self.all[index].paths.config.name.clone();
                    let volume = volume.unwrap_or_default();
                    return Err(Unowned { volume, upstream, why }.into());
                }
            }
            let until = if let Some(until) = waiting.iter().map(by).min() {
                if until <= self.context.now {
                    return Err(self.late(waiting.into_iter().find(|index| by(index) == until)));
                }
                until
            } else {
                // The other paths claim at the same time.
                let all = *owned.get_or_insert(self.context.now) + OTHERS_WITHIN;
                let mut claimed = self.all.iter().filter(|one| one.unit.owner.is_some());
                let starting = claimed.any(|one| one.paths.iter().any(super::Path::is_starting));
                if all <= self.context.now || !starting {
                    break;
                }
                all
            };
            self.turn(events, Some(until))?;
        }
        for upstream in &mut self.all {
            if let Some(owner) = &mut upstream.unit.owner {
                owner.serve(self.context.now);
            }
        }
        Ok(())
    }

    /// Refuses units that are not those that dirty logs have data for. `remembered`: by upstream; `dirty`: by volume.
    pub(crate) fn check_identity(
        &self,
        config: &Config,
        remembered: &[Option<RememberedUnit>],
        dirty: impl Fn(usize) -> bool,
    ) -> Result<(), StartError> {
        for (index, (upstream, unit)) in self.all.iter().zip(remembered).enumerate() {
            if let (Some(volume), Some(unit)) = (volume_on(config, index), unit)
                && dirty(volume)
                && let Some(difference) = upstream.unit.differs(unit)
            {
                let (volume, upstream) =
                    (config.volumes[volume].name.clone(), config.upstreams[index].name.clone());
                return Err(Unowned { volume, upstream, why: Denied::Different(difference) }.into());
            }
        }
        Ok(())
    }

    fn owner(&self, index: usize) -> Option<&Owner> {
        self.all[index].unit.owner.as_ref()
    }

    /// The time of this upstream is over.
    fn late(&self, index: Option<usize>) -> StartError {
        self.all[index.expect("one of them is late")].unreachable().into()
    }

    /// Waits for events, at most until then, and handles them.
    fn turn(
        &mut self,
        source: &mut impl EventSource,
        until: Option<Instant>,
    ) -> Result<(), io::Error> {
        self.write_all();
        let wake = [until, self.next()].into_iter().flatten().min();
        let timeout = match wake {
            _ if self.has_more() => Some(Duration::ZERO),
            // The kernel waits for whole milliseconds; a shorter time would return at once, again and again.
            wake => wake.map(|at| at.saturating_since(source.now()).max(TICK)),
        };
        let mut events = Vec::new();
        source.wait(timeout, &mut events)?;
        self.context.now = source.now();
        for (number, event) in events {
            self.event(number, event);
        }
        self.read_on();
        self.tick();
        Ok(())
    }

    /// Makes durable what was written, as far as the units do not do so by themselves, and logs out. The indexes of
    /// the upstreams for which this failed, and why. `clean`: the upstreams of which no data is only in a log; their
    /// reservations are given up.
    pub(crate) fn close(
        &mut self,
        events: &mut impl EventSource,
        within: Duration,
        clean: &[bool],
    ) -> Vec<(usize, IoError)> {
        self.context.now = events.now();
        let until = self.context.now + within.max(FLUSH_MIN);
        for upstream in &mut self.all {
            upstream.prepare_shutdown();
        }
        self.turn_while(events, until, |_, upstream, context| upstream.flush(context));
        let clean = |index: usize| clean.get(index).copied().unwrap_or(false);
        self.turn_while(events, until, |index, upstream, context| {
            upstream.release(context, clean(index))
        });
        self.context.closing = true;
        for upstream in &mut self.all {
            upstream.log_out(&mut self.context);
        }
        let until = self.context.now + LOGOUT_TIMEOUT;
        self.turn_while(events, until, |_, upstream, _| upstream.has_session());
        let failed = |(index, upstream): (usize, &super::Upstream<N>)| {
            upstream.flushed().err().map(|error| (index, error))
        };
        self.all.iter().enumerate().filter_map(failed).collect()
    }

    /// Handles events while an upstream has something to do, at most until then.
    fn turn_while(
        &mut self,
        events: &mut impl EventSource,
        until: Instant,
        mut busy: impl FnMut(usize, &mut super::Upstream<N>, &mut super::Context<N>) -> bool,
    ) {
        loop {
            let mut any = false;
            for (index, upstream) in self.all.iter_mut().enumerate() {
                any |= busy(index, upstream, &mut self.context);
            }
            if !any || self.context.now >= until || self.turn(events, Some(until)).is_err() {
                return;
            }
        }
    }
}

/// When a path of every upstream works, the others have this long.
const OTHERS_WITHIN: Duration = Duration::from_millis(250);

/// The shortest wait.
const TICK: Duration = Duration::from_millis(1);

/// The shortest time for the last flush.
const FLUSH_MIN: Duration = Duration::from_secs(2);

/// How long the responses to logouts are waited for.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(1);
