//! # Prefetch policy: off
//!
//! Nothing is fetched before it is asked for.
//!
//! | | |
//! |---|---|
//! | Model    | no wishes |
//! | Cost     | none |
//! | Source   | the baseline that every other is measured against |
//! | Not when | hosts read in order, and the storage is far: `adaptive` |

use super::{Build, Ended, Found, Prefetch, Reader, Wish, WishId};
use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::VolumeId;
use crate::units::Extent;
use alloc::boxed::Box;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "off",
    summary: "nothing is fetched before it is asked for",
    properties: &[],
    parameters: &[],
    build: |_, _| Box::new(Off),
};

#[derive(Debug)]
struct Off;

impl Prefetch for Off {
    fn read(&mut self, _: Instant, _: Reader, _: Extent, _: u64, _: Found) {}

    fn poll(&mut self) -> Option<Wish> {
        None
    }

    fn ended(&mut self, _: Instant, id: WishId, _: Ended) {
        panic!("{id:?} was never wished");
    }

    fn judge(&mut self, _: VolumeId, _: u32, _: u32) {}
}
