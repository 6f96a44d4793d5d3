//! `streams` of `[[subsystem]]`: what `dispatch` tells apart within the share of a tenant, and the weights of that.

use super::numbered::{entries, number};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::check_nqns;
use crate::config::schema::{Default, Key, Kind};
use crate::config::shares;
use crate::config::tree::{Context, Document, Table};
use crate::config::units::shorten;
use crate::config::value::Value;
use std::collections::BTreeMap;
use weir_flow::dispatch::Weight;
use weir_flow::pipeline::Policies;
use weir_serve::config::{HostShares, Nvme, Streams, Subsystem};

/// What is a stream.
pub(super) const STREAMS: Key = Key {
    name: "streams",
    kind: Kind::Word(&["tenant", "host", "namespace", "queue"]),
    default: Default::Is("tenant"),
    effect: "what `dispatch` tells apart within the `share` of a tenant: nothing, every host, every namespace, or every \
             I/O queue; for a `dispatch` with weights, but `deficit-round-robin`",
};

/// The weights of queues.
pub(super) const QUEUE_SHARES: Key = Key {
    name: "queue_shares",
    kind: Kind::Other("`{ 1 = weight, … }`, numbers from 1 to `queues` of `[nvme]`"),
    default: Default::Else("1 for each queue"),
    effect: "with `streams = \"queue\"`: what part of its tenant's time each queue gets while others want it too",
};

/// The weights of hosts.
pub(super) const HOST_SHARES: Key = Key {
    name: "host_shares",
    kind: Kind::Other(
        "`{ \"nqn…\" = weight, … }`, NQNs, or beginnings of NQNs and `*`; upper and lower case are the same",
    ),
    default: Default::Else("1 for each host"),
    effect: "with `streams = \"host\"`: the same for each host; its NQN goes before beginnings, and of these the longest",
};

/// The weights of namespaces.
pub(super) const NAMESPACE_SHARES: Key = Key {
    name: "namespace_shares",
    kind: Kind::Other("`{ 1 = weight, … }`, numbers of `namespaces`"),
    default: Default::Else("1 for each namespace"),
    effect: "with `streams = \"namespace\"`: the same for each namespace, whichever protocol its requests come over",
};

/// Reads the keys. `queues`: the I/O queues of a controller; `namespaces`: those of the subsystem, if they are right.
pub(super) fn read(
    context: &mut Context,
    table: &Table<'_>,
    queues: u32,
    namespaces: Option<&[(u32, usize)]>,
) -> Option<Streams> {
    let word = table.text(context, STREAMS.name).map(|word| word.value);
    let by_queue = weights(context, table, &QUEUE_SHARES, |key| {
        let queue = number(key).filter(|queue| (1..=queues).contains(queue));
        let wrong = || {
            let message =
                format!("`queue_shares` names queue `{}`, but `queues` is {queues}", shorten(key));
            (Code::OutOfRange, message, format!("I/O queues are 1 to {queues}"))
        };
        queue.map(|queue| queue as u16).ok_or_else(wrong)
    });
    let by_host = weights(context, table, &HOST_SHARES, |key| match check_nqns(key) {
        Ok(()) => Ok(key.to_owned()),
        Err((message, help)) => Err((Code::BadValue, message, help)),
    });
    let by_namespace = weights(context, table, &NAMESPACE_SHARES, |key| {
        let there =
            |nsid: &u32| namespaces.is_none_or(|all| all.iter().any(|(one, _)| one == nsid));
        let wrong = || {
            let message = format!(
                "`namespace_shares` names `{}`, which is not in `namespaces`",
                shorten(key)
            );
            (Code::Dangling, message, "write a number that `namespaces` has".to_owned())
        };
        number(key).filter(there).ok_or_else(wrong)
    });
    for (shares, what) in
        [(&QUEUE_SHARES, "queue"), (&HOST_SHARES, "host"), (&NAMESPACE_SHARES, "namespace")]
    {
        if word.as_ref().is_some_and(|word| word != what) && table.has(shares.name) {
            let message = format!("`{}` without {what}s that are streams", shares.name);
            let diagnostic = Diagnostic::new(Code::Unused, message);
            let span = table.value_span(shares.name);
            let diagnostic = diagnostic.at_some(span.as_ref(), "these");
            context.report(diagnostic.help(format!("write `streams = \"{what}\"`")));
        }
    }
    let (by_queue, by_host, by_namespace) = (by_queue?, by_host?, by_namespace?);
    Some(match word?.as_str() {
        "queue" => Streams::Queue(by_queue),
        "host" => Streams::Host(HostShares::new(by_host)),
        "namespace" => Streams::Namespace(by_namespace),
        _ => Streams::Tenant,
    })
}

/// Reads a table of weights. `read` makes something of a key, or says what is wrong with it and what to do.
fn weights<K: Ord + ToString>(
    context: &mut Context,
    table: &Table<'_>,
    key: &Key,
    read: impl Fn(&str) -> Result<K, (Code, String, String)>,
) -> Option<BTreeMap<K, Weight>> {
    const FORM: &str = "write `{ KEY = 4, OTHER = 0.5 }`";
    let Some(raw) = table.raw(context, key.name) else { return Some(BTreeMap::new()) };
    let entries = entries(context, raw, (key.name, "weights"), FORM)?;
    let diagnostics = context.diagnostics.len();
    let mut found = BTreeMap::new();
    for (name, value) in entries {
        let name = match read(name.get_ref()) {
            Ok(name) => name,
            Err((code, message, help)) => {
                let diagnostic = Diagnostic::new(code, message);
                let diagnostic = diagnostic.at(name.span(), format!("a key of `{}`", key.name));
                context.report(diagnostic.help(help));
                continue;
            }
        };
        let weight = match Value::read(&shares::KIND, value.get_ref()) {
            Ok(Value::Real(number)) => shares::weight_of(number),
            Ok(_) => unreachable!("a weight is a number with a fraction"),
            Err(rejected) => {
                context.reject(key.name, value.span(), rejected);
                continue;
            }
        };
        found.insert(name, weight);
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    let text = |(name, weight): (&K, &Weight)| {
        (name.to_string(), Value::Real(f64::from(weight.as_1024ths()) / 1_024.0))
    };
    let pairs = Value::Pairs(found.iter().map(text).collect());
    table.note(context, key.name, pairs, Some(raw.span()));
    Some(found)
}

/// Warns of streams within tenants under a policy that has no use for them.
pub(super) fn check(
    context: &mut Context,
    document: &Document<'_>,
    nvme: &Nvme,
    policies: &Policies,
) {
    let dispatch = policies.dispatch.policy().name;
    let apart = |one: &Subsystem| one.streams != Streams::Tenant;
    let Some(index) = nvme.subsystems.iter().position(apart) else { return };
    if WITHOUT_STREAMS.contains(&dispatch) {
        let message = format!(
            "the policy of `dispatch`, `{dispatch}`, does not tell streams of a tenant apart"
        );
        let span = document.locate("subsystem", index, &["streams"]);
        let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "these streams");
        let policy = document.locate("policy", 0, &["dispatch"]);
        let see = document.has("policy").then_some(&policy);
        let help = "write `dispatch = \"fair-time\"` in `[policy]`";
        context.report(diagnostic.see(see, "this policy").help(help));
    }
}

/// The policies for which all requests of a tenant are one stream.
const WITHOUT_STREAMS: [&str; 3] = ["fifo", "round-robin", "deficit-round-robin"];
