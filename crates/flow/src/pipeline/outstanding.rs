//! The count of outstanding requests and of their bytes, of all and of each tenant, against the limits.

use super::Limits;
use crate::request::Request;
use alloc::vec::Vec;

/// Requests that were accepted and whose reply has not left, without the pieces of split ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Outstanding {
    requests: u32,
    bytes: u64,
    /// The part of each tenant, by its id; grows with the ids that come.
    tenants: Vec<Share>,
}

/// The part of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    requests: u32,
    bytes: u64,
}

impl Outstanding {
    /// How many requests there are.
    pub(super) const fn requests(&self) -> u32 {
        self.requests
    }

    /// How many bytes they have.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a request; false if the limits leave no room for it. A tenant without requests has room for one,
    /// however large: it would never have more.
    pub(super) fn enter(&mut self, limits: &Limits, request: &Request) -> bool {
        let payload = request.payload();
        let Some(bytes) = self.bytes.checked_add(payload) else { return false };
        let tenant = request.tenant.index();
        if self.tenants.len() <= tenant {
            self.tenants.resize(tenant + 1, Share::default());
        }
        let share = &mut self.tenants[tenant];
        let fits = share.requests < limits.max_tenant_requests
            && (share.requests == 0
                || share.bytes.saturating_add(payload) <= limits.max_tenant_bytes);
        if !fits || bytes > limits.max_bytes || self.requests >= limits.max_requests {
            return false;
        }
        self.requests += 1;
        self.bytes = bytes;
        share.requests += 1;
        share.bytes += payload;
        assert!(
            share.requests <= self.requests && share.bytes <= self.bytes,
            "what a tenant has outstanding is a part of all"
        );
        true
    }

    /// The reply of a request has left.
    pub(super) fn leave(&mut self, request: &Request) {
        let payload = request.payload();
        let share = &mut self.tenants[request.tenant.index()];
        assert!(
            share.requests > 0 && share.bytes >= payload,
            "a request leaves once, with the bytes that it came with"
        );
        share.requests -= 1;
        share.bytes -= payload;
        assert!(share.requests > 0 || share.bytes == 0, "a tenant without requests has no bytes");
        self.requests -= 1;
        self.bytes -= payload;
        assert!(self.requests > 0 || self.bytes == 0, "the bytes of all are those of tenants");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use crate::testing;
    use crate::units::Extent;

    fn read(tag: u64, length: u64) -> Request {
        Request { op: Op::Read, extent: Extent::new(0, length), ..testing::request(tag) }
    }

    fn with(requests: &[Request]) -> Outstanding {
        let mut outstanding = Outstanding::default();
        for request in requests {
            assert!(outstanding.enter(&Limits::default(), request));
        }
        outstanding
    }

    /// What enters and leaves adds up to nothing.
    #[test]
    fn counts_return_to_nothing() {
        let (small, large) = (read(1, 512), read(2, 8192));
        let mut outstanding = with(&[small, large]);
        assert_eq!((outstanding.requests(), outstanding.bytes()), (2, 8704));
        outstanding.leave(&large);
        outstanding.leave(&small);
        assert_eq!((outstanding.requests(), outstanding.bytes()), (0, 0));
    }

    /// A request that leaves twice is noticed, although others are outstanding.
    #[test]
    #[should_panic(expected = "a request leaves once")]
    fn a_request_leaves_once() {
        let mut outstanding = with(&[read(1, 512), read(2, 8192)]);
        outstanding.leave(&read(2, 8192));
        outstanding.leave(&read(2, 8192));
    }

    /// A request that leaves with fewer bytes than it came with is noticed when its tenant is idle.
    #[test]
    #[should_panic(expected = "a tenant without requests has no bytes")]
    fn a_request_keeps_its_size() {
        with(&[read(1, 8192)]).leave(&read(1, 512));
    }

    /// Bytes that were counted for all and for no tenant are noticed when nothing is outstanding.
    #[test]
    #[should_panic(expected = "the bytes of all are those of tenants")]
    fn the_sum_is_that_of_tenants() {
        let mut outstanding = with(&[read(1, 512)]);
        outstanding.bytes += 1;
        outstanding.leave(&read(1, 512));
    }
}
