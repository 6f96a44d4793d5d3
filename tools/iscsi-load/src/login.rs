//! Opens a session: connects, logs in, reads the capacity.

use crate::arguments::{Arguments, Url};
use crate::link::Link;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use weir_wire::iscsi::initiator::{
    Attribute, Chap, Command, DigestPolicy, Direction, Event, Initiator, Isid, Settings,
};

/// The size of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) blocks: u64,
    /// Bytes per logical block.
    pub(crate) block_size: u32,
}

impl Disk {
    /// Its size in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.blocks.saturating_mul(self.block_size as u64)
    }
}

/// Logs in as session number `index` of this process.
pub(crate) fn login(arguments: &Arguments, index: u32) -> Result<(Link<TcpStream>, Disk), String> {
    let Url { portal, target, .. } = &arguments.url;
    let failed = |what: &str, error: std::io::Error| format!("cannot {what} {portal}: {error}");
    let socket = TcpStream::connect(portal).map_err(|error| failed("connect to", error))?;
    let limit = Some(Duration::from_secs(10));
    socket
        .set_nodelay(true)
        .and_then(|()| socket.set_read_timeout(limit))
        .and_then(|()| socket.set_write_timeout(limit))
        .map_err(|error| failed("set up the connection to", error))?;
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|error| format!("no random bytes: {error}"))?;
    let settings = settings(arguments, target.clone(), index);
    settings.check().map_err(|error| error.to_string())?;
    let mut link = Link::new(socket, Initiator::new(Arc::new(settings), entropy));

    while !link.initiator.is_full_feature() {
        let mut moved = None;
        exchange(&mut link, |event| {
            if let Event::Redirected { address, .. } = event {
                moved = Some(address);
            }
        })?;
        if let Some(address) = moved {
            return Err(format!("{target} is to be found at {address}"));
        }
    }
    wait_until_ready(&mut link, arguments.url.lun)?;
    let disk = read_capacity(&mut link, arguments.url.lun)?;
    Ok((link, disk))
}

fn settings(arguments: &Arguments, target: String, index: u32) -> Settings {
    // The random format of RFC 7143 section 11.12.5: other processes and sessions choose others.
    let [.., a, b, c] = std::process::id().to_be_bytes();
    let isid = Isid([0x80, a, b, c, 0, index as u8]);
    let name = String::from("iqn.2026-11.org.example:iscsi-load");
    let digests = if arguments.digests { DigestPolicy::Required } else { DigestPolicy::Never };
    let target_account = arguments.target_user.clone();
    let chap = arguments.user.clone().map(|account| Chap { account, target: target_account });
    Settings {
        chap,
        header_digest: digests,
        data_digest: digests,
        commands_max: arguments.depth,
        ..Settings::new(name, isid, Some(target))
    }
}

/// Sends the outbox, receives once, and handles the input.
fn exchange(link: &mut Link<TcpStream>, mut each: impl FnMut(Event<'_>)) -> Result<(), String> {
    link.flush()?;
    let (came, more) = link.fill()?;
    if !came && !more {
        return Err(String::from("the server does not answer"));
    }
    link.hear(|event| {
        each(event);
        Ok(())
    })
}

/// Discards the unit attentions of a new session (SAM-5, 5.14).
fn wait_until_ready(link: &mut Link<TcpStream>, lun: u8) -> Result<(), String> {
    for _ in 0..16 {
        match execute(link, lun, [0; 16], 0)? {
            Outcome::Good(_) => return Ok(()),
            Outcome::Bad { sense_key: 6, .. } => {}
            bad @ Outcome::Bad { .. } => return Err(format!("not ready: {bad:?}")),
        }
    }
    Err(String::from("the logical unit has no end of unit attentions"))
}

/// READ CAPACITY(16): SBC-4, 5.20.
fn read_capacity(link: &mut Link<TcpStream>, lun: u8) -> Result<Disk, String> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let data = match execute(link, lun, cdb, 32)? {
        Outcome::Good(data) => data,
        bad @ Outcome::Bad { .. } => return Err(format!("READ CAPACITY(16) failed: {bad:?}")),
    };
    let (Some(last), Some(size)) = (data.first_chunk::<8>(), data.get(8..12)) else {
        return Err(String::from("READ CAPACITY(16) gave too little data"));
    };
    let block_size = size.iter().fold(0, |size, byte| size << 8 | u32::from(*byte));
    if !(block_size.is_power_of_two() && (512..=1 << 20).contains(&block_size)) {
        return Err(format!("a block size of {block_size} bytes is not supported"));
    }
    Ok(Disk { blocks: u64::from_be_bytes(*last).saturating_add(1), block_size })
}

/// One command, alone, that reads at most `length` bytes.
fn execute(
    link: &mut Link<TcpStream>,
    lun: u8,
    cdb: [u8; 16],
    length: u32,
) -> Result<Outcome, String> {
    let data = if length == 0 { Direction::None } else { Direction::Read(length) };
    let attribute = Attribute::Simple;
    while link.initiator.room() == 0 {
        exchange(link, |_| {})?;
    }
    link.initiator.command(Command { lun: lun.into(), cdb, attribute, data, tag: 0 });
    let (mut data, mut outcome) = (Vec::new(), None);
    while outcome.is_none() {
        exchange(link, |event| match event {
            Event::Data { bytes, .. } => data.extend_from_slice(bytes),
            Event::Done { status: Some(0), .. } => outcome = Some(Outcome::Good(Vec::new())),
            Event::Done { status, sense, .. } => {
                outcome = Some(Outcome::Bad { status, sense_key: sense_key(sense) });
            }
            _ => {}
        })?;
    }
    Ok(match outcome {
        Some(bad @ Outcome::Bad { .. }) => bad,
        _ => Outcome::Good(data),
    })
}

/// The result of a command.
#[derive(Debug)]
enum Outcome {
    /// With this data.
    Good(Vec<u8>),
    /// With a status other than GOOD.
    Bad {
        #[expect(dead_code, reason = "shown to the operator through Debug")]
        status: Option<u8>,
        sense_key: u8,
    },
}

/// The sense key in fixed or descriptor format (SPC-5, 4.4).
fn sense_key(sense: &[u8]) -> u8 {
    let at = if sense.first().is_some_and(|code| code & 0x7f >= 0x72) { 1 } else { 2 };
    sense.get(at).map_or(0, |key| key & 0x0f)
}
