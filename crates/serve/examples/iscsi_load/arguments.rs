//! The command line.

use std::time::Duration;
use weir_wire::iscsi::initiator::{Account, Secret};

/// How the program is called.
pub(crate) const USAGE: &str = "\
usage: iscsi_load --url HOST:PORT/TARGET/LUN [options]
  --depth D         commands outstanding per session, 1 to 1024 (1)
  --sessions S      sessions, 1 to 64 (1)
  --seconds N       length of the measured window, 1 to 86400 (3)
  --block BYTES     size of each read or write, up to 1 MiB (4096)
  --think MICROS    after each reply wait so long, up to a minute, before the next command (0)
  --write           write instead of reading; destroys the contents
  --verify          fill the unit first and check what is read; destroys the contents
  --seed N          where to read and write (1)
  --digests         CRC32C over headers and data
  --user NAME:SECRET
                    prove who is there by CHAP
  --target-user NAME:SECRET
                    and have the target do so
  --server-pid PID  also report the CPU time of this process per I/O";

/// A logical unit and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    /// `host:port`.
    pub(crate) portal: String,
    /// The iSCSI name of the target.
    pub(crate) target: String,
    /// The logical unit number.
    pub(crate) lun: u8,
}

/// The checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) url: Url,
    /// Commands outstanding per session.
    pub(crate) depth: u32,
    pub(crate) sessions: u32,
    /// Length of the measured window.
    pub(crate) seconds: u64,
    /// Bytes per command.
    pub(crate) block: u32,
    /// Between a reply and the next command of its session.
    pub(crate) think: Duration,
    pub(crate) write: bool,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
    /// CRC32C over headers and data.
    pub(crate) digests: bool,
    /// By what the initiator proves itself.
    pub(crate) user: Option<Account>,
    /// By what the target must.
    pub(crate) target_user: Option<Account>,
    /// The process whose CPU time is reported.
    pub(crate) server: Option<u32>,
}

impl Arguments {
    /// Reads the command line; the error says what is wrong with it.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut url = None;
        let (mut depth, mut sessions, mut seconds, mut block) = (1, 1, 3, 4096);
        let (mut write, mut verify, mut seed, mut server) = (false, false, 1, None);
        let mut think = Duration::ZERO;
        let (mut digests, mut user, mut target_user) = (false, None, None);
        while let Some(word) = words.next() {
            let mut number = |least, most| number(&word, words.next(), least, most);
            match word.as_str() {
                "--depth" => depth = number(1, 1024)? as u32,
                "--sessions" => sessions = number(1, 64)? as u32,
                "--seconds" => seconds = number(1, 86_400)?,
                "--block" => block = number(512, 1 << 20)? as u32,
                "--think" => think = Duration::from_micros(number(0, 60_000_000)?),
                "--seed" => seed = number(0, u64::MAX)?,
                "--server-pid" => server = Some(number(1, u64::from(u32::MAX))? as u32),
                "--url" => url = Some(Url::parse(&words.next().unwrap_or_default())?),
                "--user" => user = Some(account(&word, words.next())?),
                "--target-user" => target_user = Some(account(&word, words.next())?),
                "--digests" => digests = true,
                "--write" => write = true,
                "--verify" => verify = true,
                _ => return Err(format!("unknown argument `{word}`\n{USAGE}")),
            }
        }
        let url = url.ok_or_else(|| format!("--url is missing\n{USAGE}"))?;
        if target_user.is_some() && user.is_none() {
            return Err(format!("--target-user needs --user\n{USAGE}"));
        }
        Ok(Self {
            url,
            depth,
            sessions,
            seconds,
            block,
            think,
            write,
            verify,
            seed,
            digests,
            user,
            target_user,
            server,
        })
    }
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let &[portal, target, lun] = parts.as_slice() else {
            return Err(format!("--url `{text}` is not HOST:PORT/TARGET/LUN"));
        };
        let lun = lun.parse().map_err(|_| format!("LUN `{lun}` is not a number from 0 to 255"))?;
        Ok(Self { portal: portal.to_owned(), target: target.to_owned(), lun })
    }
}

fn account(name: &str, value: Option<String>) -> Result<Account, String> {
    let value = value.unwrap_or_default();
    let parts = value.split_once(':');
    let account = parts.and_then(|(name, secret)| {
        Some(Account { name: name.to_owned(), secret: Secret::new(secret)? })
    });
    account.ok_or_else(|| format!("{name} is not NAME:SECRET with a secret of 12 to 255 bytes"))
}

fn number(name: &str, value: Option<String>, least: u64, most: u64) -> Result<u64, String> {
    let value = value.unwrap_or_default();
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name} `{value}` is not a number from {least} to {most}")),
    }
}
