use super::*;
use crate::testing;
use crate::units::Extent;

fn good() -> Contract {
    Contract::new(IOPS_MAX, SIZE_MAX, RESPONSE_MAX)
}

/// A way to spoil a contract.
type Change = fn(&mut Contract);

/// Each limit holds at its end and is named past it.
#[test]
fn ranges_end_where_they_say() {
    assert_eq!(good().validate(), Ok(()));
    let changes: [(Change, &str); 15] = [
        (|c| c.rows.clear(), "no row"),
        (|c| c.rows = vec![c.rows[0].clone(); 17], "more than 16"),
        (|c| c.rows[0].iops = 0, "rate"),
        (|c| c.rows[0].iops = IOPS_MAX + 1, "rate"),
        (|c| c.rows[0].size = 0, "size"),
        (|c| c.rows[0].size = SIZE_MAX + 1, "size"),
        (|c| c.rows[0].targets.clear(), "no response time"),
        (|c| c.rows[0].targets[0].response = Duration::ZERO, "response"),
        (|c| c.rows[0].targets[0].response = RESPONSE_MAX + RESPONSE_MIN, "response"),
        (|c| c.rows[0].targets[0].quantile_ppm = 1_000_000, "quantile"),
        (|c| c.burst = Duration::ZERO, "burst"),
        (|c| c.credit = CREDIT_MAX + RESPONSE_MIN, "credit"),
        (|c| c.peak_permille = 999, "peak"),
        (|c| c.limit = Some(IOPS_MAX - 1), "limit"),
        (|c| c.weight = 0, "weight"),
    ];
    for (change, word) in changes {
        let mut bad = good();
        change(&mut bad);
        assert!(bad.validate().is_err_and(|message| message.contains(word)), "{word}: {bad:?}");
    }
}

/// Rows of one operation must ascend in size and not in rate, targets in share and not descend in time.
#[test]
fn rows_and_targets_are_in_order() {
    let row = |ops, size, iops| Row { ops, size, iops, ..good().rows[0].clone() };
    let with = |rows: &[Row]| Contract { rows: rows.to_vec(), ..Contract::new(9, 1, RESPONSE_MAX) };
    let message = |rows: &[Row]| with(rows).validate().err().unwrap_or("");
    assert_eq!(message(&[row(Ops::Read, 4_096, 9), row(Ops::Write, 4_096, 5)]), "");
    assert!(
        message(&[row(Ops::Any, 4_096, 9), row(Ops::Read, 4_096, 5)]).contains("order of size")
    );
    assert!(message(&[row(Ops::Any, 4_096, 9), row(Ops::Any, 8_192, 10)]).contains("higher rate"));
    let loaded = |load| Row { load_permille: load, ..row(Ops::Any, 4_096, 9) };
    assert_eq!(message(&[loaded(Some(500)), loaded(Some(501)), loaded(None)]), "");
    assert!(message(&[loaded(Some(500)), loaded(Some(500))]).contains("order of load"));
    assert!(message(&[loaded(None), loaded(None)]).contains("order of load"));
    assert!(message(&[loaded(Some(0))]).contains("load"));
    assert!(message(&[loaded(Some(LOAD_MAX + 1))]).contains("load"));
    let mut targets = row(Ops::Any, 1, 9);
    let late = targets.targets[0];
    targets.targets.push(Target { quantile_ppm: 999_000, response: RESPONSE_MIN });
    assert!(message(&[targets.clone()]).contains("shorter time"));
    targets.targets[1] = late;
    assert!(message(&[targets]).contains("shorter time"));
}

/// A request falls under the smallest row that holds it, or the largest, of those for its operation.
#[test]
fn a_request_finds_its_row() {
    let row = |ops, size| Row { ops, size, iops: 1, ..good().rows[0].clone() };
    let rows = vec![row(Ops::Read, 4_096), row(Ops::Write, 4_096), row(Ops::Read, 65_536)];
    let contract = Contract { rows, ..good() };
    let of = |op, bytes| {
        let extent = Extent::new(0, bytes);
        contract.row(&Request { op, extent, ..testing::request(0) }, 0)
    };
    assert_eq!([512, 4_096, 4_097, 1 << 20].map(|n| of(Op::Read, n)), [0, 0, 2, 2].map(Some));
    assert_eq!(of(Op::Write, 1 << 20), Some(1));
    let reads = Contract { rows: vec![row(Ops::Read, 4_096)], ..good() };
    let write = Request { op: Op::Write, ..testing::request(0) };
    assert_eq!(reads.row(&write, 0), None);
}

/// A group must come before its members, and not promise them more than it has.
#[test]
fn groups_are_checked() {
    let group = |parent| Group { parent, iops: 100, size: 4_096, limit: None, weight: 1 };
    let member = |iops, size, group| {
        let contract = Contract::new(iops, size, RESPONSE_MAX);
        Some(Contract { group: Some(group), ..contract })
    };
    let message = |contracts: &[Option<Contract>], groups: &[Group]| {
        Promises { contracts: contracts.to_vec(), groups: groups.to_vec() }
            .validate()
            .err()
            .unwrap_or("")
    };
    let groups = [group(None), group(Some(0))];
    assert_eq!(message(&[member(20, 16_384, 1), member(20, 512, 1)], &groups), "");
    assert!(
        message(&[member(20, 16_384, 1), member(21, 512, 1)], &groups).contains("more than it has")
    );
    assert!(message(&[member(1, 1, 2)], &groups).contains("not there"));
    assert!(message(&[], &[group(Some(0))]).contains("before it"));
    let chain: Vec<Group> = [None].into_iter().chain((0..8).map(Some)).map(group).collect();
    assert!(message(&[], &chain).contains("deep") && message(&[], &chain[..8]).is_empty());
}
