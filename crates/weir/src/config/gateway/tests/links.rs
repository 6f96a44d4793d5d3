use super::*;

/// A link has addresses that are listened on, each on one link, and a rate that moves something.
#[test]
fn a_link_is_where_somebody_listens() {
    let file = |listen: &str, link: &str| {
        let text = format!(
            "[iscsi]\nlisten = [{listen}]\n[[link]]\nname = \"front\"\nbandwidth = \"6MB/s\"\n{link}"
        );
        top(text.leak()).source()
    };
    let two = "\"127.0.0.1:1\", \"127.0.0.1:2\"";
    let config = good(&file(two, "listen = [\"127.0.0.1:2\"]"));
    assert_eq!(config.links.len(), 1);
    assert_eq!(config.links[0].listen, ["127.0.0.1:2".parse().unwrap()]);
    assert_eq!(config.links[0].bandwidth.bytes_per_second(), 6_000_000);
    let elsewhere = file(two, "listen = [\"127.0.0.1:3\"]");
    check(&elsewhere, Code::Dangling, "\"127.0.0.1:3\"");
    check(&file(two, "listen = [\"here\"]"), Code::BadValue, "\"here\"");
    let twice = "listen = [\"127.0.0.1:1\"]\n[[link]]\nname = \"back\"\nbandwidth = \"6MB/s\"\n\
                 listen = [\"127.0.0.1:2\", \"127.0.0.1:1\"]";
    let source = file(two, twice);
    let diagnostics = gateway(&source).map(|_| ()).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    assert_eq!(diagnostics[0].code, Code::Duplicate);
    assert!(diagnostics[0].see.is_some());
    check(&file(two, "listen = []"), Code::OutOfRange, "[]");
    let same = "listen = [\"127.0.0.1:1\"]\n[[link]]\nname = \"front\"\nbandwidth = \"6MB/s\"\n\
                listen = [\"127.0.0.1:2\"]";
    check(&file(two, same), Code::Duplicate, "\"front\"");
    let slow = file(two, "listen = [\"127.0.0.1:1\"]").text.replace("6MB/s", "6KiB/s");
    check(&at("nowhere/weir.toml", &slow), Code::OutOfRange, "\"6KiB/s\"");
}
