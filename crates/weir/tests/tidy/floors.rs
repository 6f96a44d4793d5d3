//! Holds the floors of `serve` and the order of folders in `flow` and `sim`.
//!
//! The rules are over the `use` lines and the inline paths of code that is not a test. They are the tables of
//! decisions 14, 15 and 22. A violation that exists is in a list of its own with its reason; those lists only
//! shrink: an entry that no longer stands for anything fails the test, too.

use super::text::Source;
use super::{root, rust_files};
use std::collections::{BTreeMap, BTreeSet};

/// Rooms of `serve`, as folders or files, the rooms that they must not know, and why. `""` is the crate's root.
const FLOORS: &[(&[&str], &[&str], &str)] = &[
    (
        &[
            "aged", "buffer", "clock", "config", "folder", "identity", "ids", "limits", "peer_log",
            "service", "source",
        ],
        &["storage", "volume", "tasks", "frontend", "operator", "shard"],
        "the ground floor is for all rooms, so it depends on none",
    ),
    (
        &["isns"],
        &["storage", "volume", "tasks", "frontend", "operator", "shard"],
        "name servers are told addresses and names; they know no volume and no host",
    ),
    (
        &["storage"],
        &["volume", "tasks", "frontend", "operator", "shard"],
        "a backend takes StorageSubmit and returns StorageDone; it knows no command and no host",
    ),
    (
        &["volume"],
        &["tasks", "frontend", "operator", "shard"],
        "volumes are what commands work on; they know no command in progress and no connection",
    ),
    (
        &["tasks"],
        &["frontend", "operator", "shard"],
        "a command comes as a TaskKind and leaves as a Reply, whatever protocol carried it",
    ),
    (
        &["frontend"],
        &["storage", "operator", "shard"],
        "a front end talks to tasks and volumes; where data is stored is not its business",
    ),
    (
        &["operator"],
        &["shard"],
        "operators read a View and return a Reaction; the event loop is above them",
    ),
    (
        &[
            "frontend/iscsi",
            "frontend/nbd",
            "frontend/nvme",
            "frontend/nvme_namespaces",
            "frontend/nvme_queue",
            "frontend/connection",
            "frontend/session_view",
        ],
        &["frontend/channel", "frontend/listener", "frontend/tls", "frontend/unix_socket"],
        "a protocol turns bytes into commands, wherever the bytes come from",
    ),
    (
        &["shard/accept", "shard/connections", "shard/kernel", "shard/operators", "shard/stop"],
        &["shard/linux", "shard/open", "shard/signals", "shard/timer"],
        "the event loop runs on any Kernel",
    ),
    (
        &["storage", "volume", "tasks", "frontend", "operator"],
        &[""],
        "the crate's root has the errors of all rooms; a room has its own error type",
    ),
];

/// Violations of [`FLOORS`] that exist: file, what it uses, and why.
const FLOORS_LEFT: &[(&str, &str, &str)] = &[];

