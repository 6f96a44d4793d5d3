//! The control socket as its clients use it: lines, and the commands of the program.

use super::{Gateway, ONE_DISK, folder, weir};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// `ONE_DISK` with a control socket, and more text before it.
pub(crate) fn controlled(more: &str) -> String {
    format!("{more}\n[control]\nsocket = \"c.sock\"\n{ONE_DISK}")
}

/// A gateway of one disk with a control socket.
pub(crate) fn start(test: &str) -> Gateway {
    Gateway::start(&folder(test), &controlled(""), &[])
}

impl Gateway {
    /// Where its control socket is.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("c.sock")
    }

    /// A connection to it on which nothing has been said.
    pub(crate) fn knock(&self) -> UnixStream {
        let stream = UnixStream::connect(self.control()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// The result of a command of the program that asks it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        weir(&self.folder, arguments).args(["--socket", "c.sock"]).output().unwrap()
    }

    /// The answer to a command that must succeed.
    pub(crate) fn asked(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--json"]].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*told), (Some(0), ""), "{}", self.log());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["version"], 1);
        answer
    }

    /// What a command must be refused with: 1, and what it says.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Says something on a connection and returns the line that comes back.
pub(crate) fn say(stream: &mut UnixStream, line: &[u8]) -> Value {
    stream.write_all(line).unwrap();
    hear(stream)
}

/// The next line of a connection.
pub(crate) fn hear(stream: &UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer, but {line:?}"))
}
