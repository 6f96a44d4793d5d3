//! `[[group]]`: tenants, or groups of them, with a common guarantee.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::{self, Names};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Table};
use crate::config::units::SIZE;
use weir_flow::control::{GROUP_DEPTH_MAX, GROUPS_MAX, Group, IOPS_MAX, Promises, SIZE_MAX};

/// The table.
pub(in crate::config) static GROUP: Section = Section {
    name: "group",
    many: Many::Times(0, GROUPS_MAX),
    effect: "tenants, or groups of them, with a common guarantee",
    keys: &[
        names::key("what tenants and groups name as theirs"),
        Key {
            name: "parent",
            kind: Kind::Text("the name of a group above it in the file"),
            default: Default::Else("none"),
            effect: "the group that guarantees its share",
        },
        Key {
            name: "iops",
            kind: Kind::Count(1, IOPS_MAX as u64),
            default: Default::Required,
            effect: "requests of `size` a second that its members may have guaranteed together; at \
                     least what they are promised in sum",
        },
        Key {
            name: "size",
            kind: Kind::Size(1, SIZE_MAX as u64),
            default: Default::Is("4KiB"),
            effect: "size of such a request; a larger one counts as several",
        },
        Key {
            name: "max_iops",
            kind: Kind::Count(1, IOPS_MAX as u64),
            default: Default::Else("none"),
            effect: "requests of `size` a second that they do not exceed together, even if the \
                     storage is idle",
        },
        Key {
            name: "weight",
            kind: Kind::Count(1, IOPS_MAX as u64),
            default: Default::Else("its `iops`"),
            effect: "its part of what is left over, against others of its parent",
        },
    ],
    settings: &[],
};

/// Reads the tables, in order, and their names.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    names: &mut Names,
) -> Option<Vec<Group>> {
    let tables = document.many(context, "group");
    // All names first: a parent that comes too late is there all the same.
    for table in &tables {
        if let Some(name) = table.text(context, "name") {
            names.define(context, &name, table.index());
        }
    }
    let mut depths: Vec<usize> = Vec::new();
    let groups: Vec<_> =
        tables.iter().map(|table| one(context, table, names, &mut depths)).collect();
    groups.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    names: &Names,
    depths: &mut Vec<usize>,
) -> Option<Group> {
    let parent = table.text(context, "parent");
    let above = parent.as_ref().map(|name| (names.find(context, name), name));
    let mut depth = 1;
    if let Some((Some(index), name)) = above {
        let after = index >= table.index();
        depth = 1 + depths.get(index).copied().unwrap_or(0);
        if after {
            let message = format!("group `{}` does not come before this one", name.value);
            let diagnostic = Diagnostic::new(Code::Conflict, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "this parent");
            let help = "list a parent's `[[group]]` before those of its groups; none is its own";
            context.report(diagnostic.help(help));
        } else if depth == GROUP_DEPTH_MAX + 1 {
            let message = format!("groups are nested more than {GROUP_DEPTH_MAX} deep");
            let diagnostic = Diagnostic::new(Code::OutOfRange, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "one too deep");
            context.report(diagnostic.help("name a parent that is higher up"));
        }
    }
    depths.push(depth);
    let iops = table.number(context, "iops");
    let size = table.number(context, "size");
    let limit = table.number(context, "max_iops");
    if let (Some(limit), Some(iops)) = (&limit, &iops)
        && limit.value < iops.value
    {
        let see = iops.span.as_ref().map(|span| (span, "what it promises"));
        super::under(context, limit, iops.value as u32, see);
    }
    let iops = iops.map(|iops| iops.value as u32);
    let weight = super::weight(context, table, iops);
    let parent = match above {
        None if table.has("parent") => return None,
        None => None,
        Some((index, _)) => Some(index? as u32),
    };
    let limit = table.optional("max_iops", limit).ok()?.map(|limit| limit as u32);
    Some(Group { parent, iops: iops?, size: size?.value as u32, limit, weight: weight? })
}

/// Finds the groups that promise their members more than they have. `table` gives the place of a
/// tenant's table.
pub(super) fn check(
    context: &mut Context,
    document: &Document<'_>,
    names: &Names,
    promises: &Promises,
    table: impl Fn(usize) -> usize,
) {
    for (index, (group, sold)) in promises.groups.iter().zip(promises.sold()).enumerate() {
        let sold = sold.div_ceil(1_000);
        if sold <= group.iops.into() {
            continue;
        }
        let (name, size) = (names.name(index).unwrap_or_default(), SIZE.show(group.size.into()));
        let message = format!(
            "group `{name}` has {} requests of {size} a second, and its members are promised {sold}",
            group.iops
        );
        let member = |group: Option<u32>| group == Some(index as u32);
        let tenant = promises
            .contracts
            .iter()
            .position(|contract| contract.as_ref().is_some_and(|contract| member(contract.group)));
        let below = promises.groups.iter().position(|group| member(group.parent));
        let see = match (tenant, below) {
            (Some(tenant), _) => document.locate("tenant", table(tenant), &["objectives"]),
            (None, Some(below)) => document.locate("group", below, &["iops"]),
            (None, None) => unreachable!("without members nothing is promised"),
        };
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at(document.locate("group", index, &["iops"]), "what it has")
            .see(Some(&see), "the first of its members");
        let help = format!("write `iops = {sold}` or more, or promise its members less");
        context.report(diagnostic.help(help));
    }
}