/// What reaches the operating system: crates, modules and functions.
const SYSTEM: [&str; 17] = [
    "getrandom",
    "io_uring",
    "libc",
    "mio",
    "rustix",
    "signal_hook",
    "socket2",
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os::unix::net",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// The files of `serve` that may use [`SYSTEM`]: all others run without a kernel.
const DRIVERS: &[(&str, &str)] = &[
    ("clock", "reads the clock"),
    ("folder", "asks what the process may do in a folder"),
    ("frontend/listener", "listens"),
    ("frontend/socket", "reads and writes connections of hosts"),
    ("frontend/unix_socket", "listens on a file"),
    ("identity", "reads the machine's identity"),
    ("isns/caller", "reads and answers what iSNS servers call back"),
    ("isns/keeper", "waits for iSNS servers beside the event loop"),
    ("isns/server", "connects to iSNS servers"),
    ("operator/http/server", "serves clients over HTTP"),
    ("operator/metrics/process", "reads the limits and the memory of the process"),
    ("operator/metrics/scraper", "writes metrics to clients of the control socket"),
    ("operator/socket", "talks to clients of the control socket"),
    ("preflight", "tries out what `config check` is asked about"),
    ("service", "talks to the service manager"),
    ("shard/core_dumps", "forbids core dumps"),
    ("shard/descriptors", "raises the limit of open files"),
    ("shard/linux", "waits for events"),
    ("shard/open", "makes the event loop's kernel"),
    ("shard/recorder", "writes a recording"),
    ("shard/signals", "receives signals"),
    ("shard/timer", "arms a timerfd"),
    ("storage/blocking", "runs calls that block"),
    ("storage/file", "maps error numbers of the kernel"),
    ("storage/file/atomic_journal", "reads and writes the journal at the start"),
    ("storage/file/backing", "opens files and devices"),
    ("storage/file/lock", "locks files"),
    ("storage/file/threads", "reads and writes files by threads"),
    ("storage/file/uring", "reads and writes files by io_uring"),
    ("storage/io", "maps error numbers of the kernel"),
    ("storage/log_device/inspect", "reads a log offline"),
    ("storage/log_device/log", "opens a log"),
    ("storage/memory", "frees the pages of a volume that has gone by a thread"),
    ("storage/log_device/opener", "opens logs beside the event loop"),
    ("storage/log_device/pages", "reads a log at the start"),
    ("storage/random", "asks the kernel for random bytes"),
    ("storage/state_file", "saves and loads small files"),
    ("storage/upstream/network", "connects to upstreams and waits for their events"),
];

/// Files that use [`SYSTEM`] and should not: why they do.
const DRIVERS_LEFT: &[(&str, &str)] = &[
    ("", "makes the event queue, on which upstreams are connected before the shard exists"),
    ("tasks/blocking_calls", "hands the open file of a volume to a helper thread"),
    ("volume", "hands the open file of a volume to a helper thread"),
];

/// Circles among the files and folders of one folder that exist: crate, folder, members.
const CIRCLES_LEFT: &[(&str, &str, &[&str])] = &[];

/// The path of a module: `["storage", "io"]`; empty for the crate's root.
type Module = Vec<String>;

/// The code of a crate without tests, by module.
struct Crate {
    code: BTreeMap<Module, String>,
}

/// What a module uses.
struct Uses {
    /// Modules of its crate.
    own: BTreeSet<Module>,
    /// Other paths of `use` lines.
    other: BTreeSet<String>,
}

impl Crate {
    fn read(name: &str) -> Self {
        let source = root().join("crates").join(name).join("src");
        let mut code = BTreeMap::new();
        for file in rust_files(&source) {
            let inner = file.strip_prefix(&source).unwrap().with_extension("");
            let mut module: Module =
                inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.iter().any(|part| part.starts_with("test")) {
                continue;
            }
            if matches!(&module.last().unwrap()[..], "mod" | "lib" | "main") {
                module.pop();
            }
            code.insert(module, without_tests(&Source::read(&file).code));
        }
        assert!(code.len() > 10, "the walk must find the sources of {name}");
        Self { code }
    }

    /// The file that a path leads into.
    fn module(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        while !self.code.contains_key(&path) {
            path.pop();
        }
        path
    }

    fn uses(&self, module: &Module) -> Uses {
        let code = &self.code[module];
        let mut uses = Uses { own: BTreeSet::new(), other: BTreeSet::new() };
        let inline = ["crate", "super"].into_iter().flat_map(|head| inline_paths(code, head));
        for path in use_paths(code).into_iter().chain(inline) {
            let parts: Module = path.split("::").map(str::to_owned).collect();
            let ups = parts.iter().take_while(|part| *part == "super").count();
            let target = match &parts[0][..] {
                "crate" => parts[1..].to_vec(),
                "self" => [module, &parts[1..]].concat(),
                // A glob of an inline module, or one level too many for the module itself.
                "super" => [&module[..module.len().saturating_sub(ups)], &parts[ups..]].concat(),
                head => {
                    let child = [&module[..], &[head.to_owned()]].concat();
                    if !self.code.contains_key(&child) {
                        uses.other.insert(path);
                        continue;
                    }
                    [module, &parts[..]].concat()
                }
            };
            uses.own.insert(self.module(&target));
        }
        uses.own.remove(module);
        uses
    }

    /// Circles among the files and folders of one folder, as the folder and the members' names.
    fn circles(&self) -> Vec<(String, Vec<String>)> {
        let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for module in self.code.keys() {
            for target in self.uses(module).own {
                let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                // A file and the folder that it is in are one thing.
                if common < module.len() && common < target.len() {
                    let folder = folders.entry(module[..common].to_vec()).or_default();
                    folder
                        .entry(module[common].clone())
                        .or_default()
                        .insert(target[common].clone());
                }
            }
        }
        let in_folder = |(folder, graph): (Module, BTreeMap<String, BTreeSet<String>>)| {
            let name = folder.join("/");
            components(&graph).into_iter().map(move |members| (name.clone(), members))
        };
        folders.into_iter().flat_map(in_folder).collect()
    }
}

/// The parts of a graph with more than one node whose nodes all reach each other, sorted.
fn components(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            for next in graph.get(node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|node| (node, reached(node))).collect();
    let circle = |node: &&String| -> Vec<String> {
        let back = |other: &&String| reach.get(other).is_some_and(|reach| reach.contains(*node));
        reach[*node].iter().filter(back).cloned().collect()
    };
    let found: BTreeSet<Vec<String>> = graph.keys().map(|node| circle(&node)).collect();
    found.into_iter().filter(|circle| circle.len() > 1).collect()
}

/// Code without the items that are only compiled for tests.
fn without_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find([';', '{']).map_or(part.len(), |at| {
            let mut depth = 0_u32;
            let closing = part[at..].char_indices().find(|&(_, c)| {
                depth = match c {
                    '{' => depth + 1,
                    '}' => depth - 1,
                    _ => depth,
                };
                depth == 0
            });
            at + closing.map_or(part.len() - at, |(end, _)| end + 1)
        });
        kept.push_str(&part[end..]);
    }
    kept
}

