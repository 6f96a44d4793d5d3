//! `[discovery]`: the authentication of discovery sessions.

use super::account::{ACCOUNTS, Accounts, MUTUAL};
use crate::config::schema::{Many, Section};
use crate::config::tree::{Context, Document};
use weir_serve::config::Authentication;

/// The table.
pub(super) static DISCOVERY: Section = Section {
    name: "discovery",
    many: Many::Once,
    effect: "the authentication of discovery sessions",
    keys: &[ACCOUNTS, MUTUAL],
    settings: &[],
};

/// Reads the table.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    accounts: &mut Accounts,
) -> Option<Authentication> {
    let table = document.once(context, "discovery");
    accounts.authentication(context, &table)
}
