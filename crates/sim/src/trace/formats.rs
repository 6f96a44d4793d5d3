//! The formats, one file each: a new one is a file, and its entries here.

pub(super) mod alibaba;
pub(super) mod blkparse;
pub(super) mod blkreplay;
pub(super) mod blktrace;
pub(super) mod disksim;
pub(super) mod iolog;
pub(super) mod mqsim;
pub(super) mod msr;
pub(super) mod spc;
pub(super) mod systor17;
pub(super) mod tencent;
pub(super) mod vscsi;
pub(super) mod weir;

use super::define::Definition;

/// All formats, in the order in which they are listed.
pub(super) static DEFINITIONS: [&Definition; 15] = [
    &weir::DEFINITION,
    &msr::DEFINITION,
    &spc::DEFINITION,
    &blkparse::DEFINITION,
    &blktrace::DEFINITION,
    &iolog::V2,
    &iolog::V3,
    &alibaba::DEFINITION,
    &tencent::DEFINITION,
    &systor17::DEFINITION,
    &vscsi::V1,
    &vscsi::V2,
    &blkreplay::DEFINITION,
    &mqsim::DEFINITION,
    &disksim::DEFINITION,
];
