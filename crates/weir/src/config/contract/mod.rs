//! `[[tenant]]`: who is promised what. Both kinds of file have it, and the groups that it names.

pub(super) mod group;
mod rows;

use super::diagnostic::{Code, Diagnostic};
use super::names::{self, Names, Tenants};
use super::schema::{Default, Key, Kind};
use super::tree::{Context, Document, Noted, Read, Table};
use weir_flow::clock::Duration;
use weir_flow::control::{BURST_MIN, CREDIT_MAX, Contract, IOPS_MAX, Promises, Tier};
use weir_flow::pipeline::Policies;

/// The key with the tenant's name.
pub(super) const NAME: Key = names::key("names the tenant in reports, and where others name it");

/// The key with the contract itself.
pub(super) const ROWS: Key = Key {
    name: "objectives",
    kind: Kind::Other(
        "`[{ op = \"any\", size = \"4KiB\", iops = 3500, p50 = \"8ms\", p99 = \"41ms\" }, …]`; op any | \
         read | write; load; p50, p90, p95, p99, p999, p9999",
    ),
    default: Default::Else("no guarantee: it shares what is left"),
    effect: "the objectives: rate and response times by operation and size; with `load`, while the tenant \
             asks for at most that share of its contract",
};

/// The key with the group.
pub(super) const GROUP: Key = Key {
    name: "group",
    kind: Kind::Text("a group's name"),
    default: Default::Else("none"),
    effect: "the group that guarantees its share",
};

/// The key with the burst.
pub(super) const BURST: Key = Key {
    name: "burst",
    kind: Kind::Time(BURST_MIN.as_nanos(), CREDIT_MAX.as_nanos()),
    default: Default::Is("100ms"),
    effect: "how much may come at once and still be guaranteed, as time at its rate",
};

/// The key with the credit.
pub(super) const CREDIT: Key = Key {
    name: "credit",
    kind: Kind::Time(0, CREDIT_MAX.as_nanos()),
    default: Default::Is("0s"),
    effect: "how much of what it did not use it may save for later, as time at its rate",
};

/// The key with the speed at which credit is spent.
pub(super) const PEAK: Key = Key {
    name: "peak",
    kind: Kind::Real(1.0, 100.0),
    default: Default::Is("2.0"),
    effect: "how fast it may spend that, as a multiple of its rate",
};

/// The key with the limit.
pub(super) const LIMIT: Key = Key {
    name: "max_iops",
    kind: Kind::Count(1, IOPS_MAX as u64),
    default: Default::Else("none"),
    effect: "requests a second of its first row's size that it does not exceed, even if the storage \
             is idle",
};

/// The key with the weight.
pub(super) const WEIGHT: Key = Key {
    name: "weight",
    kind: Kind::Count(1, IOPS_MAX as u64),
    default: Default::Else("`iops` of its first row"),
    effect: "its part of what is left over, against others of its group",
};

/// The key with the tier.
pub(super) const TIER: Key = Key {
    name: "tier",
    kind: Kind::Word(&["gold", "silver", "bronze"]),
    default: Default::Is("gold"),
    effect: "which tenants lose first when not all objectives can be met: bronze, then silver",
};

/// Keys that describe a contract, and so mean nothing without one.
const TERMS: &[&str] = &["group", "burst", "credit", "peak", "max_iops", "weight", "tier"];

/// Reads the groups and the tenants. `also` reads keys that only one kind of file has; it gets
/// the tenant's index.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    tenants: &mut Tenants,
    mut also: impl FnMut(&mut Context, &Table<'_>, usize),
) -> Option<Promises> {
    let diagnostics = context.diagnostics.len();
    let mut names = Names::new("group");
    let groups = group::read(context, document, &mut names);
    let mut contracts: Vec<Option<Contract>> = Vec::new();
    let mut tables = Vec::new();
    for table in document.many(context, "tenant") {
        let name = table.text(context, "name");
        let index = name.map(|name| tenants.define(context, &name));
        also(context, &table, index.unwrap_or(usize::MAX));
        let contract = contract(context, &table, &names);
        if let (Some(index), Ok(contract)) = (index, contract) {
            contracts.resize(contracts.len().max(index + 1), None);
            contracts[index] = contract;
            tables.push((index, table.index()));
        }
    }
    let promises = groups.map(|groups| Promises { contracts, groups });
    if let Some(promises) = &promises {
        let table = |index| tables.iter().find(|(i, _)| *i == index).map_or(0, |(_, table)| *table);
        group::check(context, document, &names, promises, table);
    }
    let wrong = |diagnostic: &Diagnostic| !diagnostic.code.is_warning();
    if context.diagnostics[diagnostics..].iter().any(wrong) { None } else { promises }
}

