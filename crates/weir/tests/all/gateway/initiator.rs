//! A small initiator: one session over one connection, as many commands at once as are issued.

use super::pdu::{NO_TAG, Pdu, opcode};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Immediate delivery bit of the first byte.
pub(crate) const IMMEDIATE: u8 = 0x40;

/// SCSI status codes.
pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;
pub(crate) const TASK_SET_FULL: u8 = 0x28;

/// UNIT ATTENTION: BUS DEVICE RESET FUNCTION OCCURRED.
pub(crate) const WAS_RESET: (u8, u8, u8) = (0x6, 0x29, 0x03);

/// Bytes per logical block.
pub(crate) const BLOCK: u64 = 512;

/// No socket of a test waits longer: a gateway that does not answer is a failure, not a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection on which nothing has been said.
pub(crate) fn connect(portal: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect_timeout(&portal, PATIENCE).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// The connection is closed by the gateway; returns what it still said.
pub(crate) fn until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return said,
            Ok(count) => said.extend(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_gone(&error) => return said,
            Err(error) => panic!("the gateway did not close the connection: {error}"),
        }
    }
}

/// Whether an error means that the connection is over, rather than silent.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Who logs in to what, and how.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    /// End of the initiator's name; another one is another host.
    pub(crate) host: &'static str,
    /// End of the target's name.
    pub(crate) target: &'static str,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) digests: bool,
}

impl Login {
    /// A plain login of `host` to the target `disk`.
    pub(crate) const fn of(host: &'static str) -> Self {
        Self { host, target: "disk", isid: [0x80, 0, 0, 0, 0, 1], tsih: 0, digests: false }
    }

    /// The keys.
    pub(crate) fn text(&self) -> String {
        let digest = if self.digests { "CRC32C" } else { "None" };
        [
            &format!("InitiatorName=iqn.2026-11.org.example.host:{}", self.host),
            "SessionType=Normal",
            &format!("TargetName=iqn.2026-11.org.example:{}", self.target),
            &format!("HeaderDigest={digest}"),
            &format!("DataDigest={digest}"),
            "InitialR2T=No",
            "ImmediateData=Yes",
            "MaxRecvDataSegmentLength=262144",
            "MaxBurstLength=262144",
            "FirstBurstLength=65536",
            "MaxOutstandingR2T=1",
            "ErrorRecoveryLevel=0",
        ]
        .map(|pair| format!("{pair}\0"))
        .concat()
    }

    /// The request: from the operational stage straight to the full feature phase.
    pub(crate) fn request(&self) -> Pdu {
        let mut pdu = Pdu::new(opcode::LOGIN | IMMEDIATE, 0x87, 0).with(24, 1);
        pdu.header[8..14].copy_from_slice(&self.isid);
        pdu.header[14..16].copy_from_slice(&self.tsih.to_be_bytes());
        pdu.carrying(self.text().as_bytes())
    }

    /// Logs in; the status class and detail if that is refused.
    pub(crate) fn connect(&self, portal: SocketAddr) -> Result<Session, u16> {
        let socket = connect(portal);
        self.request().send(&socket, false).unwrap();
        let answer = Pdu::receive(&socket, false).unwrap();
        assert_eq!(answer.opcode(), opcode::LOGIN_RESPONSE);
        let status = (answer.field(36) >> 16) as u16;
        if status != 0 {
            return Err(status);
        }
        Ok(self.begin(socket, &answer))
    }

    /// The session that the last answer of a login begins.
    pub(crate) fn begin(&self, socket: TcpStream, answer: &Pdu) -> Session {
        assert_eq!(answer.header[1] & 0x83, 0x83, "in the full feature phase");
        Session {
            peer: socket.local_addr().unwrap().to_string(),
            socket,
            digests: self.digests,
            lun: 0,
            tsih: u16::from_be_bytes([answer.header[14], answer.header[15]]),
            cmd_sn: 1,
            exp_stat_sn: answer.field(24).wrapping_add(1),
            max_cmd_sn: answer.field(32),
            next_itt: 1,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }
}

/// The data of a command.
#[derive(Clone, Debug)]
pub(crate) enum Transfer {
    None,
    /// This many bytes are expected.
    In(usize),
    Out(Vec<u8>),
}

/// How a command ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) status: u8,
    /// Key, additional code and qualifier.
    pub(crate) sense: Option<(u8, u8, u8)>,
    /// What was read.
    pub(crate) data: Vec<u8>,
}

