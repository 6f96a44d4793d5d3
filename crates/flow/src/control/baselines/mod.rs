//! Control policies to compare with: published ones, against which the recommended ones are measured.
//!
//! They obey the same laws and can be configured, but no gateway needs them.

mod bucket;
mod depth_bound;
pub(super) mod edf;
pub(super) mod facade;
mod fair;
pub(super) mod mclock;
pub(super) mod sfq;
mod simple;
mod switched;
pub(super) mod ta2;
pub(super) mod ta3;
pub(super) mod token_bucket;
