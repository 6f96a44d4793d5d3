//! `share` of tenants and `[background]`: the weights of the dispatch policies that have weights.
//!
//! The key is not called `weight`, which a contract has for what is left over in control.

use super::diagnostic::{Code, Diagnostic, Span};
use super::schema::{Default, Key, Kind, Many, Section};
use super::tree::{Context, Document, Table};
use weir_flow::dispatch::{Background, Shares, Weight};
use weir_flow::pipeline::Policies;

/// What a weight may be.
pub(super) const KIND: Kind = Kind::Real(0.001, LARGEST);

/// The largest weight: all 1024ths that there are.
const LARGEST: f64 = 4_194_303.0;

/// The key of a tenant.
pub(super) const SHARE: Key = Key {
    name: "share",
    kind: KIND,
    default: Default::Is("1.0"),
    effect: "its weight: what part of the backends' time it gets while others want it too; for a \
             `dispatch` with weights",
};

/// The table.
pub(super) static BACKGROUND: Section = Section {
    name: "background",
    many: Many::Once,
    effect: "the weights of what the gateway does by itself, against those of tenants (`share`)",
    keys: &[
        weight(
            "write_back",
            "what logs write to storage; under `fair-time` it is taken from the tenant that has caused it",
        ),
        weight("prefetch", "what is read before it is asked for, in the same manner"),
        weight("jobs", "copies and sanitizes, all together"),
    ],
    settings: &[],
};

const fn weight(name: &'static str, effect: &'static str) -> Key {
    Key { name, kind: KIND, default: Default::Is("1.0"), effect }
}

/// The weights of tenants with a table, by index, and where the first is that is written.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    weights: Vec<Weight>,
    first: Option<Span>,
}

impl Tenants {
    /// Reads the weight of the tenant with this index, if its name is right.
    pub(super) fn read(&mut self, context: &mut Context, table: &Table<'_>, index: usize) {
        let weight = read(context, table, "share", &mut self.first);
        if let (Some(weight), true) = (weight, index < usize::MAX) {
            self.weights.resize(self.weights.len().max(index + 1), Weight::ONE);
            self.weights[index] = weight;
        }
    }

    /// Reads the table, and gives each of the tenants its weight.
    pub(super) fn with_background(
        mut self,
        context: &mut Context,
        document: &Document<'_>,
        policies: Option<&Policies>,
    ) -> Option<Shares> {
        let table = document.once(context, "background");
        let mut read = |name| read(context, &table, name, &mut self.first);
        let (write_back, prefetch, jobs) = (read("write_back"), read("prefetch"), read("jobs"));
        if let (Some(first), Some(policies)) = (self.first, policies) {
            unused(context, document, first, policies);
        }
        let background = Background { write_back: write_back?, prefetch: prefetch?, jobs: jobs? };
        Some(Shares { tenants: self.weights, background })
    }
}

/// One weight for each tenant, so that tenants can be told apart by their places.
pub(super) fn for_all(shares: Shares, tenants: usize) -> Shares {
    let Shares { tenants: mut weights, background } = shares;
    weights.resize(tenants, Weight::ONE);
    Shares { tenants: weights, background }
}

/// Reads a weight, and notes its place if it is the first that is written.
fn read(
    context: &mut Context,
    table: &Table<'_>,
    key: &str,
    first: &mut Option<Span>,
) -> Option<Weight> {
    let read = table.real(context, key)?;
    *first = first.take().or(read.span);
    Some(weight_of(read.value))
}

/// The weight of a number that is in the range of [`KIND`], which leaves at least one 1024th.
pub(super) fn weight_of(number: f64) -> Weight {
    let parts = (number * 1_024.0).round() as u32;
    Weight::from_1024ths(parts).expect("a thousandth is a 1024th at least")
}