impl Ended {
    /// What was read by a command that must have succeeded.
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!((self.status, self.sense), (GOOD, None));
        self.data
    }
}

/// A session in the full feature phase.
#[derive(Debug)]
pub(crate) struct Session {
    /// The connection, for tests that speak for themselves.
    pub(crate) socket: TcpStream,
    /// What the gateway's log calls us.
    pub(crate) peer: String,
    pub(crate) digests: bool,
    /// The logical unit that commands go to.
    pub(crate) lun: u8,
    pub(crate) tsih: u16,
    pub(crate) cmd_sn: u32,
    pub(crate) exp_stat_sn: u32,
    pub(crate) max_cmd_sn: u32,
    next_itt: u32,
    /// Commands without a status: what they still have to send, and what they have received.
    open: BTreeMap<u32, (Vec<u8>, Vec<u8>)>,
    /// Statuses that no test has asked for yet.
    ended: BTreeMap<u32, Ended>,
}

impl Session {
    /// Sends a PDU as it is.
    pub(crate) fn send(&self, pdu: &Pdu) {
        pdu.send(&self.socket, self.digests).unwrap();
    }

    /// A tag that was not used before.
    pub(crate) const fn new_itt(&mut self) -> u32 {
        self.next_itt += 1;
        self.next_itt - 1
    }

    /// Completes a request with the sequence numbers that are due.
    pub(crate) const fn numbered(&mut self, pdu: Pdu) -> Pdu {
        let cmd_sn = self.cmd_sn;
        if pdu.header[0] & IMMEDIATE == 0 {
            self.cmd_sn = cmd_sn.wrapping_add(1);
        }
        let mut pdu = pdu;
        let (numbers, mut at) = ([cmd_sn.to_be_bytes(), self.exp_stat_sn.to_be_bytes()], 0);
        while at < 8 {
            pdu.header[24 + at] = numbers[at / 4][at % 4];
            at += 1;
        }
        pdu
    }

    /// The PDU of a command, with as much of its data as may come at once.
    pub(crate) fn command(&mut self, first: u8, itt: u32, cdb: [u8; 16], of: &Transfer) -> Pdu {
        let (direction, length, now) = match of {
            Transfer::None => (0, 0, &[][..]),
            Transfer::In(length) => (0x40, *length, &[][..]),
            Transfer::Out(data) => (0x20, data.len(), &data[..data.len().min(65_536)]),
        };
        let pdu = Pdu::new(opcode::COMMAND | first, 0x80 | direction, itt);
        let mut pdu = self.numbered(pdu.with(20, length as u32));
        pdu.header[9] = self.lun;
        pdu.header[32..].copy_from_slice(&cdb);
        pdu.carrying(now)
    }

