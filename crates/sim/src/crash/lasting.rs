//! The state that survives a crash of the gateway: what hosts have been told, and names that are never reused.

use super::content::{Image, Store};
use super::events::{Event, Events};
use super::history::History;
use super::journal::Journal;
use super::lost::Lost;

/// State that survives crashes.
pub(super) struct Lasting {
    pub(super) store: Store,
    pub(super) history: History,
    /// What happened, in words, if that is wanted.
    pub(super) story: Option<Vec<String>>,
    /// Requests of hosts, and memory for the cache's own: tags are never used again.
    pub(super) tags: u64,
    pub(super) own: u64,
    /// It is remembered elsewhere that the log is void.
    pub(super) void: bool,
    /// Logs that were made.
    pub(super) logs: u64,
    /// The journal of atomic writes.
    pub(super) journal: Journal,
    /// What of the log is rotten, and what gateways have given up for that.
    pub(super) lost: Lost,
    /// What another volume has, without a log.
    pub(super) other: Image,
    /// How often what befalls gateways has happened.
    pub(super) events: Events,
}

impl Lasting {
    /// Whether data was copied in the log, in this life or in one before.
    pub(super) fn has_cleaned(&self) -> bool {
        self.events[Event::LogCopy] > 0
    }
}
