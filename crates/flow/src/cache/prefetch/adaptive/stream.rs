//! Reads in order, forwards or backwards.

use crate::clock::{Duration, Instant};
use crate::units::Extent;
use alloc::vec::Vec;

/// Streams that are followed for each session on a volume.
const MOST_STREAMS: usize = 64;

/// Of these, places that streams which have opened leave to those that have not.
const NEWCOMERS: usize = 16;

/// What the cap of a window is at least.
const SMALLEST_CAP: u64 = 128 << 10;

/// How far from the rest of its stream a read may lie: eight times its length, but at least
const LEAST_SLACK: u64 = 64 << 10;
/// and at most a number of bytes.
const MOST_SLACK: u64 = 1 << 20;

/// Where a stream goes. All positions of a stream are counted in its own direction, so that what follows
/// is the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    /// The first position of an extent, and the one behind its last.
    pub(super) const fn turn(self, extent: Extent) -> (u64, u64) {
        let end = extent.offset.saturating_add(extent.length);
        match self {
            Self::Up => (extent.offset, end),
            Self::Down => (u64::MAX - end, u64::MAX - extent.offset),
        }
    }

    /// The extent between two positions.
    pub(super) const fn extent(self, begin: u64, end: u64) -> Extent {
        match self {
            Self::Up => Extent::new(begin, end - begin),
            Self::Down => Extent::new(u64::MAX - end, end - begin),
        }
    }

    /// The first position of a volume, and the one behind its last.
    const fn limits(self, capacity: u64) -> (u64, u64) {
        self.turn(Extent::new(0, capacity))
    }

    /// The position of the last boundary of a line that is not behind this one.
    pub(super) fn line(self, position: u64, line: u64) -> u64 {
        match self {
            Self::Up => position - position % line,
            Self::Down => {
                u64::MAX - (u64::MAX - position).checked_next_multiple_of(line).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A read, and what matters about where it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) now: Instant,
    pub(super) extent: Extent,
    pub(super) capacity: u64,
    /// All of it was here.
    pub(super) ready: bool,
    /// Bytes of a line.
    pub(super) line: u64,
    /// Time of a fetch, if it is known.
    pub(super) round_trip: Option<Duration>,
    /// Most bytes of a window.
    pub(super) largest: u64,
    /// The number of this read.
    pub(super) count: u64,
}

impl Reading {
    const fn slack(&self) -> u64 {
        let wanted = self.extent.length.saturating_mul(8);
        if wanted < LEAST_SLACK {
            LEAST_SLACK
        } else if wanted > MOST_SLACK {
            MOST_SLACK
        } else {
            wanted
        }
    }
}

/// What a read was to the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It continues none.
    Alone,
    /// It continues one.
    InStream,
    /// The stream of this number wants what lies between these positions.
    Window(u64, Way, u64, u64),
}

/// What may be fetched: windows as they should be, half as large, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    Full,
    Half,
    Nothing,
}

/// The streams of a session on a volume.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<Stream>);

#[derive(Debug)]
struct Stream {
    /// The number of its first read.
    serial: u64,
    /// The number of its last read.
    used: u64,
    last: Extent,
    run: Option<Run>,
}

/// A stream that has opened.
#[derive(Debug)]
struct Run {
    way: Way,
    /// The position behind what was read.
    frontier: u64,
    /// The position behind what was wished for; never behind the frontier's line.
    edge: u64,
    /// When the reader is beyond it, the next window is due.
    marker: u64,
    window: u64,
    /// What the window was at first, and is again after nothing was granted.
    first: u64,
    /// When and where the last window was wished for.
    since: (Instant, u64),
    /// Bytes per second.
    rate: Option<u64>,
    /// A window has been wished for, so the next one grows.
    begun: bool,
}

impl Streams {
    /// Follows a read. `grant` is asked when a window is due.
    pub(super) fn read(&mut self, reading: &Reading, grant: impl FnMut() -> Grant) -> Step {
        let newest = |found: Option<usize>, place: usize| match found {
            Some(found) if self.0[found].used > self.0[place].used => Some(found),
            _ => Some(place),
        };
        let matching = |fits: &dyn Fn(&Stream) -> bool| {
            (0..self.0.len()).filter(|&place| fits(&self.0[place])).fold(None, newest)
        };
        let open = matching(&|stream| stream.run.as_ref().is_some_and(|run| run.has(reading)));
        let place = open.or_else(|| matching(&|stream| stream.opens(reading.extent).is_some()));
        let Some(place) = place else {
            self.add(reading);
            return Step::Alone;
        };
        let stream = &mut self.0[place];
        stream.used = reading.count;
        let serial = stream.serial;
        let run = match (&mut stream.run, Stream::way(stream.last, reading.extent)) {
            (Some(run), _) => run,
            (run, way) => run.insert(Run::new(way.expect("it opens"), stream.last, reading)),
        };
        stream.last = reading.extent;
        match run.advance(reading, grant) {
            Some((begin, end)) => Step::Window(serial, run.way, begin, end),
            None => Step::InStream,
        }
    }

