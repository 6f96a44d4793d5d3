//! A configuration that a running gateway is handed: `weir apply`.

use crate::gateway::commands::READY;
use crate::gateway::control::say;
use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::nbd::Client;
use crate::gateway::{Gateway, ONE_DISK, folder, weir};
use serde_json::{Value, json};
use std::fs::{Permissions, metadata, read_to_string, set_permissions, write};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};

/// `ONE_DISK` with a control socket, an NBD export and a tenant with a contract.
fn base() -> String {
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    let tenant =
        "[[tenant]]\nname = \"t\"\nshare = 2\ninitiators = [\"iqn.2026-11.org.example.host:*\"]\n";
    format!("[control]\nsocket = \"c.sock\"\n{nbd}{tenant}{ONE_DISK}")
}

/// Hands a gateway this text in a file of another folder.
fn apply(gateway: &Gateway, text: &str, arguments: &[&str]) -> Output {
    let other = gateway.folder.join("other");
    let _ = std::fs::create_dir(&other);
    write(other.join("new.toml"), text).unwrap();
    gateway.command(&[&["apply", "other/new.toml"], arguments].concat())
}

/// What it prints, once it has succeeded.
fn told(output: Output) -> String {
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

/// What it says why it has failed with this exit code, and nothing else.
fn refused(output: Output, code: i32) -> String {
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{told}");
    told
}

/// Each line says what changes, from what to what, how hosts learn of it, and which hosts these are. A dry run prints the
/// same lines and changes nothing. Paths are relative to the folder of the gateway's own file, to which a reload goes back.
#[test]
fn an_apply_says_what_changes_for_whom() {
    let mut gateway = Gateway::start(&folder("apply"), &base(), &[]);
    let mut one = gateway.session("one");
    let more = "[[volume]]\nname = \"more\"\nfile = \"more.img\"\nsize = \"1MiB\"\n";
    let new = base().replace("64MiB", "80MiB").replace("share = 2", "share = 3");
    let new = new.replace("{ 0 = \"disk\" }", "{ 0 = \"disk\", 1 = \"more\" }");
    let new = new.replace("exports = { disk = \"disk\" }", "exports = { e = \"more\" }") + more;
    let host = format!("; for iqn.2026-11.org.example.host:one at {}", one.peer);
    let lines = [
        "+ export e: volume more; at the next connection".to_owned(),
        "- export disk: volume disk; its clients are disconnected".to_owned(),
        format!(
            "~ target iqn.2026-11.org.example:disk: luns.1 none → more; REPORTED LUNS DATA HAS CHANGED{host}"
        ),
        format!("~ tenant t: share 2.0 → 3.0; not visible to hosts{host}"),
        format!("~ volume disk: size 64MiB → 80MiB; CAPACITY DATA HAS CHANGED{host}"),
        "+ volume more: file more.img, size 1MiB".to_owned(),
    ];
    let dry = told(apply(&gateway, &new, &["--dry-run"]));
    let mut expected = lines.clone().to_vec();
    expected.push("the configuration can be put into force; nothing was changed".to_owned());
    let mut found: Vec<_> = dry.lines().map(ToOwned::to_owned).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert!(!gateway.folder.join("more.img").exists());
    one.execute(READY, Transfer::None).good();
    assert_eq!((one.luns(), one.capacity()), (vec![0], 64 << 20));
    let done = told(apply(&gateway, &new, &[]));
    for line in &lines {
        assert!(done.lines().any(|one| one == line), "{line}:\n{done}");
        assert!(gateway.log().contains(line), "{line}");
    }
    assert!(
        done.contains("the configuration is in force\na restart or `weir reload` puts"),
        "{done}"
    );
    assert!(gateway.folder.join("more.img").exists());
    while one.execute(READY, Transfer::None).sense.is_some() {}
    assert_eq!((one.luns(), one.capacity()), (vec![0, 1], 80 << 20));
    let back = refused(gateway.command(&["reload"]), 1);
    assert!(back.contains("volume `more` is in use") && back.contains("would shrink"), "{back}");
    write(gateway.folder.join("weir.toml"), base().replace("64MiB", "80MiB")).unwrap();
    let back = told(gateway.command(&["reload", "--force"]));
    let gone = "- volume more: file more.img, size 1MiB; the unit is not there any more";
    assert!(back.contains(gone) && back.contains(&host), "{back}");
    let again = told(gateway.command(&["reload"]));
    assert_eq!(again, "the configuration is in force; no key differs from before\n");
    gateway.stop();
}

/// A volume that has grown because its file has, or its store, is in a line, also of a dry run; its NBD client, which is
/// told nothing, is not. So is a volume in memory.
#[test]
fn growth_is_told_whatever_has_grown() {
    let more = "[[volume]]\nname = \"stored\"\nstores = [\"s\"]\n[[store]]\nname = \"s\"\nfile = \"s.img\"\nsize = \"1MiB\"\n\
                [[volume]]\nname = \"memory\"\nmemory = \"1MiB\"\n[[volume]]\nname = \"file\"\nfile = \"file.img\"\n";
    let luns = "{ 0 = \"disk\", 1 = \"stored\", 2 = \"memory\", 3 = \"file\" }";
    let nbd = "exports = { file = \"file\" }";
    let config = base().replace("{ 0 = \"disk\" }", luns) + more;
    let config = config.replace("exports = { disk = \"disk\" }", nbd);
    let folder = folder("apply-growth");
    let file = std::fs::File::create(folder.join("file.img")).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let one = gateway.session("one");
    let mut client = Client::tcp(gateway.nbd_address());
    client.choose("file");
    let host = format!("; for iqn.2026-11.org.example.host:one at {}", one.peer);
    file.set_len(2 << 20).unwrap();
    let line = format!("~ volume file: capacity 1 MiB → 2 MiB; CAPACITY DATA HAS CHANGED{host}\n");
    for arguments in [&["reload", "--dry-run"][..], &["reload"]] {
        let done = told(gateway.command(arguments));
        assert!(done.starts_with(&line) && done.lines().count() == 2, "{done}");
    }
    let new = config
        .replace("size = \"1MiB\"", "size = \"2MiB\"")
        .replace("memory = \"1", "memory = \"3");
    let done = told(apply(&gateway, &new, &[]));
    for line in [
        "~ store s: size 1MiB → 2MiB".to_owned(),
        format!("~ volume stored: capacity 1 MiB → 2 MiB; CAPACITY DATA HAS CHANGED{host}"),
        format!("~ volume memory: memory 1MiB → 3MiB; CAPACITY DATA HAS CHANGED{host}"),
    ] {
        assert!(done.lines().any(|one| one == line), "{line}:\n{done}");
    }
    drop(client);
    one.logout();
    gateway.stop();
}

/// Paths in a text that a gateway without a file is handed are relative to the folder of its disk, not to the one that it
/// was started in.
#[test]
fn a_gateway_without_a_file_has_a_folder() {
    let folder = folder("apply-builtin");
    let state = folder.join("state");
    let mut gateway = weir(&folder, &["serve", "--listen", "127.0.0.1:0", "--json"])
        .env("XDG_STATE_HOME", &state)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let client = |arguments: &[&str]| {
        weir(&folder, arguments).env("XDG_STATE_HOME", &state).output().unwrap()
    };
    // The disk and the socket are those that it has.
    let text = "[control]\nsocket = \"control.sock\"\n\
                [[volume]]\nname = \"disk0\"\nfile = \"disk0.img\"\nsize = \"1GiB\"\n\
                [[volume]]\nname = \"more\"\nfile = \"more.img\"\nsize = \"1MiB\"\n\
                [[target]]\nname = \"iqn.2026-11.io.weir:disk0\"\nluns = { 0 = \"disk0\", 1 = \"more\" }\n";
    write(folder.join("new.toml"), text).unwrap();
    told(client(&["apply", "new.toml"]));
    assert!(state.join("weir/more.img").exists() && !folder.join("more.img").exists());
    told(client(&["stop"]));
    assert!(gateway.wait().unwrap().success());
}

/// Whatever is wrong with it, the exit code says of which kind it is, the message names the file as the operator did, and
/// nothing is changed. A secret in a file that others may read is not sent.
#[test]
fn a_refused_apply_changes_nothing() {
    let mut gateway = Gateway::start(&folder("apply-refused"), &base(), &[]);
    let mut one = gateway.session("one");
    let invalid = refused(apply(&gateway, &base().replace("size =", "sise ="), &[]), 3);
    assert!(
        invalid.contains("other/new.toml:14:1: ") && invalid.contains("no key `sise`"),
        "{invalid}"
    );
    let restart = refused(apply(&gateway, &(base() + "[cache]\nsize = \"1MiB\"\n"), &[]), 8);
    assert!(restart.contains("[cache]"), "{restart}");
    let shrinks = refused(apply(&gateway, &base().replace("64MiB", "32MiB"), &[]), 1);
    assert!(shrinks.contains("other/new.toml:14:8: volume `disk` would shrink"), "{shrinks}");
    let absent = "[[volume]]\nname = \"more\"\nfile = \"none/more.img\"\n";
    let absent = refused(apply(&gateway, &(base() + absent), &["--save"]), 7);
    assert!(absent.contains("other/new.toml:20:8: volume `more`"), "{absent}");
    refused(gateway.command(&["apply", "absent.toml"]), 3);
    // With `--json` the refusal is on standard output, too, whatever else is asked for.
    for more in [&["--json"][..], &["--json", "--dry-run"], &["--json", "--save"]] {
        let output = apply(&gateway, &(base() + "[cache]\nsize = \"1MiB\"\n"), more);
        assert_eq!(output.status.code(), Some(8), "{more:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["error"]["code"], "needs_restart", "{told}");
    }
    let account = "[[account]]\nname = \"a\"\nsecret = \"a secret of a host\"\n";
    let exposed = gateway.folder.join("exposed.toml");
    write(&exposed, base() + account).unwrap();
    set_permissions(&exposed, Permissions::from_mode(0o640)).unwrap();
    let exposed = refused(gateway.command(&["apply", "exposed.toml"]), 3);
    assert!(
        exposed.contains("chmod go= 'exposed.toml'") && !exposed.contains("a host"),
        "{exposed}"
    );
    // Standard input is what it is, whether or not it could be opened again; its name would be of no help.
    let input = std::fs::File::open(gateway.folder.join("exposed.toml")).unwrap();
    let mut command = weir(&gateway.folder, &["apply", "-", "--socket", "c.sock"]);
    let exposed = refused(command.stdin(input).output().unwrap(), 3);
    assert!(exposed.contains("(mode 0640)") && !exposed.contains("chmod"), "{exposed}");
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(b"[[volume]]\n").unwrap();
    drop(ours);
    let mut command = weir(&gateway.folder, &["apply", "-", "--socket", "c.sock"]);
    let invalid = command.stdin(std::os::fd::OwnedFd::from(theirs)).output().unwrap();
    let invalid = refused(invalid, 3);
    assert!(invalid.contains("(standard input):1:1: "), "{invalid}");
    assert_eq!(gateway.count("the new configuration is in force"), 0);
    assert_eq!(read_to_string(gateway.folder.join("weir.toml")).unwrap(), base());
    let left: Vec<_> = names(&gateway.folder);
    assert!(left.iter().all(|name| !name.contains(".toml.")), "{left:?}");
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.execute(read16(0, 512), Transfer::In(512)).data, [0; 512]);
    gateway.stop();
}

/// The client looks at its own file. What the gateway finds under the same name in its own folder, or does not find, is
/// another file, and is not judged. The name has a limit.
#[test]
fn the_file_of_an_applied_text_is_the_clients() {
    let mut gateway = Gateway::start(&folder("apply-elsewhere"), &base(), &[]);
    let other = gateway.folder.join("other");
    std::fs::create_dir(&other).unwrap();
    let account = "[[account]]\nname = \"a\"\nsecret = \"a secret of a host\"\n";
    let put = |path: &Path, mode| {
        write(path, base() + account).unwrap();
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    put(&other.join("new.toml"), 0o600);
    put(&gateway.folder.join("new.toml"), 0o644);
    let socket = gateway.control();
    let socket = socket.to_str().unwrap();
    let mut command = weir(&other, &["apply", "new.toml", "--socket", socket]);
    let done = told(command.output().unwrap());
    assert!(done.contains("+ account a: secret …"), "{done}");
    let long = json!({ "version": 1, "do": "apply", "name": "n".repeat(4_097), "text": base() });
    let long = say(&mut gateway.knock(), (long.to_string() + "\n").as_bytes());
    assert_eq!(long["error"]["code"], "long_name");
    let long = json!({ "version": 1, "do": "apply", "name": "n".repeat(4_096), "text": "x" });
    let long = say(&mut gateway.knock(), (long.to_string() + "\n").as_bytes());
    assert_eq!(long["error"]["code"], "invalid");
    gateway.stop();
}

/// With `--save` the file of the gateway is replaced as it is applied: its mode stays, a link to it as well, and what it
/// was is beside it. A reload and a restart have nothing to change then. The text may come by standard input.
#[test]
fn an_applied_file_is_saved() {
    let folder = folder("apply-save");
    let mut gateway = Gateway::start(&folder, &base(), &[]);
    std::fs::rename(folder.join("weir.toml"), folder.join("real.toml")).unwrap();
    set_permissions(folder.join("real.toml"), Permissions::from_mode(0o640)).unwrap();
    symlink("real.toml", folder.join("weir.toml")).unwrap();
    let new = base().replace("64MiB", "80MiB");
    let mut command = weir(&folder, &["apply", "-", "--save", "--socket", "c.sock"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(new.as_bytes()).unwrap();
    let done = told(child.wait_with_output().unwrap());
    assert!(
        done.contains("~ volume disk: size 64MiB → 80MiB") && done.contains("saved as"),
        "{done}"
    );
    assert!(folder.join("weir.toml").is_symlink());
    assert_eq!(read_to_string(folder.join("weir.toml")).unwrap(), new);
    assert_eq!(read_to_string(folder.join("real.toml.bak")).unwrap(), base());
    assert_eq!(metadata(folder.join("real.toml")).unwrap().permissions().mode() & 0o777, 0o640);
    let mut left = names(&folder);
    left.retain(|name| name.contains(".toml"));
    assert_eq!(left, ["real.toml", "real.toml.bak", "weir.toml"]);
    let again = told(gateway.command(&["reload"]));
    assert_eq!(again, "the configuration is in force; no key differs from before\n");
    gateway.stop();
}

/// With `--save`, reading the text from a pipe.
fn save(folder: &Path) -> Child {
    let mut command = weir(folder, &["apply", "-", "--save", "--socket", "c.sock"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The next request to a gateway that the test plays.
fn asked(gateway: &UnixListener) -> UnixStream {
    let (stream, _) = gateway.accept().unwrap();
    BufReader::new(&stream).read_line(&mut String::new()).unwrap();
    stream
}

/// Agrees to it, as a gateway that was started with `file`.
fn agree(stream: UnixStream, file: &Path) {
    let id = metadata(file).unwrap();
    let id = json!({ "device": id.dev(), "inode": id.ino() });
    answer(stream, &json!({ "dry_run": false, "file": file, "file_id": id }));
}

/// Says that it was done.
fn answer(mut stream: UnixStream, verdict: &Value) {
    writeln!(stream, "{}", json!({ "version": 1, "reloaded": verdict })).unwrap();
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What is in force is saved even if no process reads what is printed.
#[test]
fn an_applied_file_is_saved_without_a_reader() {
    let folder = folder("apply-unread");
    let mut gateway = Gateway::start(&folder, &base(), &[]);
    let new = base().replace("64MiB", "80MiB");
    let mut child = save(&folder);
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(new.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(gateway.count("the new configuration is in force"), 1);
    assert_eq!(read_to_string(folder.join("weir.toml")).unwrap(), new);
    gateway.stop();
}

/// Of two that save at once, each saves its own text or says that it has not: the second one finds a file that is not the
/// one that it was to replace.
#[test]
fn two_that_save_at_once_keep_apart() {
    let folder = folder("apply-twice");
    let file = folder.join("weir.toml");
    write(&file, "old").unwrap();
    let gateway = UnixListener::bind(folder.join("c.sock")).unwrap();
    let [first, second] = ["first", "second"].map(|text| {
        let mut child = save(&folder);
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        agree(asked(&gateway), &file);
        (child, asked(&gateway))
    });
    agree(first.1, &file);
    told(first.0.wait_with_output().unwrap());
    assert_eq!(read_to_string(&file).unwrap(), "first");
    agree(second.1, &file);
    let output = second.0.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{why}");
    assert!(why.contains("is in force, but") && why.contains("has changed meanwhile"), "{why}");
    assert_eq!(read_to_string(&file).unwrap(), "first");
    assert_eq!(read_to_string(folder.join("weir.toml.bak")).unwrap(), "old");
    assert_eq!(names(&folder), ["c.sock", "weir.toml", "weir.toml.bak"]);
}

/// What cannot be replaced is found before the gateway is asked to change anything, and a gateway that gives no answer may
/// have changed it.
#[test]
fn a_save_that_cannot_succeed_is_not_begun() {
    let folder = folder("apply-unsaved");
    let file = folder.join("weir.toml");
    write(&file, "old").unwrap();
    let gateway = UnixListener::bind(folder.join("c.sock")).unwrap();
    let ask = || {
        let mut child = save(&folder);
        child.stdin.take().unwrap().write_all(b"new").unwrap();
        (child, asked(&gateway))
    };
    let begin = |file: &Path| {
        let (child, stream) = ask();
        agree(stream, file);
        child
    };
    // In another mount namespace another file may have the name, or none.
    let elsewhere = metadata(&folder).unwrap();
    let elsewhere = json!({ "device": elsewhere.dev(), "inode": elsewhere.ino() });
    for (id, told) in [(elsewhere, "it is not the file"), (Value::Null, "finds no file")] {
        let (child, stream) = ask();
        answer(stream, &json!({ "dry_run": true, "file": file, "file_id": id }));
        let other = refused(child.wait_with_output().unwrap(), 7);
        assert!(other.contains(told) && other.contains("nothing was changed"), "{other}");
    }
    let mounted = refused(begin(Path::new("/proc")).wait_with_output().unwrap(), 7);
    assert!(mounted.contains("it is a mount point"), "{mounted}");
    std::fs::create_dir(folder.join("weir.toml.bak")).unwrap();
    let backup = refused(begin(&file).wait_with_output().unwrap(), 7);
    assert!(backup.contains("weir.toml.bak is a folder"), "{backup}");
    std::fs::remove_dir(folder.join("weir.toml.bak")).unwrap();
    let child = begin(&file);
    drop(asked(&gateway));
    let silent = refused(child.wait_with_output().unwrap(), 7);
    assert!(
        silent.contains("may be in force") && silent.contains("weir.toml was not replaced"),
        "{silent}"
    );
    assert!(silent.contains("weir reload --dry-run"), "{silent}");
    assert_eq!(names(&folder), ["c.sock", "weir.toml"]);
}
