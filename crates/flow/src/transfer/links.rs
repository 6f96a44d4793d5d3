//! The stage: a line of replies with a policy for each link, and for each port that several links share.
//!
//! What is handed out waits below in the order in which it was, so little is handed out at once. A line of
//! its own has a **window** of bytes on their way, which follows the rate at which they leave: what goes in
//! [`DWELL`]. The line of a port has a **pace** instead, the rate that it was told: a host that takes nothing
//! would keep a window shut for all others.

use super::{Build, Grant, Link, LinkTime, Part, Port, Reply, TransferPolicy};
use crate::clock::{Duration, Instant};
use crate::policy::{Choice, Rule};
use crate::request::{LinkId, Outcome, Request, RequestKey};
use crate::units::Bandwidth;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The rule of replies that waited until those before them had been sent.
pub const RULE_LINK: Rule = Rule(&"transfer/link");

/// The rule of replies that waited while something of a later one was sent.
pub const RULE_ORDER: Rule = Rule(&"transfer/order");

/// What is on its way on a link should have left in this time.
const DWELL: Duration = Duration::from_millis(2);

/// The rate is looked at in steps of this length, or as soon as something leaves after it.
const STEP: Duration = Duration::from_millis(10);

/// The windows of a link whose rate is not known, and of a slow one.
const FIRST: u64 = 128 << 10;
const LEAST: u64 = 16 << 10;

/// A port is given its next part so long before it is through with the one before.
const AHEAD: Duration = Duration::from_micros(500);

/// What each part takes of a port's rate beside its data: the header of a PDU.
const HEADER: u64 = 48;

pub(crate) struct Links {
    choice: Choice<Build>,
    /// The largest window.
    window: u64,
    lines: Vec<Line>,
    /// Of each link, by its id.
    places: Vec<Place>,
    /// Of jobs, whose replies leave by no link.
    jobs: Place,
    /// The line of each port, by its id.
    ports: Vec<Option<usize>>,
}

/// Where the replies of a link wait.
#[derive(Clone, Copy)]
struct Place {
    interleaves: bool,
    /// Of the link alone; none before it is wanted.
    own: Option<usize>,
    /// Of its port.
    port: Option<usize>,
}

impl Place {
    /// Of a link of which nothing is known.
    fn vacant() -> Self {
        Self { interleaves: Link::default().interleaves, own: None, port: None }
    }
}

struct Line {
    policy: Box<dyn TransferPolicy>,
    /// What has left.
    work: u64,
    /// Replies that have become ready, and bytes of them that were not handed out.
    ready: u64,
    waiting: u64,
    /// The youngest of which something was handed out.
    youngest: u64,
    valve: Valve,
}

/// What holds replies back.
enum Valve {
    Window(Window),
    Pace(Pace),
}

struct Window {
    /// What is on its way, and how much may be.
    outstanding: u64,
    open: u64,
    /// Since when without a pause something was on its way that is looked at, and what has left since.
    since: Instant,
    left: u64,
}

struct Pace {
    rate: Bandwidth,
    /// Everything that was handed out has left by then.
    until: Instant,
    /// What has not.
    leaving: Option<(RequestKey, u64)>,
}

impl Links {
    pub(crate) fn new(choice: &Choice<Build>, window: u64) -> Self {
        let (lines, places, ports) = (Vec::new(), Vec::new(), Vec::new());
        Self { choice: choice.clone(), window, lines, places, jobs: Place::vacant(), ports }
    }

    /// Sets the properties of a link; waiting replies stay where they are.
    pub(crate) fn set(&mut self, id: LinkId, Link { interleaves, port }: Link) {
        let port = port.map(|port| self.port(port));
        let place = self.place(Some(id));
        (place.interleaves, place.port) = (interleaves, port);
    }

