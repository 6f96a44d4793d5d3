//! What the recorder tells operators.

use super::Flight;
use super::kept::{Entry, Within};
use super::ring::Record;
use crate::link_hosts::LinkHosts;
use crate::operator::protocol::{Behind, RecorderStatus, Refusal, Slow, SlowRequest, Wait};
use weir_flow::attribution::{Contributor, Part};
use weir_flow::clock::{Duration, Instant};
use weir_flow::event::StageName;
use weir_flow::policy::Rule;
use weir_flow::request::{BackendId, TenantId, VolumeId};

/// What an operator wants to know.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: Option<String>,
    pub(crate) within: Within,
    pub(crate) tenant: Option<String>,
    pub(crate) volume: Option<String>,
    pub(crate) rule: Option<String>,
    /// Only those that ended after the request with this id, if that is of this start.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
}

/// The names of what records number.
pub(crate) struct Names<'a> {
    pub(crate) tenant: &'a dyn Fn(TenantId) -> String,
    pub(crate) volume: &'a dyn Fn(VolumeId) -> String,
    pub(crate) backend: &'a dyn Fn(BackendId) -> String,
    pub(crate) hosts: &'a LinkHosts,
}

/// The id of a request: what differs from one start to the next, and its number.
pub(super) fn id(start: u16, number: u64) -> String {
    format!("{start:04x}-{:012x}", number & NUMBER)
}

/// The number in an id.
fn number(start: u16, id: &str) -> Option<u64> {
    let (known, number) = id.split_once('-')?;
    (u16::from_str_radix(known, 16).ok()? == start).then_some(())?;
    u64::from_str_radix(number, 16).ok()
}

impl Flight {
    /// The slowest requests, or the one with an id.
    pub(crate) fn slow(
        &mut self,
        now: Instant,
        asked: &Asked,
        names: &Names<'_>,
    ) -> Result<Slow, Refusal> {
        if now >= self.second {
            self.turn(now);
        }
        if let Some(id) = &asked.id {
            let told = self.one(now, id, names);
            let told = told.ok_or_else(|| Refusal::UnknownRequest { id: id.clone() })?;
            return Ok(Slow { told: vec![told], slow_ns: self.slow.as_nanos(), ..Slow::default() });
        }
        // One that has not ended is of another start with the same four digits.
        let after = asked.after.as_ref().and_then(|id| number(self.start, id));
        let after = after.filter(|&after| self.ring.has_had(after));
        let wants = |entry: &Entry| {
            let record = &entry.record;
            let matches = |wanted: &Option<String>, name: &dyn Fn() -> String| {
                wanted.as_ref().is_none_or(|wanted| *wanted == name())
            };
            let held = |rule: &String| record.times.held().any(|(_, known, _)| known.0 == rule);
            after.is_none_or(|after| entry.number > after)
                && matches(&asked.tenant, &|| (names.tenant)(record.request.tenant))
                && matches(&asked.volume, &|| (names.volume)(record.request.volume))
                && asked.rule.as_ref().is_none_or(held)
        };
        let (entries, counts, span) = self.kept.find(now, asked.within, asked.limit, wants);
        let told = entries.iter().map(|entry| self.told(now, entry, names)).collect();
        Ok(Slow {
            requests: counts.requests,
            late: counts.late,
            failed: counts.failed,
            slow: counts.slow,
            slow_ns: self.slow.as_nanos(),
            within_ns: now.saturating_since(*span.start()).as_nanos(),
            until_ns: now.saturating_since(*span.end()).as_nanos(),
            told,
        })
    }

    /// The request with an id: as it was kept, or from the ring.
    fn one(&self, now: Instant, id: &str, names: &Names<'_>) -> Option<SlowRequest> {
        let number = number(self.start, id)?;
        if let Some(entry) = self.kept.get(number) {
            return Some(self.told(now, entry, names));
        }
        let record = *self.ring.get(number)?;
        let parts = record.completed().map(|completed| self.attribution.explain(now, &completed));
        let parts = parts.map(Vec::into);
        Some(self.told(now, &Entry { number, rank: 0, record, parts }, names))
    }

    fn told(&self, now: Instant, entry: &Entry, names: &Names<'_>) -> SlowRequest {
        let Entry { number, record, parts, .. } = entry;
        let Record { request, times, trail, reason, target, .. } = record;
        let parts = parts.as_deref().unwrap_or_default();
        let who = |contributor: Contributor| contributor.text(names.tenant);
        let behind = |part: &Part| Behind {
            who: who(part.contributor),
            is_tenant: matches!(part.contributor, Contributor::Tenant(_)),
            time_ns: part.time.as_nanos(),
        };
        let wait = |(stage, rule, time): (StageName, Rule, Duration)| {
            let of = parts.iter().filter(|part| part.stage == stage);
            let (stage, rule) = (stage.as_str().to_owned(), (*rule.0).to_owned());
            Wait { stage, rule, time_ns: time.as_nanos(), behind: of.map(behind).collect() }
        };
        let mostly = Contributor::most(parts).map(|(contributor, time)| Behind {
            who: who(contributor),
            is_tenant: matches!(contributor, Contributor::Tenant(_)),
            time_ns: time.as_nanos(),
        });
        // Jobs of the gateway come over no link.
        let host = (!request.job).then(|| names.hosts.of(request.link, record.arrived())).flatten();
        SlowRequest {
            id: id(self.start, *number),
            age_ns: now.saturating_since(record.ended).as_nanos(),
            arrived_ns: record.arrived().as_nanos(),
            response_ns: record.response().as_nanos(),
            reason: reason.map_or("", super::Reason::as_str).to_owned(),
            op: request.op.as_str().to_owned(),
            offset: request.extent.offset,
            length: request.extent.length,
            tenant: (names.tenant)(request.tenant),
            volume: (names.volume)(request.volume),
            host: host.as_ref().and_then(|host| host.name.clone()),
            peer: host.map(|host| host.peer.clone()),
            target_ns: target.map(Duration::as_nanos),
            error: match record.outcome {
                None => Some("refused".to_owned()),
                Some(outcome) => outcome.err().map(|error| error.to_string()),
            },
            backend: trail.path.map(|_| (names.backend)(trail.backend)),
            path: trail.path.map(|path| path.index() as u32),
            waits: times.held().map(wait).collect(),
            mostly,
        }
    }

    /// How much memory it takes, and how far back it reaches.
    pub(crate) fn status(&self, now: Instant) -> RecorderStatus {
        let [seconds, minutes, hours] = self.kept.oldest();
        let age = |since: Instant| now.saturating_since(since).as_nanos();
        RecorderStatus {
            memory_bytes: (self.ring.memory() + self.kept.memory() + self.attribution.memory())
                as u64,
            ring_ns: self.ring.oldest().map_or(0, age),
            seconds_ns: age(seconds),
            minutes_ns: age(minutes),
            hours_ns: age(hours),
        }
    }
}

/// The part of an id that is counted.
const NUMBER: u64 = (1 << 48) - 1;
