//! Which requests are a stream within their tenant, and what each of these streams has had.
//!
//! A stream is a link, the links of a host, or a volume. A request for a volume that is a stream belongs to that; any
//! other belongs to the host of its link, if there is one, or else to its link.

use super::Weight;
use super::service_times::ServiceTimes;
use crate::clock::{Duration, Instant};
use crate::request::{LinkId, Request, TenantId, VolumeId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A host whose links are one stream: the caller's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostNumber(pub u32);

/// A stream within a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Substream {
    /// The requests of a link.
    Link(LinkId),
    /// The requests of the links of a host.
    Host(HostNumber),
    /// The requests for a volume, over whichever link.
    Volume(VolumeId),
}

/// Requests that are a stream within their tenant, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// Those of a link are a stream.
    Link(LinkId),
    /// Those of a link are a part of the stream of this host. A link has one host; another takes its place.
    Host(LinkId, HostNumber),
    /// Those for a volume are a stream.
    Volume(VolumeId),
}

impl Member {
    /// The stream that they are, or are a part of.
    pub const fn stream(self) -> Substream {
        match self {
            Self::Link(link) => Substream::Link(link),
            Self::Host(_, host) => Substream::Host(host),
            Self::Volume(volume) => Substream::Volume(volume),
        }
    }
}

/// How a stream within a tenant fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubstreamView {
    /// Which one.
    pub stream: Substream,
    /// Its weight within its tenant.
    pub weight: Weight,
    /// As that of a [`StreamView`](super::StreamView), since it began.
    pub service: Duration,
    /// The part of it in the last 5 to 10 s.
    pub recent: Duration,
}

/// The streams within tenants.
#[derive(Debug, Default)]
pub(super) struct Members {
    streams: BTreeMap<Substream, Known>,
    hosts: BTreeMap<LinkId, HostNumber>,
    links: BTreeSet<(HostNumber, LinkId)>,
    /// What each has had, by its place.
    times: ServiceTimes,
    /// Places below the number of those that were ever used at once, which none has now.
    free: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    weight: Weight,
    place: usize,
}

impl Members {
    /// These requests are a stream of this weight, or a part of it, from now on, or not any more. Returns the streams
    /// that this changes, with their weights now.
    pub(super) fn set(
        &mut self,
        member: Member,
        weight: Option<Weight>,
    ) -> Vec<(Substream, Option<Weight>)> {
        let mut changed = Vec::new();
        if let Member::Host(link, host) = member {
            let before = match weight {
                Some(_) => self.hosts.insert(link, host),
                None => self.hosts.remove(&link),
            };
            if let Some(before) = before {
                self.links.remove(&(before, link));
            }
            if weight.is_some() {
                self.links.insert((host, link));
            }
            let left = before.filter(|&before| !self.has_links(before));
            changed.extend(left.map(|left| (Substream::Host(left), None)));
        } else if weight.is_none() {
            changed.push((member.stream(), None));
        }
        changed.extend(weight.map(|weight| (member.stream(), Some(weight))));
        for &(stream, weight) in &changed {
            self.weigh(stream, weight);
        }
        changed
    }

    fn has_links(&self, host: HostNumber) -> bool {
        let from = (host, LinkId::new(0));
        self.links.range(from..).next().is_some_and(|&(of, _)| of == host)
    }

    fn weigh(&mut self, stream: Substream, weight: Option<Weight>) {
        match (self.streams.get_mut(&stream), weight) {
            (Some(known), Some(weight)) => known.weight = weight,
            (Some(&mut Known { place, .. }), None) => {
                self.streams.remove(&stream);
                self.free.push(place);
            }
            (None, Some(weight)) => {
                let place = self.free.pop().unwrap_or(self.streams.len());
                self.times.forget(time(place));
                self.streams.insert(stream, Known { weight, place });
            }
            (None, None) => {}
        }
    }

    /// The stream that a request of a tenant belongs to, which need not be one with a weight.
    pub(super) fn of(&self, request: &Request) -> Substream {
        let link = Substream::Link(request.link);
        if self.streams.is_empty() {
            return link;
        }
        let volume = Substream::Volume(request.volume);
        if self.streams.contains_key(&volume) {
            return volume;
        }
        self.hosts.get(&request.link).map_or(link, |&host| Substream::Host(host))
    }