    /// A reply is ready, and waits in its line; or is handed out at once, if there is room and no other waits.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        key: RequestKey,
        (request, arrived): (&Request, Instant),
        progress: &mut Progress,
    ) -> Option<Grant> {
        // The steps of a job end in the gateway: what a host takes, and when, is nothing to them.
        let id = (!request.job).then_some(request.link);
        let place = *self.place(id);
        let index = place.port.or(place.own).unwrap_or_else(|| {
            let open = FIRST.min(self.window);
            let window = Window { outstanding: 0, open, since: Instant::ZERO, left: 0 };
            let index = self.line(Valve::Window(window));
            self.place(id).own = Some(index);
            index
        });
        progress.line = index;
        let line = &mut self.lines[index];
        line.settle(now);
        line.ready += 1;
        progress.place = line.ready;
        let bytes = progress.takes();
        let fits = match &line.valve {
            Valve::Window(window) => window.outstanding.saturating_add(bytes) <= window.open,
            Valve::Pace(_) => false,
        };
        line.waiting += bytes;
        // No reply waits where there is room.
        if fits && line.policy.forgets() {
            return Some(Grant { key, bytes });
        }
        let Request { tenant, op, .. } = *request;
        let reply = Reply { key, bytes, whole: !place.interleaves, tenant, op, arrived };
        line.policy.push(LinkTime { now, work: line.work }, &reply);
        None
    }

    /// What may be handed out next of a line. Follow with [`start`](Self::start).
    pub(crate) fn pop(&mut self, now: Instant, line: usize) -> Option<Grant> {
        let line = &mut self.lines[line];
        line.settle(now);
        let shut = match &line.valve {
            Valve::Window(window) => window.outstanding >= window.open,
            Valve::Pace(pace) => pace.leaving.is_some(),
        };
        if shut { None } else { line.policy.pop(LinkTime { now, work: line.work }) }
    }

    /// Hands that out, and says which part of the reply it is.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        Grant { key, bytes }: Grant,
        progress: &mut Progress,
    ) -> Part {
        let line = &mut self.lines[progress.line];
        assert!(line.waiting >= bytes, "a line granted more bytes than wait in it");
        line.waiting -= bytes;
        match &mut line.valve {
            Valve::Window(window) => {
                if window.outstanding == 0 {
                    (window.since, window.left) = (now, 0);
                }
                window.outstanding += bytes;
            }
            Valve::Pace(pace) => {
                let takes = pace.rate.time_for(bytes.saturating_add(HEADER));
                let until = pace.until.max(now).as_nanos().saturating_add(takes.as_nanos());
                pace.until = Instant::from_nanos(until);
                pace.leaving = Some((key, bytes));
            }
        }
        if line.youngest > progress.place {
            progress.rule = Some(RULE_ORDER);
        }
        progress.rule.get_or_insert(RULE_LINK);
        line.youngest = line.youngest.max(progress.place);
        let offset = progress.granted;
        progress.granted += bytes;
        progress.unsent += bytes;
        assert!(progress.granted <= progress.takes(), "a policy grants what there is");
        let last = progress.granted == progress.takes();
        Part { offset, length: bytes.min(progress.bytes), last }
    }

    /// A part of `bytes` has left; `None` if there was none, else whether the reply ends with it.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        key: RequestKey,
        bytes: u64,
        progress: &mut Progress,
    ) -> Option<bool> {
        let takes = if progress.bytes == 0 && bytes == 0 { 1 } else { bytes };
        if takes == 0 || takes > progress.unsent {
            return None;
        }
        progress.unsent -= takes;
        let line = &mut self.lines[progress.line];
        if let Valve::Window(window) = &mut line.valve {
            window.sent(now, takes, line.waiting > 0, self.window);
            line.work += takes;
            line.policy.sent(LinkTime { now, work: line.work }, key, takes);
        }
        Some(progress.unsent == 0 && progress.granted == progress.takes())
    }

    /// When a port may be given the next part.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let due = |&line: &usize| match &self.lines[line] {
            Line { waiting: 1.., valve: Valve::Pace(pace), .. } => {
                let nanos = pace.until.as_nanos().saturating_sub(AHEAD.as_nanos());
                Some(Instant::from_nanos(nanos))
            }
            _ => None,
        };
        self.ports.iter().flatten().filter_map(due).min()
    }

    /// How many ports there may be, and the line of one: time moves things there.
    pub(crate) const fn ports(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn line_of(&self, port: usize) -> Option<usize> {
        self.ports[port]
    }

    fn place(&mut self, id: Option<LinkId>) -> &mut Place {
        let Some(id) = id else { return &mut self.jobs };
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, Place::vacant());
        }
        &mut self.places[id.index()]
    }

    /// The line of a port, which has this rate from now on.
    fn port(&mut self, Port { id, rate }: Port) -> usize {
        let index = id as usize;
        if self.ports.len() <= index {
            self.ports.resize(index + 1, None);
        }
        if let Some(line) = self.ports[index] {
            if let Valve::Pace(pace) = &mut self.lines[line].valve {
                pace.rate = rate;
            }
            return line;
        }
        let line = self.line(Valve::Pace(Pace { rate, until: Instant::ZERO, leaving: None }));
        self.ports[index] = Some(line);
        line
    }

    fn line(&mut self, valve: Valve) -> usize {
        let policy = (self.choice.policy().build)(self.choice.values());
        self.lines.push(Line { policy, work: 0, ready: 0, waiting: 0, youngest: 0, valve });
        self.lines.len() - 1
    }
}