    /// Whether the gateway takes another command.
    pub(crate) const fn has_room(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn).wrapping_add(1).cast_signed() > 0
    }

    /// Sends a command as soon as the window lets it, and returns its tag.
    pub(crate) fn issue(&mut self, cdb: [u8; 16], transfer: Transfer) -> u32 {
        while !self.has_room() {
            self.hear().unwrap();
        }
        self.try_issue(0, cdb, transfer).unwrap()
    }

    /// Sends a command, whatever the window says.
    pub(crate) fn try_issue(
        &mut self,
        first: u8,
        cdb: [u8; 16],
        transfer: Transfer,
    ) -> io::Result<u32> {
        let itt = self.new_itt();
        let pdu = self.command(first, itt, cdb, &transfer);
        pdu.send(&self.socket, self.digests)?;
        self.expect(itt, transfer);
        Ok(itt)
    }

    /// Notes that a command was sent by hand, so that its data is sent and its end is known.
    pub(crate) fn expect(&mut self, itt: u32, transfer: Transfer) {
        let entry = match transfer {
            Transfer::None => (Vec::new(), Vec::new()),
            Transfer::In(length) => (Vec::new(), vec![0; length]),
            Transfer::Out(data) => (data, Vec::new()),
        };
        assert!(self.open.insert(itt, entry).is_none(), "a tag names one command");
    }

    /// Tags of the commands without a status.
    pub(crate) fn outstanding(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }

    /// Forgets a command that was aborted. A status that comes for it later is a failure.
    pub(crate) fn forget(&mut self, itt: u32) {
        self.open.remove(&itt);
    }

    /// Receives one PDU and answers what must be answered; returns what is neither data nor status.
    pub(crate) fn hear(&mut self) -> io::Result<Option<Pdu>> {
        let pdu = Pdu::receive(&self.socket, self.digests)?;
        let (code, itt) = (pdu.opcode(), pdu.itt());
        let has_status = match code {
            opcode::R2T => false,
            opcode::DATA_IN => pdu.header[1] & 1 != 0,
            opcode::NOP_IN => itt != NO_TAG,
            _ => true,
        };
        self.max_cmd_sn = pdu.field(32);
        if has_status {
            assert_eq!(pdu.field(24), self.exp_stat_sn, "statuses are numbered without a gap");
            self.exp_stat_sn = self.exp_stat_sn.wrapping_add(1);
        }
        match code {
            opcode::R2T => {
                let (start, length) = (pdu.field(40) as usize, pdu.field(44) as usize);
                let data = self.open[&itt].0[start..start + length].to_vec();
                for (number, piece) in data.chunks(65_536).enumerate() {
                    let at = number * 65_536;
                    let end = if at + piece.len() == length { 0x80 } else { 0 };
                    let out = Pdu::new(opcode::DATA_OUT, end, itt);
                    let out = out.with(20, pdu.field(20)).with(28, self.exp_stat_sn);
                    let out = out.with(36, number as u32).with(40, (start + at) as u32);
                    out.carrying(piece).send(&self.socket, self.digests)?;
                }
            }
            opcode::DATA_IN => {
                let (start, end) = (pdu.field(40) as usize, pdu.data.len());
                let (_, data) = self.open.get_mut(&itt).expect("data is for what was asked");
                data[start..start + end].copy_from_slice(&pdu.data);
                if has_status {
                    self.end(itt, pdu.header[3], None);
                }
            }
            opcode::RESPONSE => {
                let sense = pdu.data.get(2..).filter(|sense| sense.len() >= 14);
                let sense = sense.map(|sense| (sense[2] & 0xf, sense[12], sense[13]));
                self.end(itt, pdu.header[3], sense);
            }
            opcode::NOP_IN if pdu.field(20) != NO_TAG => {
                let pong = Pdu::new(opcode::NOP_OUT | IMMEDIATE, 0x80, NO_TAG);
                let pong = self.numbered(pong).with(20, pdu.field(20));
                pong.send(&self.socket, self.digests)?;
            }
            _ => return Ok(Some(pdu)),
        }
        Ok(None)
    }

    fn end(&mut self, itt: u32, status: u8, sense: Option<(u8, u8, u8)>) {
        let (_, data) = self.open.remove(&itt).expect("a command ends once");
        self.ended.insert(itt, Ended { status, sense, data });
    }

    /// Waits for a PDU that is neither data nor the status of a command.
    pub(crate) fn hear_other(&mut self) -> Pdu {
        loop {
            if let Some(pdu) = self.hear().unwrap() {
                return pdu;
            }
        }
    }

    /// The end of some command, in the order of their tags.
    pub(crate) fn next_ended(&mut self) -> io::Result<(u32, Ended)> {
        while self.ended.is_empty() {
            self.hear()?;
        }
        Ok(self.ended.pop_first().unwrap())
    }

    /// The end of this command.
    pub(crate) fn wait(&mut self, itt: u32) -> Ended {
        loop {
            if let Some(ended) = self.ended.remove(&itt) {
                return ended;
            }
            if let Some(pdu) = self.hear().unwrap() {
                panic!("opcode {:#04x} instead of a status", pdu.opcode());
            }
        }
    }

    /// Executes a command from beginning to end.
    pub(crate) fn execute(&mut self, cdb: [u8; 16], transfer: Transfer) -> Ended {
        let itt = self.issue(cdb, transfer);
        self.wait(itt)
    }

    /// Swallows the unit attention that a new session meets (SAM-5 section 5.14).
    pub(crate) fn ready(mut self) -> Self {
        assert_eq!(self.execute([0; 16], Transfer::None).sense, Some((0x6, 0x29, 0x00)));
        self.execute([0; 16], Transfer::None).good();
        self
    }

    /// Executes a command that must succeed; tries again while the task set is full, as hosts do.
    fn succeed(&mut self, cdb: [u8; 16], transfer: &Transfer) -> Vec<u8> {
        loop {
            let ended = self.execute(cdb, transfer.clone());
            if ended.status != TASK_SET_FULL {
                return ended.good();
            }
        }
    }

    /// Writes and waits for GOOD.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.succeed(write16(offset, data.len(), false), &Transfer::Out(data.to_vec()));
    }

    /// Reads.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.succeed(read16(offset, length), &Transfer::In(length))
    }

    /// Asks for a task management function at once; returns its response code.
    pub(crate) fn manage(&mut self, function: u8, lun: u8, referenced: u32) -> u8 {
        let itt = self.new_itt();
        let pdu = Pdu::new(opcode::MANAGEMENT | IMMEDIATE, 0x80 | function, itt);
        let mut pdu = self.numbered(pdu.with(20, referenced));
        pdu.header[9] = lun;
        self.send(&pdu);
        let answer = self.hear_other();
        assert_eq!((answer.opcode(), answer.itt()), (opcode::MANAGED, itt));
        answer.header[2]
    }

    /// An echo comes back: the session is alive.
    pub(crate) fn ping(&mut self) {
        let itt = self.new_itt();
        let nop = Pdu::new(opcode::NOP_OUT | IMMEDIATE, 0x80, itt).with(20, NO_TAG);
        let nop = self.numbered(nop).carrying(b"are you there");
        self.send(&nop);
        let echo = self.hear_other();
        assert_eq!((echo.opcode(), echo.itt()), (opcode::NOP_IN, itt));
        assert_eq!(echo.data, b"are you there");
    }

    /// The request to end the session.
    pub(crate) fn logout_request(&mut self) -> Pdu {
        let itt = self.new_itt();
        self.numbered(Pdu::new(opcode::LOGOUT, 0x80, itt))
    }

    /// Ends the session as it should be ended.
    pub(crate) fn logout(mut self) {
        let request = self.logout_request();
        self.send(&request);
        let answer = self.hear_other();
        assert_eq!((answer.opcode(), answer.header[2]), (opcode::LOGOUT_RESPONSE, 0));
        assert!(until_closed(&mut self.socket).is_empty());
    }

    /// Sends bytes that are no whole PDU.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }
}

