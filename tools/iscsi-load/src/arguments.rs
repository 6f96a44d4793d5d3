//! The command line.

use clap::{Parser, value_parser};
use std::time::Duration;
use weir_wire::iscsi::initiator::{Account, Secret};

/// Load an iSCSI logical unit with random reads or writes and print one JSON object with the result
///
/// `--write` and `--verify` destroy the contents of the logical unit.
#[derive(Clone, Debug, Parser)]
#[command(name = "iscsi-load", version, verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The logical unit and how to reach it
    #[arg(long, value_name = "HOST:PORT/TARGET/LUN", value_parser = Url::parse)]
    pub(crate) url: Url,
    /// Commands outstanding per session, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1_024))]
    pub(crate) depth: u32,
    /// Sessions, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) sessions: u32,
    /// Length of the measured window, 1 to 86400
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Bytes of each read or write, 512 to 1 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 4_096, value_parser = value_parser!(u32).range(512..=1 << 20))]
    pub(crate) block: u32,
    /// Pause of a session after a reply, at most a minute
    #[arg(long, value_name = "MICROS", default_value = "0", value_parser = micros)]
    pub(crate) think: Duration,
    /// Write instead of reading
    #[arg(long)]
    pub(crate) write: bool,
    /// Fill the unit first, and check what is read
    #[arg(long)]
    pub(crate) verify: bool,
    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Require CRC32C digests of headers and data
    #[arg(long)]
    pub(crate) digests: bool,
    /// CHAP: the name and secret with which the initiator authenticates itself
    #[arg(long, value_name = "NAME:SECRET", value_parser = account)]
    pub(crate) user: Option<Account>,
    /// CHAP: the name and secret that the target must present
    #[arg(long, value_name = "NAME:SECRET", value_parser = account, requires = "user")]
    pub(crate) target_user: Option<Account>,
    /// Also report the CPU time of this process per I/O
    #[arg(long, value_name = "PID", value_parser = value_parser!(u32).range(1..))]
    pub(crate) server_pid: Option<u32>,
}

/// A logical unit and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// `host:port`.
    pub(crate) portal: String,
    /// The iSCSI name of the target.
    pub(crate) target: String,
    /// The logical unit number.
    pub(crate) lun: u8,
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let &[portal, target, lun] = parts.as_slice() else {
            return Err(String::from("it is not HOST:PORT/TARGET/LUN"));
        };
        let lun = lun.parse().map_err(|_| format!("LUN `{lun}` is not a number from 0 to 255"))?;
        Ok(Self { portal: portal.to_owned(), target: target.to_owned(), lun })
    }
}

fn account(text: &str) -> Result<Account, String> {
    let account = text.split_once(':').and_then(|(name, secret)| {
        Some(Account { name: name.to_owned(), secret: Secret::new(secret)? })
    });
    account.ok_or_else(|| String::from("it is not NAME:SECRET with a secret of 12 to 255 bytes"))
}

fn micros(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(micros @ 0..=60_000_000) => Ok(Duration::from_micros(micros)),
        _ => Err(String::from("it is not a number from 0 to 60000000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, clap::error::ErrorKind> {
        let words = ["iscsi-load"].iter().chain(words);
        Arguments::try_parse_from(words).map_err(|error| error.kind())
    }

    /// Every option that the benchmarks pass reaches its field, and what they leave out has its default.
    #[test]
    fn options_reach_their_fields() {
        let url = ["--url", "127.0.0.1:3260/iqn.2026-11.org.example:disks/7"];
        let plain = parse(&url).unwrap();
        assert_eq!((plain.depth, plain.sessions, plain.seconds, plain.block), (1, 1, 3, 4_096));
        assert_eq!((plain.write, plain.verify, plain.seed), (false, false, 1));
        assert_eq!((plain.url.portal.as_str(), plain.url.lun), ("127.0.0.1:3260", 7));
        let more = "--depth 32 --sessions 4 --seconds 10 --block 65536 --think 500 --write --verify \
                    --seed 9 --digests --server-pid 17 --user me:twelve-bytes";
        let more = parse(&[&url[..], &more.split_whitespace().collect::<Vec<_>>()].concat());
        let more = more.unwrap();
        assert_eq!((more.depth, more.sessions, more.seconds, more.block), (32, 4, 10, 65_536));
        assert_eq!((more.think, more.seed), (Duration::from_micros(500), 9));
        assert_eq!((more.write, more.verify, more.digests), (true, true, true));
        assert_eq!((more.server_pid, more.user.unwrap().name.as_str()), (Some(17), "me"));
    }

    /// A value out of range, half an account and a target's account alone are refused.
    #[test]
    fn bad_options_are_refused() {
        let url = "h:1/t/0";
        for bad in [
            &["--url", "h:1/t"][..],
            &["--url", url, "--depth", "1025"],
            &["--url", url, "--block", "511"],
            &["--url", url, "--think", "60000001"],
            &["--url", url, "--user", "me:short"],
            &["--url", url, "--target-user", "it:twelve-bytes"],
            &[],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