impl Line {
    /// What a port had to send may have left by now.
    fn settle(&mut self, now: Instant) {
        if let Valve::Pace(pace) = &mut self.valve
            && pace.until <= now + AHEAD
            && let Some((key, bytes)) = pace.leaving.take()
        {
            self.work += bytes;
            self.policy.sent(LinkTime { now, work: self.work }, key, bytes);
        }
    }
}

impl Window {
    /// `bytes` have left; `waits`: others wait for the window.
    fn sent(&mut self, now: Instant, bytes: u64, waits: bool, most: u64) {
        assert!(self.outstanding >= bytes, "more left a link than was on its way");
        self.outstanding -= bytes;
        self.left += bytes;
        let took = now.since(self.since);
        if took >= STEP {
            let rate = rate(self.left, took);
            self.open = in_time(rate, DWELL).clamp(LEAST.min(most), most);
            (self.since, self.left) = (now, 0);
        } else if self.outstanding == 0 && took < DWELL && waits {
            // It could have taken more.
            self.open = (self.open * 2).min(most);
        }
        assert!(0 < self.open && self.open <= most, "a link's window is outside its bounds");
    }
}

/// Bytes per second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let nanos = u128::from(time.as_nanos().max(1));
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// Bytes that leave in a time.
fn in_time(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * u128::from(time.as_nanos()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// How far a reply has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of data.
    bytes: u64,
    /// The line that it waits in, and its place there.
    line: usize,
    place: u64,
    granted: u64,
    /// What of that is on its way.
    unsent: u64,
    /// What has held it; `None` until something of it is sent.
    pub(crate) rule: Option<Rule>,
}

impl Progress {
    pub(crate) const fn of(request: &Request, outcome: Outcome) -> Self {
        // An error comes without data.
        let bytes = if outcome.is_ok() { request.reply_bytes() } else { 0 };
        Self { bytes, line: 0, place: 0, granted: 0, unsent: 0, rule: None }
    }

    /// The line that it waits in.
    pub(crate) const fn line(&self) -> usize {
        self.line
    }

    /// What it takes of its link. A reply without data still takes a place.
    const fn takes(&self) -> u64 {
        if self.bytes == 0 { 1 } else { self.bytes }
    }
}

impl core::fmt::Debug for Links {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Links({} lines)", self.lines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that carries so much, given all that its window lets out whenever it has taken something;
    /// returns the window after `steps` steps.
    fn window(mut window: Window, rate: u64, steps: usize) -> u64 {
        let (mut now, mut left) = (Instant::ZERO, 0);
        for _ in 0..steps {
            while window.outstanding < window.open {
                if window.outstanding == 0 {
                    (window.since, window.left) = (now, 0);
                }
                window.outstanding += 16 << 10;
                left += 16 << 10;
            }
            let part = left.min(16 << 10);
            left -= part;
            now += Bandwidth::per_second(rate).unwrap().time_for(part);
            window.sent(now, part, true, 4 << 20);
        }
        window.open
    }

    const fn fresh(open: u64) -> Window {
        Window { outstanding: 0, open, since: Instant::ZERO, left: 0 }
    }

    /// What is on its way is what leaves in two milliseconds, wherever the window begins, within bounds.
    #[test]
    fn a_window_follows_the_rate() {
        for open in [LEAST, FIRST, 4 << 20] {
            for (rate, expected) in [
                (1_000_000, LEAST),
                (50_000_000, 100_000),
                (1_000_000_000, 2_000_000),
                (100_000_000_000, 4 << 20),
            ] {
                let open = window(fresh(open), rate, 200_000);
                assert!(open.abs_diff(expected) * 20 <= expected, "{rate}: {open}");
            }
        }
    }

    /// The window of a link that others do not wait for stays as it is, however fast that is.
    #[test]
    fn an_idle_link_keeps_its_window() {
        let mut window = fresh(LEAST);
        for now in 0..100 {
            let now = Instant::ZERO + Duration::from_millis(now);
            (window.since, window.left, window.outstanding) = (now, 0, 4_096);
            window.sent(now, 4_096, false, 4 << 20);
        }
        assert_eq!(window.open, LEAST);
    }

    /// No more leaves a link than was on its way.
    #[test]
    #[should_panic(expected = "than was on its way")]
    fn what_leaves_was_sent() {
        fresh(LEAST).sent(Instant::ZERO, 1, false, LEAST);
    }

    /// A window that is shut for ever is found out.
    #[test]
    #[should_panic(expected = "outside its bounds")]
    fn a_window_is_never_shut() {
        let mut window = Window { outstanding: 2, ..fresh(0) };
        window.sent(Instant::ZERO, 1, true, LEAST);
    }
}
