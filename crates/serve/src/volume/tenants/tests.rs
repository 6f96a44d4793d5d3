use super::*;
use crate::config::Initiators;
use weir_flow::control::Target;

fn tenant(name: &str, initiators: &[&str]) -> Tenant {
    let initiators = initiators.iter().map(|&name| name.to_owned());
    let initiators = (initiators.len() > 0).then(|| Initiators::new(initiators));
    Tenant { name: name.to_owned(), initiators }
}

fn claims(tenants: &[Tenant]) -> Claims {
    Claims::new(tenants, &Promises::default())
}

/// A host's whole name counts before a beginning of it, a longer beginning before a shorter one,
/// wherever they are in the file; a host that no tenant claims has none.
#[test]
fn the_most_specific_claim_counts() {
    let tenants = [
        tenant("a", &["iqn.x:*"]),
        tenant("b", &["iqn.x:db*", "iqn.y:1"]),
        tenant("c", &["iqn.x:db7"]),
        tenant("d", &[]),
    ];
    let claims = claims(&tenants);
    let of = |name: &str| claims.of(name).map(TenantId::index);
    assert_eq!(of("iqn.x:web"), Some(0));
    assert_eq!(of("iqn.x:db70"), Some(1));
    assert_eq!(of("iqn.x:db7"), Some(2));
    assert_eq!(of("iqn.y:1"), Some(1));
    assert_eq!(of("iqn.y:12"), None);
}

/// The commands that a contract needs at once are its rate times the shortest of its times, rounded
/// up: 3500 a second in 41 ms are 144.
#[test]
fn a_contract_needs_a_depth() {
    let contract = Contract::new(3_500, 4_096, Duration::from_millis(41));
    let mut faster = contract.clone();
    let half = Target { quantile_ppm: 500_000, response: Duration::from_millis(8) };
    faster.rows[0].targets.insert(0, half);
    let contracts = vec![None, Some(contract), Some(faster)];
    let claims = Claims::new(&[], &Promises { contracts, groups: Vec::new() });
    let depths = [0, 1, 2, 3].map(|id| claims.depth(TenantId::new(id)));
    assert_eq!(depths, [0, 144, 28, 0]);
}

/// Over a reload tenants keep their ids in whatever order they come; new ones come last, and those
/// that are gone keep their place without hosts or a contract.
#[test]
fn ids_are_kept() {
    let old = [tenant("a", &["iqn.a"]), tenant("b", &[]), tenant("c", &[])];
    let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(10)));
    let new = vec![tenant("n", &[]), tenant("c", &["iqn.c"]), tenant("b", &[])];
    let mut contracts = vec![contract(1), contract(2), None];
    let mut volumes = [2, 0, 1];
    let mut weights = [5, 6].map(|parts| Weight::from_1024ths(parts).unwrap()).to_vec();
    let tenants = keep_ids(&old, new, &mut contracts, &mut weights, volumes.iter_mut());
    let expected = [tenant("a", &[]), tenant("b", &[]), tenant("c", &["iqn.c"]), tenant("n", &[])];
    assert_eq!(tenants, expected);
    assert_eq!(contracts, [None, None, contract(2), contract(1)]);
    let weights: Vec<_> = weights.into_iter().map(Weight::as_1024ths).collect();
    assert_eq!(weights, [1_024, 1_024, 6, 5]);
    assert_eq!(volumes, [1, 3, 2]);
}
