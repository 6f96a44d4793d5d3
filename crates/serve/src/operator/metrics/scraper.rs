//! The helper thread that reads counters and writes answers made of them to clients of the control socket.

use super::Metrics;
use super::encode::encode;
use super::loads::Moment;
use super::page::Format;
use super::snapshot::Snapshot;
use crate::clock::Clock;
use crate::operator::protocol::{Answer, Line};
use mio::net::UnixStream;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time;
use tracing::debug;
use weir_flow::clock::Duration;

/// What a client has asked for: counters, with what the event loop alone knows.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) wanted: Wanted,
}

/// What is made of the counters.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A page of metrics.
    Page(Box<Snapshot>, Format),
    /// The busiest volumes and tenants.
    Sample(Box<Moment>),
}

impl Scrape {
    /// Reads the counters.
    pub(crate) fn answer(self) -> Answer {
        match self.wanted {
            Wanted::Page(snapshot, format) => {
                let page = encode(&self.metrics, &snapshot, format);
                Answer::Metrics(String::from_utf8(page).expect("names are texts"))
            }
            Wanted::Sample(moment) => Answer::Sample(Box::new(self.metrics.sample(&moment))),
        }
    }
}

/// The helper thread. It ends when this is dropped and the pages in its queue are written.
#[derive(Debug)]
pub(crate) struct Scraper {
    queue: Sender<(UnixStream, Scrape)>,
    /// Pages that are not written yet.
    pending: Arc<AtomicUsize>,
}

impl Scraper {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, pages) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let left = pending.clone();
        Builder::new().name("weir-metrics".to_owned()).spawn(move || work(&pages, &left))?;
        Ok(Self { queue, pending })
    }

    /// Whether it takes one more page.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.load(Ordering::Relaxed) < PENDING_MAX
    }

    /// Encodes a page, sends it to a client and closes the connection.
    pub(crate) fn send(&self, client: UnixStream, scrape: Scrape) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        assert!(self.queue.send((client, scrape)).is_ok(), "the thread lives as long as the queue");
    }
}

fn work(pages: &Receiver<(UnixStream, Scrape)>, pending: &AtomicUsize) {
    for (client, scrape) in pages {
        if let Err(error) = write(client, Line::of(scrape.answer()).as_bytes()) {
            debug!(%error, "a client of the control socket has not taken its answer");
        }
        pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes the answer within [`PATIENCE`].
fn write(client: UnixStream, answer: &[u8]) -> io::Result<()> {
    let mut client = net::UnixStream::from(std::os::fd::OwnedFd::from(client));
    client.set_nonblocking(false)?;
    let (clock, mut left) = (Clock::start(), answer);
    while !left.is_empty() {
        let rest = PATIENCE.as_nanos().saturating_sub(clock.now().as_nanos());
        if rest == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(time::Duration::from_nanos(rest)))?;
        match client.write(&left[..left.len().min(CHUNK)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Pages in the queue; a further client is refused.
const PENDING_MAX: usize = 4;

/// A client has this time to take its page.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is written at once: the time is looked at in between.
const CHUNK: usize = 65_536;