    /// A request of a tenant, or a part of one, has kept a backend busy for so long.
    pub(super) fn served(&mut self, now: Instant, request: &Request, service: Duration) {
        if let Some(known) = self.streams.get(&self.of(request)) {
            self.times.add(now, time(known.place), service);
        }
    }

    /// How each fares.
    pub(super) fn views(&self, now: Instant) -> impl Iterator<Item = SubstreamView> {
        let sums: Vec<_> = self.times.sums(now).collect();
        self.streams.iter().map(move |(&stream, &Known { weight, place })| {
            let (service, recent) = sums.get(place).copied().unwrap_or_default();
            SubstreamView { stream, weight, service, recent }
        })
    }
}

/// The name of a place among the service times.
const fn time(place: usize) -> TenantId {
    TenantId::new(place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const A: HostNumber = HostNumber(0);
    const B: HostNumber = HostNumber(1);

    /// What a request over this link for this volume belongs to.
    fn of(members: &Members, link: u32, volume: u32) -> Substream {
        let (link, volume) = (LinkId::new(link), VolumeId::new(volume));
        members.of(&Request { volume, link, ..testing::request(0) })
    }

    /// A host is a stream as long as one of its links is there; a link that gets another host leaves the first.
    #[test]
    fn a_host_is_its_links() {
        let [one, two] = [0, 1].map(LinkId::new);
        let (mut members, weight) = (Members::default(), Some(Weight::ONE));
        let host = Substream::Host;
        assert_eq!(members.set(Member::Host(one, A), weight), [(host(A), weight)]);
        assert_eq!(members.set(Member::Host(two, A), weight), [(host(A), weight)]);
        assert_eq!(
            [0, 1, 2].map(|link| of(&members, link, 0)),
            [host(A), host(A), Substream::Link(LinkId::new(2))]
        );
        assert_eq!(members.set(Member::Host(one, B), weight), [(host(B), weight)]);
        assert_eq!(of(&members, 0, 0), host(B));
        assert_eq!(members.set(Member::Host(two, A), None), [(host(A), None)]);
        assert_eq!(members.set(Member::Host(two, A), None), [], "it has none any more");
        assert_eq!(members.set(Member::Host(one, A), weight), [(host(B), None), (host(A), weight)]);
        assert_eq!(
            members.views(Instant::ZERO).map(|view| view.stream).collect::<Vec<_>>(),
            [host(A)]
        );
    }

    /// A volume goes before the host of a link, and that before the link.
    #[test]
    fn a_volume_goes_first() {
        let (mut members, weight) = (Members::default(), Some(Weight::ONE));
        let (link, volume) = (LinkId::new(0), VolumeId::new(1));
        members.set(Member::Link(link), weight);
        members.set(Member::Host(link, A), weight);
        members.set(Member::Volume(volume), weight);
        assert_eq!(of(&members, 0, 1), Substream::Volume(volume));
        assert_eq!(of(&members, 5, 1), Substream::Volume(volume), "over any link");
        assert_eq!(of(&members, 0, 0), Substream::Host(A));
        members.set(Member::Host(link, A), None);
        assert_eq!(of(&members, 0, 0), Substream::Link(link));
        members.set(Member::Volume(volume), None);
        assert_eq!(of(&members, 0, 1), Substream::Link(link));
    }

    /// Streams that come and go have their own service times, and a new one begins with none.
    #[test]
    fn times_are_of_one_stream() {
        let (mut members, weight) = (Members::default(), Some(Weight::ONE));
        let volumes = [0, 1, 2].map(VolumeId::new);
        let mut had = [0_u64; 3];
        for step in 0..60_usize {
            let volume = step % 3;
            if step % 7 == 0 {
                members.set(Member::Volume(volumes[volume]), None);
                had[volume] = 0;
            }
            members.set(Member::Volume(volumes[volume]), weight);
            let request = Request { volume: volumes[volume], ..testing::request(0) };
            members.served(Instant::ZERO, &request, Duration::from_millis(step as u64));
            had[volume] += step as u64;
        }
        let told: Vec<_> = members.views(Instant::ZERO).map(|view| view.service).collect();
        assert_eq!(told, had.map(Duration::from_millis));
    }
}
