//! Volumes in memory, and null volumes.

use super::*;
use weir_serve::config::MemoryStore;

/// A gateway with one volume of these keys.
fn on(volume: &str) -> Source {
    at(
        "nowhere/weir.toml",
        &format!(
            "[[volume]]\nname = \"d\"\n{volume}\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = {{ 0 = \"d\" }}\n"
        ),
    )
}

fn memory(name: &str, size: u64, keeps: bool) -> Where {
    Where::Memory(MemoryStore { name: name.to_owned(), size, keeps })
}

/// A volume is in memory or nowhere, alone or on several stores; it has no state, and whatever promises that something
/// outlives the gateway is refused at its place, as are keys of another place.
#[test]
fn memory_promises_nothing() {
    for (key, keeps) in [("memory", true), ("null", false)] {
        let config = good(&on(&format!("{key} = \"64MiB\"")));
        let volume = &config.volumes[0];
        assert_eq!(volume.stores, [memory("d", 64 << 20, keeps)]);
        assert_eq!((&volume.state, &volume.log), (&None, &None));
    }
    let several = |more: &str| {
        let store = |name: &str, place: &str| format!("[[store]]\nname = \"{name}\"\n{place}\n");
        let (a, b) = (store("a", "memory = \"1MiB\""), store("b", "null = \"2MiB\""));
        let c = store("c", "file = \"c.img\"");
        on(&format!("stores = [\"a\", \"b\", \"c\"]\nlayout = \"concat\"\n{more}\n{a}{b}{c}"))
    };
    let config = good(&several(""));
    let stores = &config.volumes[0].stores;
    assert_eq!(stores[..2], [memory("a", 1 << 20, true), memory("b", 2 << 20, false)]);
    for (key, text) in [
        ("state = \"s\"", "\"s\""),
        ("log = \"l\"", "\"l\""),
        ("sanitize = true", "true"),
        ("atomic = true", "true"),
    ] {
        check(&several(key), Code::Conflict, text);
        check(&on(&format!("memory = \"1MiB\"\n{key}")), Code::Conflict, text);
        check(&on(&format!("null = \"1MiB\"\n{key}")), Code::Conflict, text);
    }
    for (keys, code, text) in [
        ("file = \"f\"", Code::Conflict, "\"f\""),
        ("upstream = \"u\"", Code::Conflict, "\"u\""),
        ("backend = \"b\"", Code::Conflict, "\"b\""),
        ("size = \"2MiB\"", Code::Conflict, "\"2MiB\""),
        ("io = \"direct\"", Code::Conflict, "\"direct\""),
        ("null = \"2MiB\"", Code::Conflict, "\"2MiB\""),
        ("ack = \"log\"", Code::MissingKey, "\"log\""),
        ("block_size = 4096\nphysical_block_size = 512", Code::Conflict, "512"),
    ] {
        check(&on(&format!("memory = \"1MiB\"\n{keys}")), code, text);
    }
    for (keys, code, text) in [
        ("memory = 1000", Code::Conflict, "1000"),
        ("memory = \"2TiB\"", Code::OutOfRange, "\"2TiB\""),
        ("null = 0", Code::OutOfRange, "0"),
        ("memory = true", Code::WrongType, "true"),
        (
            "stores = \"x\"\nmemory = \"1MiB\"\n[[store]]\nname = \"x\"\nnull = 512",
            Code::Conflict,
            "\"1MiB\"",
        ),
    ] {
        check(&on(keys), code, text);
    }
}
