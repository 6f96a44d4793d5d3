//! What held the latest requests of each volume and tenant.

use super::{Flight, SECOND};
use std::collections::BTreeMap;
use weir_flow::clock::{Duration, Instant};

/// The latest requests, by number of the volume and of the tenant.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) volumes: BTreeMap<u32, Causes>,
    pub(crate) tenants: BTreeMap<u32, Causes>,
}

/// Requests, and their time by rule.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    requests: u64,
    rules: Vec<(&'static str, Duration)>,
}

/// Requests, and the rule that held them for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) requests: u64,
    pub(crate) rule: &'static str,
}

impl Flight {
    /// The requests that ended in the last second, at most [`RECENT`].
    pub(crate) fn recent(&self, now: Instant) -> Recent {
        let mut recent = Recent::default();
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(SECOND.as_nanos()));
        let latest = self.ring.latest().take_while(|record| record.ended >= since);
        for record in latest.take(RECENT) {
            let (volume, tenant) = (record.request.volume.index(), record.request.tenant.index());
            let volume = recent.volumes.entry(volume as u32).or_default();
            let tenant = recent.tenants.entry(tenant as u32).or_default();
            for causes in [volume, tenant] {
                causes.requests += 1;
                for (_, rule, spent) in record.times.held() {
                    match causes.rules.iter_mut().find(|(known, _)| *known == *rule.0) {
                        Some((_, time)) => *time += spent,
                        None => causes.rules.push((*rule.0, spent)),
                    }
                }
            }
        }
        recent
    }
}

impl Recent {
    /// By name, without those that have none.
    pub(crate) fn named<'a>(
        causes: &BTreeMap<u32, Causes>,
        name: impl Fn(u32) -> Option<&'a str>,
    ) -> BTreeMap<&'a str, Held> {
        let held = |(&id, causes): (&u32, &Causes)| {
            let rule = causes.rules.iter().max_by_key(|(_, time)| *time);
            let rule = rule.map_or("", |(rule, _)| *rule);
            Some((name(id)?, Held { requests: causes.requests, rule }))
        };
        causes.iter().filter_map(held).collect()
    }
}

/// Requests that are looked at: enough to see what holds them.
const RECENT: usize = 2_000;