    /// Where a stream has come to; `None` if it is followed no more.
    pub(super) fn frontier(&self, serial: u64) -> Option<u64> {
        let stream = self.0.iter().find(|stream| stream.serial == serial)?;
        stream.run.as_ref().map(|run| run.frontier)
    }

    /// A read that continues nothing may be the first of a stream.
    fn add(&mut self, reading: &Reading) {
        let (serial, used) = (reading.count, reading.count);
        let stream = Stream { serial, used, last: reading.extent, run: None };
        if self.0.len() < MOST_STREAMS {
            self.0.push(stream);
            return;
        }
        let newcomers = self.0.iter().filter(|stream| stream.run.is_none()).count();
        let goes = |stream: &&mut Stream| newcomers < NEWCOMERS || stream.run.is_none();
        if let Some(oldest) = self.0.iter_mut().filter(goes).min_by_key(|stream| stream.used) {
            *oldest = stream;
        }
    }
}

impl Stream {
    /// The direction of two reads that touch each other.
    fn way(first: Extent, second: Extent) -> Option<Way> {
        if first.end() == Some(second.offset) {
            Some(Way::Up)
        } else if second.end() == Some(first.offset) {
            Some(Way::Down)
        } else {
            None
        }
    }

    fn opens(&self, extent: Extent) -> Option<Way> {
        if self.run.is_some() { None } else { Self::way(self.last, extent) }
    }
}

impl Run {
    fn new(way: Way, last: Extent, reading: &Reading) -> Self {
        let (_, frontier) = way.turn(last);
        let read = reading.extent.length.min(reading.largest).next_power_of_two();
        let read = read.max(reading.line);
        let first = if read <= SMALLEST_CAP / 32 {
            read * 4
        } else if read <= SMALLEST_CAP / 4 {
            read * 2
        } else {
            read.max(SMALLEST_CAP)
        };
        let edge = way.line(frontier, reading.line);
        let since = (reading.now, frontier);
        Self {
            way,
            frontier,
            edge,
            marker: edge,
            window: first,
            first,
            since,
            rate: None,
            begun: false,
        }
    }

    /// Whether the read lies in what was read lately, was wished for or comes next.
    fn has(&self, reading: &Reading) -> bool {
        let (begin, end) = self.way.turn(reading.extent);
        let slack = reading.slack();
        end.saturating_add(slack) >= self.frontier
            && begin <= self.edge.max(self.frontier).saturating_add(slack)
    }

    /// The reader is here; what is to be fetched now, if anything is.
    fn advance(
        &mut self,
        reading: &Reading,
        mut grant: impl FnMut() -> Grant,
    ) -> Option<(u64, u64)> {
        let (_, end) = self.way.turn(reading.extent);
        self.frontier = self.frontier.max(end);
        let line = self.way.line(self.frontier, reading.line);
        // What is here already needs no window, unless one is on its way.
        if self.frontier <= self.marker || (self.edge <= line && reading.ready) {
            return None;
        }
        self.measure(reading);
        if self.begun {
            self.grow(reading);
        }
        let begin = self.edge.max(line);
        let window = match grant() {
            Grant::Full => self.window,
            Grant::Half => (self.window / 2).next_multiple_of(reading.line),
            Grant::Nothing => {
                (self.window, self.begun) = (self.first, false);
                0
            }
        };
        let (first, last) = self.way.limits(reading.capacity);
        let end = begin.saturating_add(window).min(last).max(begin);
        (self.marker, self.edge) = (begin, end);
        self.begun |= begin < end;
        // The last line of a volume may end behind it.
        (begin.max(first) < end).then_some((begin.max(first), end))
    }

    /// Learns how fast the reader is: up at once, down by halves.
    fn measure(&mut self, reading: &Reading) {
        let (then, there) = self.since;
        let nanos = reading.now.saturating_since(then).as_nanos();
        let bytes = self.frontier.saturating_sub(there);
        if nanos > 0 {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(nanos);
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.rate = Some(self.rate.map_or(rate, |old| rate.max(old / 2 + rate / 2)));
        }
        self.since = (reading.now, self.frontier);
    }

    /// The next window.
    fn grow(&mut self, reading: &Reading) {
        let reach = match (reading.round_trip, self.rate) {
            (Some(time), Some(rate)) => {
                let bytes = 2 * u128::from(time.as_nanos()) * u128::from(rate) / 1_000_000_000;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
            _ => 0,
        };
        let cap = reach.max(SMALLEST_CAP).max(reading.extent.length).min(reading.largest);
        let cap = (cap - cap % reading.line).max(reading.line);
        let factor = if self.window < cap / 16 { 4 } else { 2 };
        self.window = (self.window * factor).min(cap);
    }
}
