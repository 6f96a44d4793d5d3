//! `[[tenant]]` of a plan: what a tenant is promised.

use crate::config::contract::{BURST, CREDIT, GROUP, LIMIT, NAME, PEAK, ROWS, TIER, WEIGHT};
use crate::config::schema::{Many, Section};
use crate::config::shares::SHARE;
use weir_sim::plan::MAX_TENANTS;

/// The table.
pub(super) static TENANT: Section = Section {
    name: "tenant",
    many: Many::Times(0, MAX_TENANTS),
    effect: "the contract of a tenant; tenants without one exist by being named",
    keys: &[NAME, GROUP, ROWS, BURST, CREDIT, PEAK, LIMIT, WEIGHT, TIER, SHARE],
    settings: &[],
};