/// The contract of a table; `None` if it has none.
fn contract(
    context: &mut Context,
    table: &Table<'_>,
    groups: &Names,
) -> Result<Option<Contract>, Noted> {
    if !table.has("objectives") {
        return without_rows(context, table);
    }
    let rows = rows::read(context, table);
    let group = table.text(context, "group").map(|name| groups.find(context, &name));
    let burst = table.number(context, "burst");
    let credit = table.number(context, "credit");
    let peak = table.permille(context, "peak");
    let limit = table.number(context, "max_iops");
    let first = rows.as_ref().and_then(|rows| rows.first()).map(|row| row.iops);
    if let (Some(limit), Some(iops)) = (&limit, first)
        && limit.value < u64::from(iops)
    {
        let rows = table.value_span("objectives");
        under(
            context,
            limit,
            iops,
            rows.as_ref().map(|span| (span, "what its first row promises")),
        );
    }
    let weight = weight(context, table, first);
    let tier = table.text(context, "tier");
    let group = match group {
        None if table.has("group") => return Err(Noted),
        None => None,
        Some(None) => return Err(Noted),
        Some(Some(group)) => Some(group as u32),
    };
    let limit = table.optional("max_iops", limit)?.map(|limit| limit as u32);
    let made = || {
        Some(Contract {
            rows: rows?,
            burst: Duration::from_nanos(burst?.value),
            credit: Duration::from_nanos(credit?.value),
            peak_permille: peak? as u32,
            limit,
            weight: weight?,
            tier: match tier?.value.as_str() {
                "bronze" => Tier::Bronze,
                "silver" => Tier::Silver,
                _ => Tier::Gold,
            },
            group,
        })
    };
    made().map(Some).ok_or(Noted)
}

/// A tenant that is promised nothing has no terms either.
fn without_rows(context: &mut Context, table: &Table<'_>) -> Result<Option<Contract>, Noted> {
    let mut result = Ok(None);
    for term in TERMS {
        if let Some(span) = table.value_span(term) {
            let message = format!("`{term}` means nothing without `objectives`");
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "this value");
            let help =
                "remove it, or add `objectives = [{ size = \"4KiB\", iops = …, p99 = \"…\" }]`";
            context.report(diagnostic.help(help));
            result = Err(Noted);
        }
    }
    result
}

/// Notes that a limit is below the rate that is promised.
fn under(
    context: &mut Context,
    limit: &Read<u64>,
    iops: u32,
    see: Option<(&super::diagnostic::Span, &str)>,
) {
    let message = format!("`max_iops` of {} is below the guaranteed {iops}", limit.value);
    let diagnostic =
        Diagnostic::new(Code::Conflict, message).at_some(limit.span.as_ref(), "this limit");
    let diagnostic = match see {
        Some((span, label)) => diagnostic.see(Some(span), label),
        None => diagnostic,
    };
    context.report(diagnostic.help(format!("write at least `{iops}`, or leave it out")));
}

/// A weight, or the rate that stands for one.
fn weight(context: &mut Context, table: &Table<'_>, iops: Option<u32>) -> Option<u32> {
    let read = table.number(context, "weight");
    let given = table.optional("weight", read).ok()?.map(|weight| weight as u32);
    if let (None, Some(iops)) = (given, iops) {
        table.note_number(context, "weight", iops.into());
    }
    given.or(iops)
}

/// Warns of contracts that no policy enforces, and of tenants without requests. `claims` is whether hosts
/// may be a tenant by their names.
pub(super) fn unused(
    context: &mut Context,
    document: &Document<'_>,
    tenants: &Tenants,
    promises: &Promises,
    policies: &Policies,
    claims: impl Fn(usize) -> bool,
) {
    if policies.control.policy().name == OPEN
        && let Some(index) = promises.contracts.iter().position(Option::is_some)
    {
        let count = promises.contracts.iter().flatten().count();
        let message = match count {
            1 => "no policy enforces this contract: the policy of `control` is `open`".to_owned(),
            _ => format!(
                "no policy enforces these {count} contracts: the policy of `control` is `open`"
            ),
        };
        let diagnostic = Diagnostic::new(Code::Unused, message);
        let diagnostic =
            diagnostic.at(document.locate("tenant", index, &["objectives"]), "the first contract");
        let policy = document.locate("policy", 0, &["control"]);
        let see = document.has("policy").then_some(&policy);
        let diagnostic = diagnostic.see(see, "this policy");
        context.report(diagnostic.help("write `control = \"slack\"` in `[policy]`"));
    }
    for (index, name) in tenants.names().iter().enumerate() {
        if tenants.is_named(index) || claims(index) {
            continue;
        }
        let message = format!("no host or volume is of tenant `{name}`");
        let span = document.locate("tenant", index, &["name"]);
        let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "this tenant");
        context.report(diagnostic.help("name it elsewhere in the file, or remove it"));
    }
}

/// One entry for each tenant, so that each has its own queue.
pub(super) fn for_all(promises: Promises, tenants: usize) -> Promises {
    let Promises { mut contracts, groups } = promises;
    contracts.resize(tenants, None);
    Promises { contracts, groups }
}

/// The policy that looks at no contract.
const OPEN: &str = "open";

#[cfg(test)]
mod tests;
