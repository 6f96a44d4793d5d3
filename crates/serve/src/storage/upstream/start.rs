//! The first sessions, before anything is served, and the last words, when nothing is any more.

use super::network::{Network, Readiness};
use super::path::Link;
use super::session::Around;
use super::{FIRST_TOKEN, Farewell, Upstreams};
use crate::clock::Clock;
use mio::{Events, Poll};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time;
use thiserror::Error;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;

/// An upstream that no path leads to.
#[derive(Clone, Debug, Error)]
pub struct Unreachable {
    /// Its name.
    pub upstream: String,
    /// How long it was waited for.
    pub within: Duration,
    /// Its paths.
    pub paths: Vec<UnreachablePath>,
}

/// A path that does not work.
#[derive(Clone, Debug)]
pub struct UnreachablePath {
    /// Where it begins.
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

impl<N: Network> Upstreams<N> {
    /// Connects all paths at once, and waits until each upstream has one that works. The others go on
    /// being tried.
    pub(crate) fn connect(
        &mut self,
        poll: &mut Poll,
        clock: Clock,
    ) -> io::Result<Result<(), Unreachable>> {
        let mut events = Events::with_capacity(EVENTS);
        self.now = clock.now();
        let began = self.now;
        self.tick();
        let mut usable = None;
        loop {
            let waits = |index: &usize| {
                let upstream = &self.all[*index];
                let paths = upstream.first..upstream.first + upstream.config.portals.len();
                !self.paths[paths].iter().any(super::path::Path::is_ready)
            };
            let waiting: Vec<usize> = (0..self.all.len()).filter(waits).collect();
            let by = |index: &usize| began + self.all[*index].config.connect_timeout;
            if waiting.is_empty() {
                // Hosts find more paths, and the log fewer that fail, if those on their way may come in.
                let all = *usable.get_or_insert(self.now) + OTHERS_WITHIN;
                if all <= self.now || !self.paths.iter().any(super::path::Path::is_on_its_way) {
                    break;
                }
                self.turn(poll, &mut events, clock, Some(all))?;
                continue;
            }
            let until = waiting.iter().map(by).min().expect("it is not empty");
            if until <= self.now {
                let late = waiting.into_iter().find(|index| by(index) <= self.now);
                return Ok(Err(self.unreachable(late.expect("one of them is"))));
            }
            self.turn(poll, &mut events, clock, Some(until))?;
        }
        for index in 0..self.paths.len() {
            if !self.paths[index].told_up {
                let (upstream, id) = (self.paths[index].upstream, self.paths[index].id);
                self.input(Input::PathDown(self.backend(upstream), id));
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn unreachable(&self, index: usize) -> Unreachable {
        let upstream = &self.all[index];
        let paths = upstream.first..upstream.first + upstream.config.portals.len();
        let path = |path: &super::path::Path<N::Stream>| {
            let waits = match &path.link {
                Link::Up(session, _) => Some(session.waits_for()),
                Link::Down(_) => None,
            };
            let reason = path.failure.clone().or(waits.map(str::to_owned));
            let reason = reason.unwrap_or_else(|| String::from("it was not tried yet"));
            UnreachablePath { portal: path.portal, reason }
        };
        Unreachable {
            upstream: upstream.config.name.clone(),
            within: upstream.config.connect_timeout,
            paths: self.paths[paths].iter().map(path).collect(),
        }
    }

    /// Waits for something to happen at a path, at most until then, and deals with it.
    pub(super) fn turn(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        clock: Clock,
        until: Option<Instant>,
    ) -> io::Result<()> {
        self.write_all();
        let wake = [until, self.next()].into_iter().flatten().min();
        let timeout = match wake {
            _ if self.has_more() => Some(0),
            // A millisecond is as fine as the kernel waits; less would be asked for again and again.
            wake => wake.map(|at| at.saturating_since(clock.now()).as_nanos().max(1_000_000)),
        };
        match poll.poll(events, timeout.map(time::Duration::from_nanos)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.now = clock.now();
        for event in &*events {
            if let Some(number) = event.token().0.checked_sub(FIRST_TOKEN) {
                self.event(number, Readiness::of(event));
            }
        }
        self.read_on();
        self.tick();
        Ok(())
    }

    /// Makes durable what was written, as far as the units do not do so by themselves, and logs out. The
    /// upstreams that this failed for, and why. `clean`: those of which nothing is only with this gateway, by their
    /// index; their units are given up.
    pub(crate) fn close(
        &mut self,
        poll: &mut Poll,
        clock: Clock,
        within: Duration,
        clean: &[bool],
    ) -> Vec<(usize, IoError)> {
        let mut events = Events::with_capacity(EVENTS);
        self.now = clock.now();
        let until = self.now + within.max(FAREWELL_LEAST);
        for upstream in &mut self.all {
            let cached = upstream.terms.as_ref().is_some_and(|terms| terms.facts.write_cache);
            // Whoever owns it now sees to it.
            let lost = upstream.owner.as_ref().is_some_and(|owner| owner.lost.is_some());
            if !upstream.written || !cached || lost {
                upstream.farewell = Farewell::Done(Ok(()));
            }
        }
        while self.ask_for_flushes() && self.now < until {
            if self.turn(poll, &mut events, clock, Some(until)).is_err() {
                break;
            }
        }
        while self.ask_for_releases(clean) && self.now < until {
            if self.turn(poll, &mut events, clock, Some(until)).is_err() {
                break;
            }
        }
        self.closing = true;
        for index in 0..self.paths.len() {
            self.with(index, |session, around| {
                if session.is_ready() {
                    session.log_out();
                }
                session.write(around)
            });
        }
        let until = self.now + LOGOUT_WITHIN;
        while self.paths.iter().any(|path| matches!(path.link, Link::Up(..))) && self.now < until {
            if self.turn(poll, &mut events, clock, Some(until)).is_err() {
                break;
            }
        }
        let failed = |(index, upstream): (usize, &super::Upstream)| match upstream.farewell {
            Farewell::Done(Ok(())) => None,
            Farewell::Done(Err(error)) => Some((index, error)),
            Farewell::Wanted | Farewell::Asked(_) => Some((index, IoError::NoPath)),
        };
        self.all.iter().enumerate().filter_map(failed).collect()
    }

    /// Has each upstream flushed that was not yet, over a path that works; true if one is not done.
    fn ask_for_flushes(&mut self) -> bool {
        for upstream in 0..self.all.len() {
            if self.all[upstream].farewell == Farewell::Wanted {
                let works = |index: &usize| {
                    self.paths[*index].upstream == upstream && self.paths[*index].is_ready()
                };
                let Some(index) = (0..self.paths.len()).find(works) else { continue };
                self.all[upstream].farewell = Farewell::Asked(index);
                self.with(index, |session, around: &mut Around<'_>| {
                    session.last_flush(around);
                    Ok(())
                });
            }
        }
        self.all.iter().any(|upstream| !matches!(upstream.farewell, Farewell::Done(_)))
    }
}

/// When every upstream has a path, the others have so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(250);

/// Events taken in at a time.
const EVENTS: usize = 256;

/// The last flush has at least so long.
const FAREWELL_LEAST: Duration = Duration::from_secs(2);

/// How long the answer to a logout is waited for.
const LOGOUT_WITHIN: Duration = Duration::from_secs(1);
