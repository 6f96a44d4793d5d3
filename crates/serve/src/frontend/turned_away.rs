//! Hosts that were turned away, for `weir status`: from where, why, how often, when, and when they may try again.

use crate::aged::Aged;
use crate::source::Source;
use weir_flow::clock::{Duration, Instant};

/// The sources that were turned away in the last [`KEPT_FOR`], by source and reason.
#[derive(Debug)]
pub(crate) struct TurnedAway {
    entries: Aged<(Source, &'static str), Entry>,
}

/// A source that was turned away for one reason.
#[derive(Clone, Debug, Default)]
struct Entry {
    count: u64,
    initiator: Option<String>,
    /// When the source may try again, if that is known.
    retry_at: Option<Instant>,
}

/// An entry of the table, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnedAwayHost<'a> {
    pub(crate) source: Source,
    /// The iSCSI name of the last host, if it has said one.
    pub(crate) initiator: Option<&'a str>,
    pub(crate) why: &'static str,
    pub(crate) count: u64,
    /// How long ago the last time was.
    pub(crate) age: Duration,
    /// In how long the source may try again; zero if at once.
    pub(crate) retry_after: Duration,
}

impl TurnedAway {
    pub(crate) fn new() -> Self {
        Self { entries: Aged::new(ENTRIES_MAX) }
    }

    /// A host was turned away; it may try again after `wait`. Its name is `initiator`, if it has said one.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        (source, why): (Source, &'static str),
        wait: Duration,
        initiator: Option<&str>,
    ) {
        self.entries.update((source, why), now, |old| {
            let old = old.map_or_else(Entry::default, |(_, entry)| entry);
            let initiator = named(initiator).or(old.initiator);
            Entry { count: old.count + 1, initiator, retry_at: Some(now + wait) }
        });
    }

    /// The host that was turned away last from there, for this reason, has said its name since.
    pub(crate) fn name(&mut self, source: Source, why: &'static str, initiator: &str) {
        let Some((at, entry)) = self.entries.remove(&(source, why)) else { return };
        let initiator = named(Some(initiator)).or(entry.initiator);
        self.entries.update((source, why), at, |_| Entry { initiator, ..entry });
    }

    /// The entries, the latest first.
    pub(crate) fn hosts(&self, now: Instant) -> Vec<TurnedAwayHost<'_>> {
        let hosts = self.entries.iter().map(|(&(source, why), at, entry)| TurnedAwayHost {
            source,
            initiator: entry.initiator.as_deref(),
            why,
            count: entry.count,
            age: now.saturating_since(at),
            retry_after: entry.retry_at.map_or(Duration::ZERO, |at| at.saturating_since(now)),
        });
        let mut hosts: Vec<_> = hosts.filter(|host| host.age < KEPT_FOR).collect();
        hosts.sort_by_key(|host| host.age);
        hosts
    }
}

fn named(initiator: Option<&str>) -> Option<String> {
    initiator.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Entries that are kept; one more forgets the one of the oldest use.
const ENTRIES_MAX: usize = 256;

/// For how long an entry is shown.
const KEPT_FOR: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn source(n: u32) -> Source {
        Source::of(IpAddr::from(n.to_be_bytes()))
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Entries are counted by source and reason, have an age, and leave after an hour.
    #[test]
    fn entries_have_an_age() {
        let mut table = TurnedAway::new();
        table.note(at(10), (source(1), "full"), Duration::ZERO, None);
        table.note(at(20), (source(1), "throttled"), Duration::from_secs(60), Some("iqn.guesser"));
        table.note(at(30), (source(1), "full"), Duration::ZERO, None);
        table.name(source(1), "full", "iqn.host");
        let hosts = table.hosts(at(40));
        assert_eq!(
            (hosts[0].why, hosts[0].count, hosts[0].initiator),
            ("full", 2, Some("iqn.host"))
        );
        assert_eq!((hosts[0].age, hosts[0].retry_after), (Duration::from_secs(10), Duration::ZERO));
        assert_eq!(
            (hosts[1].why, hosts[1].count, hosts[1].initiator),
            ("throttled", 1, Some("iqn.guesser"))
        );
        assert_eq!(hosts[1].retry_after, Duration::from_secs(40));
        assert_eq!(table.hosts(at(20 + 3_600)).len(), 1);
        assert!(table.hosts(at(30 + 3_600)).is_empty());
    }

    /// However many sources are turned away, the table keeps the latest ones.
    #[test]
    fn the_table_is_bounded() {
        let mut table = TurnedAway::new();
        for n in 0..10_000 {
            table.note(at(u64::from(n)), (source(n), "full"), Duration::ZERO, None);
        }
        let hosts = table.hosts(at(10_000));
        assert_eq!((hosts.len(), hosts[0].source), (ENTRIES_MAX, source(9_999)));
    }
}
