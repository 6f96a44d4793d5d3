//! `[[tenant]]` of a gateway: what it is promised, and which hosts it is.

use super::initiators;
use crate::config::contract::{self, BURST, CREDIT, GROUP, LIMIT, NAME, PEAK, ROWS, TIER, WEIGHT};
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::Tenants;
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::shares::{self, SHARE};
use crate::config::tree::{Context, Document, Table};
use crate::config::units::shorten;
use std::collections::BTreeMap;
use weir_flow::control::Promises;
use weir_serve::config::Initiators;

/// The table.
pub(super) static TENANT: Section = Section {
    name: "tenant",
    many: Many::Times(0, 4_096),
    effect: "a tenant: its hosts and its contract",
    keys: &[
        NAME,
        Key {
            name: "initiators",
            kind: Kind::Texts("iSCSI names, or beginnings of names and `*`"),
            default: Default::Else("none: the hosts of volumes that name this tenant"),
            effect: "hosts whose requests are this tenant's, whatever volume they are for; a whole \
                     name counts before a beginning, a longer beginning before a shorter one",
        },
        GROUP,
        ROWS,
        BURST,
        CREDIT,
        PEAK,
        LIMIT,
        WEIGHT,
        TIER,
        SHARE,
    ],
    settings: &[],
};

/// Who is a tenant by name, by the tenant's index.
pub(super) type Claims = BTreeMap<usize, Initiators>;

/// Reads the tables, and those of the groups.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    tenants: &mut Tenants,
    shares: &mut shares::Tenants,
) -> Option<(Promises, Claims)> {
    let mut claims = Claims::new();
    let mut claimed: BTreeMap<String, (usize, Option<Span>)> = BTreeMap::new();
    let promises = contract::read(context, document, tenants, |context, table, index| {
        shares.read(context, table, index);
        if let Some(initiators) = claim(context, table, index, &mut claimed) {
            claims.insert(index, initiators);
        }
    });
    Some((promises?, claims))
}

/// The hosts that a table claims; no two tenants may claim the same.
fn claim(
    context: &mut Context,
    table: &Table<'_>,
    index: usize,
    claimed: &mut BTreeMap<String, (usize, Option<Span>)>,
) -> Option<Initiators> {
    let names = initiators::names(context, table)?;
    for name in &names {
        match claimed.get(&name.value) {
            Some((other, first)) if *other != index => {
                let message = format!("two tenants claim `{}`", shorten(&name.value));
                let diagnostic = Diagnostic::new(Code::Duplicate, message)
                    .at_some(name.span.as_ref(), "the second")
                    .see(first.as_ref(), "the first");
                context.report(diagnostic.help("a host is one tenant: remove one of them"));
            }
            Some(_) => {}
            None => {
                claimed.insert(name.value.clone(), (index, name.span.clone()));
            }
        }
    }
    (!names.is_empty()).then(|| Initiators::new(names.into_iter().map(|name| name.value)))
}
