//! From nothing to a session that can read and write: connect, log in, ask for the capacity.

use crate::arguments::Url;
use crate::pdu::{HEADER, Header, Transfer, opcode, padding};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Most bytes of data in a PDU that the target may send.
pub(crate) const RECEIVE_SEGMENT: usize = 256 << 10;

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

/// A session in full feature phase.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) socket: TcpStream,
    pub(crate) disk: Disk,
    pub(crate) lun: u8,
    pub(crate) numbers: Numbers,
    /// Bytes that may come with a write command.
    pub(crate) immediate: usize,
    /// Most bytes of data in a PDU to the target, a multiple of four.
    pub(crate) send_segment: usize,
}

/// The sequence numbers of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// `CmdSN` of the next command.
    pub(crate) command: u32,
    /// `ExpStatSN`: of the next status.
    pub(crate) status: u32,
    /// `MaxCmdSN`: of the last command that the target will take.
    pub(crate) window: u32,
}

/// Logs in as session number `index` of this process.
pub(crate) fn login(url: &Url, index: u32) -> Result<Login, String> {
    let failed =
        |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", url.portal);
    let socket = TcpStream::connect(&url.portal).map_err(|error| failed("connect to", error))?;
    let limit = Some(Duration::from_secs(10));
    socket
        .set_nodelay(true)
        .and_then(|()| socket.set_read_timeout(limit))
        .and_then(|()| socket.set_write_timeout(limit))
        .map_err(|error| failed("set up the connection to", error))?;
    let numbers = Numbers { command: 1, status: 0, window: 1 };
    let disk = Disk { blocks: 0, block_size: 0 };
    let mut login = Login { socket, disk, lun: url.lun, numbers, immediate: 0, send_segment: 8192 };
    login.negotiate(url, index)?;
    login.wait_until_ready()?;
    login.disk = login.read_capacity()?;
    Ok(login)
}

impl Login {
    fn negotiate(&mut self, url: &Url, index: u32) -> Result<(), String> {
        let text = [
            "InitiatorName=iqn.2026-11.org.example:iscsi-load",
            "SessionType=Normal",
            &format!("TargetName={}", url.target),
            "HeaderDigest=None",
            "DataDigest=None",
            "MaxConnections=1",
            "InitialR2T=No",
            "ImmediateData=Yes",
            &format!("MaxRecvDataSegmentLength={RECEIVE_SEGMENT}"),
            "MaxBurstLength=262144",
            "FirstBurstLength=262144",
            "DefaultTime2Wait=0",
            "DefaultTime2Retain=0",
            "MaxOutstandingR2T=1",
            "DataPDUInOrder=Yes",
            "DataSequenceInOrder=Yes",
            "ErrorRecoveryLevel=0",
        ]
        .map(|pair| format!("{pair}\0"))
        .concat();
        // The random format of 11.12.5: other processes and sessions choose others.
        let [.., a, b, c] = std::process::id().to_be_bytes();
        let isid = [0x80, a, b, c, 0, index as u8];
        let mut header = Header::login(isid);
        header.set_numbers(self.numbers.command, 0);
        self.send(header, text.as_bytes())?;

        let mut immediate_data = true;
        let mut first_burst = 262_144;
        // A target may take several rounds to say everything; each of ours asks to go on.
        for _ in 0..8 {
            let (answer, data) = self.receive()?;
            if answer.opcode() != opcode::LOGIN_RESPONSE {
                return Err(format!("login was answered with opcode {:#04x}", answer.opcode()));
            }
            let status = answer.get(36) >> 16;
            if status != 0 {
                return Err(format!("{} refused the login: status {status:#06x}", url.target));
            }
            for pair in String::from_utf8_lossy(&data).split_terminator('\0') {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                let number = value.parse::<usize>();
                match (key, number) {
                    ("MaxRecvDataSegmentLength", Ok(length)) => {
                        // 512 is the least that the key allows.
                        self.send_segment = length.clamp(512, 1 << 23) & !3;
                    }
                    ("FirstBurstLength", Ok(length)) => first_burst = length & !3,
                    ("ImmediateData", _) => immediate_data = value == "Yes",
                    ("HeaderDigest" | "DataDigest", _) if value != "None" => {
                        return Err(format!("the target insists on {pair}"));
                    }
                    _ => {}
                }
            }
            self.numbers.status = answer.stat_sn().wrapping_add(1);
            self.numbers.window = answer.max_cmd_sn();
            if answer.flags() & 0x83 == 0x83 {
                if immediate_data {
                    self.immediate = first_burst.min(self.send_segment);
                }
                return Ok(());
            }
            header.set_numbers(self.numbers.command, self.numbers.status);
            self.send(header, &[])?;
        }
        Err(String::from("the target does not come to the end of the login"))
    }

