//! What the unit tests of several modules share.

use crate::clock::Duration;
use crate::control::{Contract, Promises};
use crate::dispatch::Work;
use crate::policy::{Choice, Policy};
use crate::request::{BackendId, LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use crate::units::Extent;
use alloc::vec::Vec;
use slotmap::SlotMap;

/// A 4 KiB read at the start of volume 0, with this tag.
pub(crate) fn request(tag: u64) -> Request {
    Request {
        tag: Tag(tag),
        tenant: TenantId::new(0),
        volume: VolumeId::new(0),
        link: LinkId::new(0),
        op: Op::Read,
        extent: Extent::new(0, 4096),
        fua: false,
        ordered: false,
        job: false,
    }
}

/// A policy with these values, and defaults for the others.
pub(crate) fn choice<B>(policy: &'static Policy<B>, values: &[(&str, u64)]) -> Choice<B> {
    let mut choice = Choice::of(policy);
    for &(name, value) in values {
        choice.set(name, value).unwrap();
    }
    choice
}

/// `count` different keys.
pub(crate) fn keys(count: usize) -> Vec<RequestKey> {
    let mut map = SlotMap::<RequestKey, ()>::with_key();
    (0..count).map(|_| map.insert(())).collect()
}

/// The row of its tenant's contract that a request falls under, at a low load.
pub(crate) fn row(promises: &Promises, request: &Request) -> Option<u8> {
    let contract = promises.contracts.get(request.tenant.index())?.as_ref()?;
    Some(contract.row(request, 0)? as u8)
}

/// These contracts, without groups.
pub(crate) fn promises(contracts: &[Option<Contract>]) -> Promises {
    Promises { contracts: contracts.to_vec(), groups: Vec::new() }
}

/// A read of 4 KiB of a stream for backend 0, of 1 ms, that is a request by itself.
pub(crate) fn work(key: RequestKey, stream: u32) -> Work {
    Work {
        key,
        stream: TenantId::new(stream),
        substream: None,
        backend: BackendId::new(0),
        bytes: 4_096,
        nominal: Duration::from_millis(1),
        request: key,
        whole: Duration::from_millis(1),
    }
}
