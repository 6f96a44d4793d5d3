//! The streams that share the backends' time, and their weights.
//!
//! Streams are the tenants and, apart from them, what the gateway does by itself: otherwise a tenant's own
//! write-back would stand in front of its reads, in the order in which they came. What a tenant has caused
//! there it owes ([`owe`](super::DispatchPolicy::owe)): a policy with debts takes it from that tenant's share,
//! the others take it from all. No tenant owes for a job: it is long and no host waits for its single I/Os, so
//! its weight says how fast all of them are together.

use super::{Stream, Weight};
use crate::request::TenantId;
use alloc::vec::Vec;

/// The weights of all streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// By tenant id; one past the end has weight 1.
    pub tenants: Vec<Weight>,
    /// Of what the gateway does by itself.
    pub background: Background,
}

/// The weights of what the gateway does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// What logs write to storage.
    pub write_back: Weight,
    /// What is read before it is asked for.
    pub prefetch: Weight,
    /// Copies and sanitizes.
    pub jobs: Weight,
}

/// For whom an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A tenant.
    Tenant(TenantId),
    /// A log that writes to storage.
    WriteBack,
    /// A prefetch.
    Prefetch,
    /// A job of the gateway.
    Job,
}

impl Owner {
    /// The streams that are no tenant's, in the order of their ids.
    const BACKGROUND: [Self; 3] = [Self::WriteBack, Self::Prefetch, Self::Job];

    /// The id that policies know the stream by. The background comes first, as tenants may be added.
    pub(crate) const fn stream(self) -> TenantId {
        TenantId::new(match self {
            Self::WriteBack => 0,
            Self::Prefetch => 1,
            Self::Job => 2,
            Self::Tenant(tenant) => tenant.index() as u32 + Self::BACKGROUND.len() as u32,
        })
    }

    /// Whether a tenant owes for its work.
    pub(super) const fn is_owed(self) -> bool {
        matches!(self, Self::WriteBack | Self::Prefetch)
    }

    /// Whose stream has this id.
    pub(crate) const fn of(stream: TenantId) -> Self {
        let index = stream.index();
        match index.checked_sub(Self::BACKGROUND.len()) {
            Some(tenant) => Self::Tenant(TenantId::new(tenant as u32)),
            None => Self::BACKGROUND[index],
        }
    }
}

impl Shares {
    /// The weight of a stream.
    pub fn weight(&self, owner: Owner) -> Weight {
        match owner {
            Owner::Tenant(tenant) => self.tenants.get(tenant.index()).copied().unwrap_or_default(),
            Owner::WriteBack => self.background.write_back,
            Owner::Prefetch => self.background.prefetch,
            Owner::Job => self.background.jobs,
        }
    }

    /// How many streams have a weight of their own here.
    pub(super) const fn count(&self) -> usize {
        Owner::BACKGROUND.len() + self.tenants.len()
    }

    /// What a policy is built for, by stream id.
    pub(super) fn streams(&self) -> Vec<Stream> {
        let owners = (0..self.count() as u32).map(|id| Owner::of(TenantId::new(id)));
        let stream = |owner| Stream { weight: self.weight(owner), background: owner.is_owed() };
        owners.map(stream).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and owners go both ways, and each stream is built with the weight of its owner.
    #[test]
    fn every_stream_has_its_owner() {
        let weight = |parts| Weight::from_1024ths(parts).unwrap();
        let background = Background { write_back: weight(7), prefetch: weight(8), jobs: weight(9) };
        let shares = Shares { tenants: alloc::vec![weight(1), weight(2)], background };
        let streams = shares.streams();
        let weights: Vec<_> = streams.iter().map(|stream| stream.weight.as_1024ths()).collect();
        assert_eq!(weights, [7, 8, 9, 1, 2]);
        let background: Vec<_> = streams.iter().map(|stream| stream.background).collect();
        assert_eq!(background, [true, true, false, false, false]);
        for id in (0..9).map(TenantId::new) {
            assert_eq!(Owner::of(id).stream(), id);
        }
        assert_eq!(shares.weight(Owner::Tenant(TenantId::new(2))), Weight::ONE);
    }
}