/// The paths of the `use` lines.
fn use_paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        if at > 0 && !code[..at].ends_with(|c: char| c.is_whitespace()) {
            continue;
        }
        let tree = code[at + 4..].split(';').next().unwrap();
        flatten("", tree, &mut paths);
    }
    paths
}

/// The paths of a `use` tree: `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn flatten(head: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((inner_head, body)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap().trim();
        let path = if name == "self" { head.to_owned() } else { format!("{head}::{name}") };
        paths.push(path.trim_start_matches("::").to_owned());
        return;
    };
    let head = format!("{head}::{}", inner_head.trim().trim_end_matches("::"));
    let body = body.rsplit_once('}').expect("a `use` tree is closed").0;
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in body.char_indices().chain([(body.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !body[start..at].trim().is_empty() {
                    flatten(head.trim_end_matches("::"), &body[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths in the code that begin with this word.
fn inline_paths(code: &str, head: &str) -> Vec<String> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut paths = Vec::new();
    for (at, _) in code.match_indices(&format!("{head}::")) {
        if !code[..at].ends_with(part) {
            let path = code[at..].split(|c| !part(c)).next().unwrap();
            paths.push(path.trim_end_matches(':').to_owned());
        }
    }
    paths
}

/// Whether a path is this one or below it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Fails when what is found is not what is listed: more is a violation, less is a list to be shortened.
fn same<T: Ord + std::fmt::Debug>(found: &BTreeSet<T>, listed: &BTreeSet<T>, law: &str) {
    let new: Vec<_> = found.difference(listed).collect();
    assert!(new.is_empty(), "{law}:\n{new:#?}");
    let stale: Vec<_> = listed.difference(found).collect();
    assert!(stale.is_empty(), "these are mended or gone: take them from the list:\n{stale:#?}");
}

/// No room of `serve` uses one that it must not know.
#[test]
fn rooms_keep_to_their_floors() {
    let serve = Crate::read("serve");
    let mut found = BTreeSet::new();
    for module in serve.code.keys() {
        for used in serve.uses(module).own {
            let (file, used) = (module.join("/"), used.join("/"));
            for (unknown, why) in unknown_to(&file) {
                if is_in(&used, unknown) {
                    found.insert((file.clone(), unknown, why));
                }
            }
        }
    }
    let listed = FLOORS_LEFT.iter().map(|&(file, room, _)| {
        let rule = unknown_to(file).find(|(unknown, _)| *unknown == room);
        (file.to_owned(), room, rule.expect("an exception is from a rule").1)
    });
    same(&found, &listed.collect(), "a room uses one that it must not know");
}

/// What a file of `serve` must not know, and why.
fn unknown_to(file: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let rules = FLOORS.iter().filter(move |(rooms, ..)| rooms.iter().any(|room| is_in(file, room)));
    rules.flat_map(|(_, unknown, why)| unknown.iter().map(|&room| (room, *why)))
}

/// Whether a file is this room or in it.
fn is_in(file: &str, room: &str) -> bool {
    let rest = file.strip_prefix(room);
    rest.is_some_and(|rest| rest.is_empty() || !room.is_empty() && rest.starts_with('/'))
}

/// Only the drivers of `serve` reach the operating system, so that a test can replace them.
#[test]
fn only_drivers_reach_the_operating_system() {
    let serve = Crate::read("serve");
    let reaches = |module: &Module, code: &str| {
        let mut paths: Vec<String> = serve.uses(module).other.into_iter().collect();
        paths.extend(SYSTEM.iter().flat_map(|path| inline_paths(code, path)));
        let system = |path: &String| SYSTEM.iter().any(|system| is_within(path, system));
        paths.iter().any(system) || code.contains("Instant::now()") || code.contains("SystemTime")
    };
    let found = serve.code.iter().filter(|(module, code)| reaches(module, code));
    let found = found.map(|(module, _)| module.join("/")).collect();
    let listed = DRIVERS.iter().chain(DRIVERS_LEFT).map(|(file, _)| (*file).to_owned());
    same(&found, &listed.collect(), "a file that is no driver reaches the operating system");
}

/// The files and folders of each folder of `serve`, `flow` and `sim` can be put in an order in which each
/// uses only earlier ones.
#[test]
fn folders_have_no_circles() {
    let mut found = BTreeSet::new();
    for name in ["flow", "serve", "sim"] {
        let circles = Crate::read(name).circles();
        found.extend(circles.into_iter().map(|(folder, members)| (name, folder, members)));
    }
    let listed = CIRCLES_LEFT.iter().map(|&(name, folder, members)| {
        (name, folder.to_owned(), members.iter().map(|&member| member.to_owned()).collect())
    });
    same(&found, &listed.collect(), "files or folders use each other in a circle");
}

/// Paths are found in `use` trees and in code, and not in tests.
#[test]
fn paths_are_found() {
    let code = "use a::{b, c::{self, d as e}};\nfn f() { crate::x::y(&super::z) }\n\
        #[cfg(test)]\nmod tests { use no::no; fn g() {} }\nuse last;\n#[cfg(test)]\nuse no;\nfn h() {}";
    let code = without_tests(code);
    assert_eq!(use_paths(&code), ["a::b", "a::c", "a::c::d", "last"]);
    assert_eq!(inline_paths(&code, "crate"), ["crate::x::y"]);
    assert_eq!(inline_paths(&code, "super"), ["super::z"]);
    assert!(code.ends_with("fn h() {}"), "{code}");
    let graph = [("a", vec!["b"]), ("b", vec!["c", "d"]), ("c", vec!["a"]), ("d", vec![])];
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let graph = graph.into_iter().map(|(from, to)| (from.to_owned(), owned(to))).collect();
    assert_eq!(components(&graph), [["a", "b", "c"]]);
}
