//! Registrations: the key of each registrant.

use std::collections::BTreeMap;

use crate::scsi::nexus::{HostId, Nexus, Registrant, RegistrantRef};

/// The keys; none is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    nexuses: BTreeMap<Nexus, u64>,
    hosts: BTreeMap<HostId, u64>,
}

impl Keys {
    pub(super) fn get(&self, who: RegistrantRef<'_>) -> Option<u64> {
        match who {
            RegistrantRef::Scsi(nexus) => self.nexuses.get(nexus).copied(),
            RegistrantRef::Nvme(host) => self.hosts.get(host).copied(),
        }
    }

    pub(super) fn contains(&self, who: RegistrantRef<'_>) -> bool {
        self.get(who).is_some()
    }

    pub(super) fn insert(&mut self, who: Registrant, key: u64) {
        match who {
            Registrant::Scsi(nexus) => self.nexuses.insert(nexus, key),
            Registrant::Nvme(host) => self.hosts.insert(host, key),
        };
    }

    pub(super) fn remove(&mut self, who: RegistrantRef<'_>) {
        match who {
            RegistrantRef::Scsi(nexus) => self.nexuses.remove(nexus),
            RegistrantRef::Nvme(host) => self.hosts.remove(host),
        };
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.nexuses.len() + self.hosts.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an NVMe host is registered.
    pub(super) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// All, in ascending order: nexuses, then NVMe hosts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RegistrantRef<'_>, u64)> {
        let nexuses = self.nexuses.iter().map(|(nexus, &key)| (RegistrantRef::Scsi(nexus), key));
        nexuses.chain(self.hosts.iter().map(|(host, &key)| (RegistrantRef::Nvme(host), key)))
    }
}
