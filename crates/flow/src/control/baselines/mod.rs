//! Control policies to compare with: published ones, and what the recommended ones are measured against.
//!
//! They obey the same laws and can be configured, but nothing on a gateway asks for them.

mod bucket;
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
