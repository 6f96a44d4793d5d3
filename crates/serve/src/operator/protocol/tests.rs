use super::*;
use crate::config::Rejected;

/// The lines of the page's examples: requests, each with its answer.
fn examples() -> Vec<(&'static str, &'static str)> {
    let page = include_str!("../../../../../docs/reference/control-socket.md");
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines: Vec<_> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() % 2 == 0, "each request has an answer");
    lines.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Every request of the page is understood and every answer is one, byte by byte as they are written here.
#[test]
fn the_page_is_exact() {
    let examples = examples();
    for (asked, answered) in &examples {
        let request =
            Request::parse(asked.as_bytes()).unwrap_or_else(|why| panic!("{asked}: {why}"));
        assert_eq!(Line::of(request).trim_end(), *asked);
        let answer: Line<Answer> = serde_json::from_str(answered).unwrap();
        assert_eq!(Line::of(answer.said).trim_end(), *answered);
    }
    let verbs = [
        "status",
        "path.list",
        "path.disable",
        "path.enable",
        "path.failback",
        "volume.list",
        "volume.drain",
        "volume.resume",
        "volume.retry",
        "volume.quarantine",
        "volume.move_look",
        "volume.move_out",
        "volume.move_in",
        "volume.move_cancel",
        "reload",
        "apply",
        "metrics",
        "stop",
    ];
    for verb in verbs {
        let verb = format!("\"do\":\"{verb}\"");
        assert!(examples.iter().any(|(asked, _)| asked.contains(&verb)), "{verb} has an example");
    }
}

/// Every reason to refuse something is on the page, and says what to do; those that the page quotes say what
/// they say there.
#[test]
fn refusals_are_documented() {
    let page = include_str!("../../../../../docs/reference/control-socket.md");
    let refused = |line: &[u8]| Request::parse(line).unwrap_err();
    let (backend, path) = ("array".to_owned(), 0);
    let last = Refusal::LastPath { backend: backend.clone(), path };
    let known = vec![backend.clone(), "disk".to_owned()];
    let unknown = Refusal::UnknownBackend { name: "aray".to_owned(), known };
    for refusal in [
        refused(b"x"),
        refused(b"{}"),
        refused(b"{\"version\":9}"),
        refused(b"{\"version\":1}"),
        Refusal::TooLong,
        Refusal::Rejected(Rejected::Invalid(vec!["weir.toml:1:1: no key".to_owned()])),
        Refusal::Rejected(Rejected::NeedsRestart(vec!["[cache] differs".to_owned()])),
        Refusal::Rejected(Rejected::InUse(vec!["volume `d` is in use by a host".to_owned()])),
        Refusal::Rejected(Rejected::Shrinks(vec!["volume `d` would shrink".to_owned()])),
        Refusal::Rejected(Rejected::Unavailable(vec!["no space".to_owned()])),
        Refusal::Unfinished,
        Refusal::UnknownPath { backend, path: 7, count: 2 },
        Refusal::UnknownVolume { name: String::new(), known: Vec::new() },
        Refusal::NothingLost { volume: String::new() },
        Refusal::NotMovable { volume: String::new() },
        Refusal::Moving { volume: String::new(), state: "owner" },
        Refusal::OtherUnit { volume: String::new(), here: String::new(), there: String::new() },
        Refusal::HostReservation { volume: String::new() },
        Refusal::NoKey { key: String::new() },
        Refusal::Busy,
        Refusal::Stopping,
    ] {
        let Answer::Error(problem) = (&refusal).into() else { panic!("{refusal:?}") };
        assert!(page.contains(&format!("| `{}` | ", problem.code)), "{problem:?}");
        assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{problem:?}");
    }
    for refusal in [last, unknown, Refusal::NoLog { volume: "v0".to_owned() }] {
        let line = Line::of(Answer::from(&refusal));
        assert!(page.contains(&line), "{line}");
    }
}

/// A client that knows less than the gateway passes over what it does not know.
#[test]
fn answers_may_grow() {
    let line = "{\"version\":1,\"new\":[],\"error\":{\"code\":\"c\",\"message\":\"m\",\"help\":\"h\",\"more\":1}}";
    let answer: Line<Answer> = serde_json::from_str(line).unwrap();
    let Answer::Error(problem) = answer.said else { panic!("{answer:?}") };
    assert_eq!(problem.code, "c");
}
