//! The helper thread that encodes metrics and writes them to clients of the control socket.

use super::Metrics;
use super::encode::encode;
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

/// A page that a client has asked for.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshot: Box<Snapshot>,
    pub(crate) format: Format,
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
    for (client, Scrape { metrics, snapshot, format }) in pages {
        let text = String::from_utf8(encode(&metrics, &snapshot, format)).expect("names are texts");
        if let Err(error) = write(client, Line::of(Answer::Metrics(text)).as_bytes()) {
            debug!(%error, "a client of the control socket has not taken its metrics");
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
