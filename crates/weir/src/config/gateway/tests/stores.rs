//! Volumes on several stores.

use super::*;
use weir_serve::config::Layout;

/// A gateway with three stores, two of them with a size, and a volume with these keys.
fn on_stores(volume: &str) -> Source {
    let store = |name: &str, more: &str| {
        format!("[[store]]\nname = \"{name}\"\nfile = \"{name}.img\"\n{more}\n")
    };
    let (a, b) = (store("a", "size = \"1GiB\""), store("b", "size = \"2GiB\"\nio = \"direct\""));
    at(
        "nowhere/weir.toml",
        &format!(
            "{a}{b}{}[[volume]]\nname = \"d\"\n{volume}\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = {{ 0 = \"d\" }}\n",
            store("c", "")
        ),
    )
}

/// Several stores make a volume, in their order and either layout, and each diagnostic in how they do is at
/// its place.
#[test]
fn diagnostics_of_stores() {
    let config = good(&on_stores("stores = [\"b\", \"a\", \"c\"]\nlayout = \"concat\""));
    let volume = &config.volumes[0];
    let stores: Vec<_> = volume.files().map(|file| (file.name.as_str(), file.size)).collect();
    assert_eq!(stores, [("b", Some(2 << 30)), ("a", Some(1 << 30)), ("c", None)]);
    assert_eq!((volume.layout, &volume.state), (Layout::Concat, &None));
    let striped = |more: &str| format!("stores = [\"c\", \"a\"]\nlayout = \"stripe\"\n{more}");
    let chunk = |more: &str| good(&on_stores(&striped(more))).volumes[0].layout;
    assert_eq!(chunk(""), Layout::Stripe { chunk: 64 << 10 });
    assert_eq!(chunk("chunk = \"16MiB\""), Layout::Stripe { chunk: 16 << 20 });
    assert_eq!(good(&on_stores("stores = \"c\"")).volumes[0].layout, Layout::Concat);
    let warned = warnings(&on_stores(&striped("")));
    assert_eq!(warned, ["no volume is on store `b`"]);
    for (volume, code, text) in [
        ("stores = []", Code::BadValue, "[]"),
        ("stores = [\"x\"]", Code::Dangling, "\"x\""),
        ("stores = [\"a\", \"c\"]", Code::MissingKey, "[\"a\", \"c\"]"),
        ("stores = \"c\"\nlayout = \"stripe\"", Code::Conflict, "\"stripe\""),
        ("stores = \"c\"\nlayout = \"raid5\"", Code::BadValue, "\"raid5\""),
        ("stores = \"c\"\nchunk = \"8KiB\"", Code::Conflict, "\"8KiB\""),
        ("stores = [\"c\", \"a\"]\nlayout = \"concat\"", Code::MissingKey, "[[store]]"),
        ("stores = \"c\"\nfile = \"f\"", Code::Conflict, "\"f\""),
        ("stores = \"c\"\nsize = \"1GiB\"", Code::Conflict, "\"1GiB\""),
        ("stores = \"a\"\nstate = \"s\"\natomic = true", Code::Conflict, "true"),
        ("stores = \"a\"\nsanitize = true", Code::MissingKey, "true"),
        ("file = \"f\"\nlayout = \"stripe\"", Code::Conflict, "\"stripe\""),
        ("file = \"f\"\nchunk = \"8KiB\"", Code::Conflict, "\"8KiB\""),
        ("file = \"./a.img\"", Code::Duplicate, "\"./a.img\""),
        ("stores = \"c\"\nstate = \"a.img\"", Code::Duplicate, "\"a.img\""),
        ("stores = \"a\"\n[[volume]]\nname = \"e\"\nstores = \"a\"", Code::Duplicate, "\"a\""),
        ("stores = \"c\"\n[[store]]\nname = \"c\"\nfile = \"x\"", Code::Duplicate, "\"c\""),
        ("stores = \"c\"\n[[store]]\nname = \"x\"", Code::MissingKey, "[[store]]"),
        ("stores = \"c\"\n[[store]]\nname = \"x\"\nupstream = \"y\"", Code::Dangling, "\"y\""),
        (
            "stores = \"x\"\n[[store]]\nname = \"x\"\nfile = \"x\"\nsize = 1000",
            Code::Conflict,
            "1000",
        ),
    ] {
        check(&on_stores(volume), code, text);
    }
    for (more, code, text) in [
        ("chunk = \"12KiB\"", Code::BadValue, "\"12KiB\""),
        ("chunk = \"2KiB\"", Code::OutOfRange, "\"2KiB\""),
        ("chunk = \"32MiB\"", Code::OutOfRange, "\"32MiB\""),
    ] {
        check(&on_stores(&striped(more)), code, text);
    }
    let twice = on_stores("stores = [\"a\", \"a\"]\nlayout = \"stripe\"");
    assert_eq!(
        diagnostics(&twice),
        ["store `a` is used twice", "a stripe needs two stores or more"]
    );
    let many = vec!["\"a\""; 65].join(", ");
    let many = on_stores(&format!("stores = [{many}]\nlayout = \"stripe\""));
    assert_eq!(diagnostics(&many)[0], "`stores` has 65 entries");
}

/// The messages of the diagnostics of a file.
fn diagnostics(source: &Source) -> Vec<String> {
    let diagnostics = gateway(source).map(|_| ()).unwrap_err().into_iter();
    diagnostics
        .filter(|diagnostic| !diagnostic.code.is_warning())
        .map(|diagnostic| diagnostic.message)
        .collect()
}

/// An upstream is one volume's or one store's, and has no keys of a file; its size may be written for a
/// store.
#[test]
fn diagnostics_of_stores_on_upstreams() {
    let portals = "portals = \"192.0.2.1:3260\"";
    let store = |more: &str| format!("[[store]]\nname = \"s\"\nupstream = \"a\"\n{more}\n");
    let two = "\n[[upstream]]\nname = \"b\"\ntarget = \"iqn.2026-11.org.example:b\"\n";
    let with = |more: &str| {
        let upstreams = format!("{portals}{two}{portals}\n{}", store("").replace("\"a\"", "\"b\""));
        let upstreams =
            upstreams.replace("upstream = \"b\"\n", &format!("upstream = \"b\"\n{more}"));
        on_upstream(&upstreams, "[[volume]]\nname = \"e\"\nstores = \"s\"")
    };
    let config = good(&with("size = \"1GiB\""));
    assert_eq!(config.volumes[1].stores, [Where::Upstream { index: 1, size: Some(1 << 30) }]);
    check(&with("io = \"direct\""), Code::Conflict, "\"direct\"");
    check(&on_upstream(&format!("{portals}\n{}", store("")), ""), Code::Duplicate, "\"a\"");
}