    /// Swallows the unit attentions that every new session meets (SAM-5, 5.14).
    fn wait_until_ready(&mut self) -> Result<(), String> {
        for _ in 0..16 {
            match self.execute([0; 16], Transfer::None)? {
                Outcome::Good(_) => return Ok(()),
                Outcome::Bad { sense_key: 6, .. } => {}
                bad @ Outcome::Bad { .. } => return Err(format!("not ready: {bad:?}")),
            }
        }
        Err(String::from("the logical unit has no end of unit attentions"))
    }

    /// READ CAPACITY(16): SBC-4, 5.20.
    fn read_capacity(&mut self) -> Result<Disk, String> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        let data = match self.execute(cdb, Transfer::Read(32))? {
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

    /// One command, alone.
    fn execute(&mut self, cdb: [u8; 16], transfer: Transfer) -> Result<Outcome, String> {
        let mut header = Header::command(self.lun, 0, &cdb, transfer);
        header.set_numbers(self.numbers.command, self.numbers.status);
        self.numbers.command = self.numbers.command.wrapping_add(1);
        self.send(header, &[])?;
        let mut data_in = Vec::new();
        loop {
            let (answer, data) = self.receive()?;
            self.numbers.window = answer.max_cmd_sn();
            let has_status = match answer.opcode() {
                opcode::DATA_IN => {
                    data_in.extend(&data);
                    answer.flags() & 1 != 0
                }
                opcode::SCSI_RESPONSE => true,
                opcode::NOP_IN => continue,
                other => return Err(format!("a command was answered with opcode {other:#04x}")),
            };
            if !has_status {
                continue;
            }
            self.numbers.status = answer.stat_sn().wrapping_add(1);
            return Ok(match answer.status() {
                0 => Outcome::Good(data_in),
                status => Outcome::Bad { status, sense_key: sense_key(&data) },
            });
        }
    }

    fn send(&mut self, mut header: Header, data: &[u8]) -> Result<(), String> {
        header.set_data_length(data.len());
        let padded = [&header.0[..], data, &[0; 3][..padding(data.len())]].concat();
        self.socket.write_all(&padded).map_err(|error| format!("cannot send: {error}"))
    }

    fn receive(&mut self) -> Result<(Header, Vec<u8>), String> {
        let mut read = |bytes: &mut [u8]| {
            self.socket.read_exact(bytes).map_err(|error| format!("cannot receive: {error}"))
        };
        let mut header = Header([0; HEADER]);
        read(&mut header.0)?;
        let (skipped, length) = (header.ahs_length(), header.data_length());
        if length > RECEIVE_SEGMENT {
            return Err(format!("the target sent {length} bytes in one PDU"));
        }
        let mut data = vec![0; skipped + length + padding(length)];
        read(&mut data)?;
        Ok((header, data[skipped..skipped + length].to_vec()))
    }
}

/// How a command ended.
#[derive(Debug)]
enum Outcome {
    /// With this data.
    Good(Vec<u8>),
    /// With a status other than GOOD.
    Bad {
        #[expect(dead_code, reason = "shown to the operator through Debug")]
        status: u8,
        sense_key: u8,
    },
}

/// The sense key in the data of a SCSI Response: two bytes of length, then the sense data in fixed
/// or descriptor format (SPC-5, 4.4).
fn sense_key(data: &[u8]) -> u8 {
    let sense = data.get(2..).unwrap_or_default();
    let at = if sense.first().is_some_and(|code| code & 0x7f >= 0x72) { 1 } else { 2 };
    sense.get(at).map_or(0, |key| key & 0x0f)
}