/// Warns of weights that the policy does not look at.
fn unused(context: &mut Context, document: &Document<'_>, first: Span, policies: &Policies) {
    let name = policies.dispatch.policy().name;
    if !WEIGHTLESS.contains(&name) {
        return;
    }
    let message = format!("no policy uses weights: the policy of `dispatch` is `{name}`");
    let diagnostic = Diagnostic::new(Code::Unused, message).at(first, "the first weight");
    let policy = document.locate("policy", 0, &["dispatch"]);
    let see = document.has("policy").then_some(&policy);
    let diagnostic = diagnostic.see(see, "this policy");
    context.report(diagnostic.help("write `dispatch = \"fair-time\"` in `[policy]`"));
}

/// The policies without weights.
const WEIGHTLESS: [&str; 2] = ["fifo", "round-robin"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::Source;
    use crate::config::{gateway, plan};

    fn source(dispatch: &str, keys: &str) -> Source {
        let text = format!(
            "[policy]\ndispatch = \"{dispatch}\"\n{keys}\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns.0 = \"d\"\n"
        );
        Source::new("weir.toml", text)
    }

    /// What a weight cannot be is a diagnostic at its value, in either table, all at once.
    #[test]
    fn each_diagnostic_is_at_its_value() {
        let keys = "[[tenant]]\nname = \"d\"\nshare = 0\n[background]\n\
                    write_back = 4194304\nprefetch = \"1\"\njobs = -0.5\nscrub = 1";
        let source = source("fog", keys);
        let mut diagnostics = gateway(&source).unwrap_err();
        diagnostics.sort_by_key(|diagnostic| diagnostic.at.as_ref().unwrap().0.start);
        let told: Vec<_> = diagnostics
            .iter()
            .map(|diagnostic| {
                (diagnostic.code, &source.text[diagnostic.at.as_ref().unwrap().0.clone()])
            })
            .collect();
        let expected = [
            (Code::OutOfRange, "0"),
            (Code::OutOfRange, "4194304"),
            (Code::WrongType, "\"1\""),
            (Code::OutOfRange, "-0.5"),
            (Code::UnknownKey, "scrub"),
        ];
        assert_eq!(told, expected);
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.help.is_some()), "{diagnostics:?}");
    }

    /// The smallest and the largest weight are what they say, and fractions go to the nearest 1024th.
    #[test]
    fn weights_are_in_1024ths() {
        for (text, parts) in [("0.001", 1), ("4194303.0", 4_294_966_272), ("0.3335", 342)] {
            let keys = format!("[[tenant]]\nname = \"d\"\nshare = {text}");
            let shares = gateway(&source("fog", &keys)).unwrap().checked.shares;
            assert_eq!(shares.tenants[0].as_1024ths(), parts, "{text}");
        }
    }

    /// Weights under a policy that has none are warned of, in both kinds of file; without any nothing is said.
    #[test]
    fn weights_that_nobody_looks_at_are_told() {
        let share = "[[tenant]]\nname = \"d\"\nshare = 2";
        let told = |source: &Source| {
            let warnings = gateway(source).unwrap().warnings;
            warnings.into_iter().map(|diagnostic| diagnostic.message).collect::<Vec<_>>()
        };
        for policy in WEIGHTLESS {
            let text = format!("no policy uses weights: the policy of `dispatch` is `{policy}`");
            assert_eq!(told(&source(policy, share)), [text.as_str()]);
            assert_eq!(told(&source(policy, "[background]\njobs = 1")), [text.as_str()]);
            assert_eq!(told(&source(policy, "")), [""; 0]);
        }
        assert_eq!(told(&source("fog", share)), [""; 0]);
        let text = "[run]\nrequests = 1\n[[backend]]\nname = \"b\"\n[[volume]]\nname = \"v\"\n\
                    size = \"1GiB\"\n[[workload]]\nname = \"w\"\ntenant = \"t\"\narrivals = \"closed\"\ndepth = 1\n\
                    [[tenant]]\nname = \"t\"\nshare = 2\n";
        let warnings = plan(&Source::new("plan.toml", text.to_owned())).unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}