fn cdb16(code: u8, offset: u64, length: u64) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&(offset / BLOCK).to_be_bytes());
    cdb[10..14].copy_from_slice(&((length / BLOCK) as u32).to_be_bytes());
    cdb
}

/// READ(16) of a range in bytes.
pub(crate) fn read16(offset: u64, length: usize) -> [u8; 16] {
    cdb16(0x88, offset, length as u64)
}

/// WRITE(16) of a range in bytes, perhaps with force unit access.
pub(crate) fn write16(offset: u64, length: usize, fua: bool) -> [u8; 16] {
    let mut cdb = cdb16(0x8a, offset, length as u64);
    cdb[1] = u8::from(fua) << 3;
    cdb
}

/// WRITE SAME(16) of zeroes: one block comes with it.
pub(crate) fn write_same16(offset: u64, length: u64) -> [u8; 16] {
    cdb16(0x93, offset, length)
}

/// SYNCHRONIZE CACHE(16) of everything.
pub(crate) fn synchronize16() -> [u8; 16] {
    cdb16(0x91, 0, 0)
}

/// UNMAP of one range in bytes: the command and its parameter list.
pub(crate) fn unmap(offset: u64, length: u64) -> ([u8; 16], Vec<u8>) {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x42, 24);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend((offset / BLOCK).to_be_bytes());
    list.extend(((length / BLOCK) as u32).to_be_bytes());
    list.extend([0; 4]);
    (cdb, list)
}
