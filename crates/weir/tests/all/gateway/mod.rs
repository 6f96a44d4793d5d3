//! A gateway that a test starts, talks to and ends: the program itself, in its own folder.

pub(crate) mod chap;
pub(crate) mod commands;
pub(crate) mod control;
pub(crate) mod http;
pub(crate) mod initiator;
pub(crate) mod nbd;
pub(crate) mod nvme;
pub(crate) mod pdu;
pub(crate) mod proxy;
pub(crate) mod recorded;
pub(crate) mod schema;
pub(crate) mod witness;

use crate::support;
pub(crate) use crate::support::folder;
use initiator::{Login, Session};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use witness::Witness;

/// One volume of 64 MiB behind one target.
pub(crate) const ONE_DISK: &str = r#"
[[volume]]
name = "disk"
file = "disk.img"
size = "64MiB"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = { 0 = "disk" }
"#;

/// Two volumes behind two targets.
pub(crate) const TWO_DISKS: &str = r#"
[[volume]]
name = "disk"
file = "disk.img"
size = "64MiB"
[[volume]]
name = "other"
file = "other.img"
size = "64MiB"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = { 0 = "disk" }
[[target]]
name = "iqn.2026-11.org.example:other"
luns = { 0 = "other" }
"#;

/// The program in a folder, with nothing of the environment that it looks at.
pub(crate) fn weir(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = support::weir(folder);
    command.args(arguments);
    command
}

/// Waits until something is there; fails after 30 seconds.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("in 30 seconds there was no {what}");
}

/// Writes the configuration file of a folder. Only its owner may read it: it may have a secret.
pub(crate) fn configure(folder: &Path, config: &str) {
    let path = folder.join("weir.toml");
    std::fs::write(&path, config).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// What the log says when a configuration was read again and is used from then on.
const IN_FORCE: &str = "the new configuration is in force";

/// A gateway that is ended with the test, whatever becomes of it.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) portal: SocketAddr,
    /// All addresses that iSCSI hosts can connect to.
    pub(crate) portals: Vec<SocketAddr>,
    /// Where NBD clients connect, as URLs.
    pub(crate) nbd: Vec<String>,
    /// Where it is asked over HTTP.
    pub(crate) http: Option<String>,
    /// Where NVMe hosts connect.
    pub(crate) nvme: Vec<SocketAddr>,
}

impl Gateway {
    /// Starts it in a folder and waits until hosts can connect.
    pub(crate) fn start(folder: &Path, config: &str, arguments: &[&str]) -> Self {
        Self::start_with_log(folder, config, arguments, "info")
    }

    /// The same with a log of this level.
    pub(crate) fn start_with_log(
        folder: &Path,
        config: &str,
        arguments: &[&str],
        level: &str,
    ) -> Self {
        configure(folder, config);
        let mut command = weir(folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]);
        command.env("WEIR_LOG", level).arg("--json").args(arguments);
        Self::launch(folder, command)
    }

    /// Starts it by a command that names its configuration, and waits until hosts can connect.
    pub(crate) fn launch(folder: &Path, mut command: Command) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // From here on the child is ended by `drop`, should the ready line not come.
        let (folder, nowhere) = (folder.to_path_buf(), ([127, 0, 0, 1], 0).into());
        let mut gateway = Self {
            child,
            folder,
            portal: nowhere,
            portals: Vec::new(),
            nbd: Vec::new(),
            http: None,
            nvme: Vec::new(),
        };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_default();
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("no ready line, but {line:?}:\n{}", gateway.log()));
        let portals = ready["portals"].as_array().unwrap().iter();
        gateway.portals = portals.map(|one| one.as_str().unwrap().parse().unwrap()).collect();
        gateway.portal = gateway.portals[0];
        let urls = ready["nbd"].as_array().unwrap().iter();
        gateway.nbd = urls.map(|url| url.as_str().unwrap().to_owned()).collect();
        gateway.http = ready["http"].as_str().map(str::to_owned);
        let addresses = ready["nvme"].as_array().unwrap().iter();
        gateway.nvme = addresses.map(|one| one.as_str().unwrap().parse().unwrap()).collect();
        gateway
    }

    /// Starts one with one disk for a test.
    pub(crate) fn with_one_disk(test: &str) -> Self {
        Self::start(&folder(test), ONE_DISK, &[])
    }

    /// A session of `host` with the target `disk`, its first unit attention over.
    pub(crate) fn session(&self, host: &'static str) -> Session {
        Login::of(host).connect(self.portal).unwrap().ready()
    }

    /// Another host that reads and writes all the while.
    pub(crate) fn witness(&self) -> Witness {
        Witness::start(self.session("witness"))
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// One line of the log has all of these, such as the peer and the rule that it broke.
    pub(crate) fn logged(&self, parts: &[&str]) {
        eventually(&format!("line in the log with {parts:?}"), || {
            let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
            self.log().lines().any(has_all).then_some(())
        });
    }

    /// How many lines of the log have this.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.log().lines().filter(|line| line.contains(part)).count()
    }

    /// Has it read another configuration while it runs, which must be put into force.
    pub(crate) fn reload(&self, config: &str) {
        let before = self.count(IN_FORCE);
        configure(&self.folder, config);
        self.signal("HUP");
        eventually("reload", || (self.count(IN_FORCE) > before).then_some(()));
    }

    /// Has it read another configuration while it runs, which must be refused with a line in the log
    /// that has all of these.
    pub(crate) fn refuse_reload(&self, config: &str, parts: &[&str]) {
        let before = self.count(IN_FORCE);
        configure(&self.folder, config);
        self.signal("HUP");
        self.logged(parts);
        assert_eq!(self.count(IN_FORCE), before, "{}", self.log());
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process, and to no other. After `STOP` it has stopped: on a busy machine it could still read what
    /// is sent next.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        let has_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T').then_some(())
        };
        if name == "STOP" {
            eventually("stop of the process", has_stopped);
        }
    }

    /// The exit code, once it has left.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        eventually("end of the process", || self.child.try_wait().unwrap()).code()
    }

    /// The exit code, if it has left.
    pub(crate) fn try_exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().and_then(|status| status.code())
    }

    /// Aborts it, as a watchdog does; whether it leaves a core dump.
    pub(crate) fn abort(&mut self) -> bool {
        self.signal("ABRT");
        eventually("end of the process", || self.child.try_wait().unwrap()).core_dumped()
    }

    /// Kills it without a warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as a service manager would. It must still be there, leave in order and not have
    /// panicked.
    pub(crate) fn stop(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "it serves:\n{}", self.log());
        self.signal("TERM");
        assert_eq!(self.exit_code(), Some(0), "{}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }

    /// The same, after the witness has found that all is well; its data is in the file, too.
    pub(crate) fn stop_after(mut self, witness: Witness) {
        let (offset, expected) = witness.finish();
        self.stop();
        assert!(self.stored("disk.img", offset, expected.len()) == expected, "stored as written");
    }

    /// The same for one whose bytes an upstream keeps.
    pub(crate) fn stop_upstream(mut self, witness: Witness) {
        witness.finish();
        self.stop();
    }

    /// Bytes of a volume's file.
    pub(crate) fn stored(&self, file: &str, offset: u64, length: usize) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; length];
        let file = std::fs::File::open(self.folder.join(file)).unwrap();
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Chance from a seed (`SplitMix64`), so that a failure comes again.
#[derive(Clone, Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Any number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// This many bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(length).collect()
    }
}
