use crate::config::diagnostic::Code;
use crate::config::source::Source;
use crate::config::{gateway, plan};

/// A gateway with these tables, a policy that looks at contracts, and a volume of tenant `d`.
fn with(tables: &str) -> Source {
    let text = format!(
        "[policy]\ncontrol = \"slack\"\n{tables}\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
         [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns.0 = \"d\"\n"
    );
    Source::new("weir.toml", text)
}

/// A tenant `d` with these keys.
fn tenant(keys: &str) -> Source {
    with(&format!("[[tenant]]\nname = \"d\"\n{keys}\n"))
}

/// A tenant `d` with these keys besides a contract of 100 requests a second.
fn promised(keys: &str) -> Source {
    tenant(&format!("objectives = [{{ size = \"4KiB\", iops = 100, p99 = \"9ms\" }}]\n{keys}"))
}

/// There is one diagnostic, of this code at this text, and it says what to do.
#[track_caller]
fn only(source: &Source, code: Code, at: &str) -> String {
    let diagnostics = gateway(source).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{}: {diagnostics:?}", source.text);
    let diagnostic = &diagnostics[0];
    assert_eq!(diagnostic.code, code, "{diagnostic:?}");
    assert!(diagnostic.help.is_some(), "{diagnostic:?}");
    let (span, _) = diagnostic.at.as_ref().unwrap();
    assert_eq!(&source.text[span.clone()], at);
    diagnostic.message.clone()
}

/// Each thing that can be wrong with the rows is one diagnostic at its place.
#[test]
fn each_diagnostic_of_a_row_is_noticed() {
    let cases = [
        ("5", Code::WrongType, "5"),
        ("[]", Code::BadValue, "[]"),
        ("[7]", Code::WrongType, "7"),
        ("[{ size = 1, iops = 1, p99 = \"1s\", burst = 1 }]", Code::UnknownKey, "burst"),
        ("[{ op = \"raed\", size = 1, iops = 1, p99 = \"1s\" }]", Code::BadValue, "\"raed\""),
        ("[{ size = \"2GiB\", iops = 1, p99 = \"1s\" }]", Code::OutOfRange, "\"2GiB\""),
        ("[{ size = 1, iops = 0, p99 = \"1s\" }]", Code::OutOfRange, "0"),
        ("[{ size = 1, iops = 1, p99 = \"2h\" }]", Code::OutOfRange, "\"2h\""),
        ("[{ size = 1, iops = 1, p99 = 41 }]", Code::BadUnit, "41"),
        ("[{ iops = 1, p99 = \"1s\" }]", Code::MissingKey, "{ iops = 1, p99 = \"1s\" }"),
        ("[{ size = 1, p99 = \"1s\" }]", Code::MissingKey, "{ size = 1, p99 = \"1s\" }"),
        ("[{ size = 1, iops = 1 }]", Code::MissingKey, "{ size = 1, iops = 1 }"),
        ("[{ size = 1, iops = 1, p99 = \"1s\", p50 = \"2s\" }]", Code::Conflict, "\"1s\""),
        (
            "[{ size = 4, iops = 2, p99 = \"1s\" }, { size = 3, iops = 1, p99 = \"1s\" }]",
            Code::Conflict,
            "3",
        ),
        (
            "[{ op = \"write\", size = 4, iops = 2, p99 = \"1s\" }, \
             { size = 5, iops = 3, p99 = \"1s\" }]",
            Code::Conflict,
            "3",
        ),
    ];
    for (rows, code, at) in cases {
        only(&tenant(&format!("objectives = {rows}")), code, at);
    }
    let row = "{ size = 1, iops = 1, p99 = \"1s\" }";
    let many = tenant(&format!("objectives = [{}]", vec![row; 17].join(", ")));
    let diagnostics = gateway(&many).unwrap_err();
    assert!(
        diagnostics.iter().any(|diagnostic| diagnostic.code == Code::OutOfRange),
        "{diagnostics:?}"
    );
}

/// Rows of one operation, size and rate differ in the load up to which they hold, in ascending
/// order; the last one may hold always.
#[test]
fn bands_of_load_are_in_order() {
    let row = |load: &str| format!("{{ size = 4, iops = 2, {load} p99 = \"1s\" }}");
    let rows = |a: &str, b: &str| tenant(&format!("objectives = [{}, {}]", row(a), row(b)));
    let read = gateway(&rows("load = 0.5,", "")).unwrap();
    let contract = read.checked.promises.contracts[0].as_ref().unwrap();
    let loads: Vec<_> = contract.rows.iter().map(|row| row.load_permille).collect();
    assert_eq!(loads, [Some(500), None]);
    only(&rows("load = 0.5,", "load = 0.25,"), Code::Conflict, "0.25");
    only(&rows("load = 0.5,", "load = 0.50,"), Code::Conflict, "0.50");
    only(&rows("load = 0.0001,", ""), Code::OutOfRange, "0.0001");
    only(&rows("load = 0.12345,", ""), Code::BadValue, "0.12345");
    only(&rows("load = 11.0,", ""), Code::OutOfRange, "11.0");
}

/// The file of burst credits is no file of a volume.
#[test]
fn savings_have_a_file_of_their_own() {
    let kept = |file: &str| with(&format!("[burst_credits]\nfile = \"{file}\"\n"));
    let config = gateway(&kept("kept")).unwrap().checked;
    let volume = &config.volumes[0];
    assert!(config.savings.is_some());
    for file in [&volume.file().unwrap().path, volume.state.as_ref().unwrap()] {
        let name = file.file_name().unwrap().to_str().unwrap();
        only(&kept(&format!("./{name}")), Code::Duplicate, &format!("\"./{name}\""));
    }
}

/// Rows for reads and rows for writes are ordered apart.
#[test]
fn operations_have_orders_of_their_own() {
    let rows = "objectives = [{ op = \"read\", size = 4, iops = 2, p99 = \"1s\" }, \
                { op = \"write\", size = 3, iops = 9, p99 = \"1s\" }]";
    assert!(gateway(&tenant(rows)).is_ok());
}

/// Each thing that can be wrong with a tenant or a group is one diagnostic at its place.
#[test]
fn each_diagnostic_of_a_table_is_noticed() {
    only(&promised("group = \"gold\""), Code::Dangling, "\"gold\"");
    only(&promised("max_iops = 99"), Code::Conflict, "99");
    only(&promised("burst = \"999us\""), Code::OutOfRange, "\"999us\"");
    only(&promised("peak = 0.9"), Code::OutOfRange, "0.9");
    only(&promised("peak = 1.2345"), Code::BadValue, "1.2345");
    only(&promised("tier = \"lead\""), Code::BadValue, "\"lead\"");
    only(&tenant("tier = \"gold\""), Code::Conflict, "\"gold\"");
    only(&tenant("[[tenant]]\nname = \"d\""), Code::Duplicate, "\"d\"");
    only(&tenant("initiators = [\"host\"]"), Code::BadValue, "\"host\"");
    let group = |keys: &str| with(&format!("[[group]]\nname = \"a\"\niops = 10\n{keys}\n"));
    only(&group("max_iops = 9"), Code::Conflict, "9");
    only(&group("parent = \"a\""), Code::Conflict, "\"a\"");
    only(&group("parent = \"b\""), Code::Dangling, "\"b\"");
    let later = "parent = \"b\"\n[[group]]\nname = \"b\"\niops = 10\n";
    only(&group(later), Code::Conflict, "\"b\"");
    let nested = |n| format!("[[group]]\nname = \"g{n}\"\nparent = \"g{}\"\niops = 1\n", n - 1);
    let deep = |depth| {
        let below: String = (1..depth).map(nested).collect();
        with(&format!("[[group]]\nname = \"g0\"\niops = 1\n{below}"))
    };
    assert!(gateway(&deep(8)).is_ok());
    only(&deep(9), Code::OutOfRange, "\"g7\"");
}

/// A group that promises more than it has is named with both figures, in requests of the group's size:
/// one of 8 KiB counts as two of 4 KiB, one of 512 bytes as one.
#[test]
fn what_is_oversold_is_told_with_its_sums() {
    let tables = |iops| {
        with(&format!(
            "[[group]]\nname = \"all\"\niops = {iops}\n\
             [[group]]\nname = \"part\"\nparent = \"all\"\niops = 300\n\
             [[tenant]]\nname = \"d\"\ngroup = \"all\"\n\
             objectives = [{{ size = \"8KiB\", iops = 100, p99 = \"9ms\" }}]\n\
             [[tenant]]\nname = \"e\"\ngroup = \"all\"\ninitiators = [\"iqn.*\"]\n\
             objectives = [{{ size = 512, iops = 50, p99 = \"9ms\" }}]\n"
        ))
    };
    assert!(gateway(&tables(550)).unwrap().warnings.is_empty());
    let message = only(&tables(549), Code::Conflict, "549");
    let expected =
        "group `all` has 549 requests of 4KiB a second, and its members are promised 550";
    assert_eq!(message, expected);
}

/// No two tenants claim the same initiators; one that claims more of them than another is the other's
/// remainder.
#[test]
fn a_host_is_one_tenant() {
    let both = |a: &str, b: &str| {
        let table = |name: &str, initiators: &str| {
            format!("[[tenant]]\nname = \"{name}\"\ninitiators = [{initiators}]\n")
        };
        with(&format!("{}{}", table("d", a), table("e", b)))
    };
    let (one, all) = ("\"iqn.2026-11.org.example:a\"", "\"iqn.2026-11.org.example:*\"");
    assert!(gateway(&both(all, one)).unwrap().warnings.is_empty());
    only(&both(one, one), Code::Duplicate, one);
    only(&both(all, &format!("{one}, {all}")), Code::Duplicate, all);
}

/// Contracts that no policy enforces, tenants without requests and initiators that see nothing are odd
/// but not wrong.
#[test]
fn promises_to_nobody_are_warnings() {
    let messages = |source: &Source| -> Vec<String> {
        let warnings = gateway(source).unwrap().warnings;
        warnings.into_iter().map(|diagnostic| diagnostic.message).collect()
    };
    assert!(messages(&promised("")).is_empty());
    let open = promised("").text.replace("slack", "open");
    let expected = "no policy enforces this contract: the policy of `control` is `open`";
    assert_eq!(messages(&Source::new("weir.toml", open)), [expected]);
    let unknown = with("[[tenant]]\nname = \"e\"\n");
    assert_eq!(messages(&unknown), ["no host or volume is of tenant `e`"]);
    let blind = tenant("initiators = [\"iqn.2026-11.org.example:a\"]").text;
    let blind = blind.replace("luns.0", "initiators = [\"iqn.2026-11.org.example:b\"]\nluns.0");
    let expected = "none of these initiators sees a volume";
    assert_eq!(messages(&Source::new("weir.toml", blind)), [expected]);
}

/// A plan has the same tables, and no hosts with names.
#[test]
fn a_plan_has_no_initiators() {
    let text = "[[tenant]]\nname = \"w\"\ninitiators = [\"iqn.*\"]\n[run]\nrequests = 1\n\
                [[backend]]\nname = \"b\"\n[[volume]]\nname = \"v\"\nsize = \"1GiB\"\n\
                [[workload]]\nname = \"w\"\narrivals = \"poisson\"\nrate = \"1/s\"\n";
    let diagnostics = plan(&Source::new("plan.toml", text.to_owned())).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    assert_eq!(diagnostics[0].message, "`[[tenant]]` has no key `initiators`");
}
