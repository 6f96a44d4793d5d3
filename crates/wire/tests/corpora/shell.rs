//! A gateway's shell around one iSCSI connection, for feeding it anything: acts on events, takes what
//! the connection sends, and checks what must hold whatever the peer does.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::iscsi::target_role::{
    Account, Advertised, Authentication, Connection, Event, IMMEDIATE_TASKS_MAX, Initiators, Itt,
    Limits, LoginStatus, Node, Redirect, Secret, TargetEntry, TaskFunction, TmfResponse,
};
use weir_wire::scsi::{ScsiStatus, Sense};

/// The target that anyone may use.
pub(crate) const OPEN: &str = "iqn.2026-01.test.weir:open";
/// The target that asks for CHAP and can prove itself.
pub(crate) const GUARDED: &str = "iqn.2026-01.test.weir:guarded";
/// The target that only [`FRIEND`] finds.
pub(crate) const HIDDEN: &str = "iqn.2026-01.test.weir:hidden";
/// The target that is served elsewhere.
pub(crate) const MOVED: &str = "iqn.2026-01.test.weir:moved";
/// The target that was taken away.
pub(crate) const REMOVED: &str = "iqn.2026-01.test.weir:removed";
/// The initiator that finds [`HIDDEN`].
pub(crate) const FRIEND: &str = "iqn.2026-01.test.weir:friend";
/// All targets by index.
pub(crate) const TARGETS: [&str; 5] = [OPEN, GUARDED, HIDDEN, MOVED, REMOVED];
/// TSIH of the session, if it comes to one.
pub(crate) const TSIH: u16 = 7;
/// The challenge of every connection here.
pub(crate) const CHALLENGE: [u8; 32] = *b"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_";

/// Names and secrets of all accounts. The secrets have a space, so that no key and no name that the
/// connection repeats can hold one. The last one has the secret of the gateway's own.
pub(crate) const ACCOUNTS: [(&str, &[u8]); 4] = [
    ("weir", b"the gateway's own"),
    ("alice", b"secret of alice"),
    ("bob", b"secret of bob"),
    ("twin", b"the gateway's own"),
];
/// Who may log in to [`GUARDED`], by index.
pub(crate) const GUARDED_BY: [usize; 2] = [1, 3];
/// Who may discover, if not everyone may.
pub(crate) const DISCOVERED_BY: [usize; 1] = [2];
/// The gateway's own account.
pub(crate) const OWN: usize = 0;

/// Most bytes that the connection may own more after one PDU than before, beside those of the PDU
/// itself, which an echo repeats: a text answer with all targets and 64 keys that are not
/// understood, or the R2Ts of one command.
const ANSWER_MAX: usize = 8192;
/// The bytes in the outbox at which this shell stops reading.
const OUTBOX_MAX: usize = 16 * 1024;
/// Read data of one command, in bytes; not a multiple of anything.
const READ_LENGTH: usize = 1337;

/// Who wants a session, by the connection's word.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) initiator: String,
    pub(crate) target: Option<usize>,
    pub(crate) account: Option<String>,
}

/// Write data of one command, in bytes.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    received: u32,
    /// How much was asked for.
    wanted: u32,
    /// How much the initiator has.
    expected: u32,
}

/// Shell, connection and what was counted.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) connection: Connection<Arc<[u8]>>,
    pub(crate) limits: Limits,
    /// Commands that the connection told of.
    commands: usize,
    /// PDUs that were taken.
    requests: usize,
    /// Commands that were answered while they were outstanding.
    answered: usize,
    /// Commands that task management ended without an answer.
    abandoned: usize,
    /// Write data by the tag of its command.
    gathered: BTreeMap<u32, Gathered>,
    /// Responses that left completely, by the connection's word.
    written: usize,
    /// Responses in what was sent.
    responses: usize,
    /// Everything that the connection sent.
    pub(crate) sent: Vec<u8>,
    /// All text in it.
    pub(crate) text: Vec<u8>,
    /// Where in `sent` the digests begin, once they do.
    full_feature_at: Option<usize>,
    /// How much of `sent` was taken apart.
    parsed: usize,
    next_stat_sn: Option<u32>,
    /// Status of the last login response.
    login_status: Option<u16>,
    /// Why the login failed, by the connection's word.
    failure: Option<LoginStatus>,
    /// The session that was asked for.
    pub(crate) session: Option<Session>,
    /// The last command number that the initiator may use.
    pub(crate) max_cmd_sn: u32,
}

/// The targets. Discovery asks for an account if it is `closed`, and names the portals then.
fn node(closed: bool) -> Node {
    let entry = |name: &str| TargetEntry { iqn: name.to_owned(), ..TargetEntry::default() };
    let authentication = Authentication { accounts: GUARDED_BY.to_vec(), mutual: Some(OWN) };
    let alias = Some("guarded".to_owned());
    let redirect = Some(Redirect { portal: "10.0.2.9:3260".to_owned(), permanent: closed });
    let account = |(name, secret): (&str, &[u8])| Account {
        name: name.to_owned(),
        secret: Secret::new(secret).expect("long enough"),
    };
    let portals = ["10.0.2.2:3260", "[fd00::1]:3260"].map(|one| Advertised(one.to_owned()));
    Node {
        targets: vec![
            entry(OPEN),
            TargetEntry { alias, authentication, ..entry(GUARDED) },
            TargetEntry { initiators: Initiators::new([FRIEND.to_owned()]), ..entry(HIDDEN) },
            TargetEntry { redirect, ..entry(MOVED) },
            TargetEntry { removed: true, ..entry(REMOVED) },
        ],
        portals: if closed { portals.to_vec() } else { Vec::new() },
        portal_group: 1,
        accounts: ACCOUNTS.map(account).to_vec(),
        discovery: Authentication {
            accounts: if closed { DISCOVERED_BY.to_vec() } else { Vec::new() },
            mutual: None,
        },
    }
}

impl Shell {
    /// A new connection to a node of five targets; see [`node`].
    pub(crate) fn new(limits: Limits, closed: bool) -> Self {
        let (node, portals) = (Arc::new(node(closed)), vec!["127.0.0.1:3260".to_owned()]);
        Self {
            connection: Connection::new(node, limits, portals, CHALLENGE),
            limits,
            commands: 0,
            requests: 0,
            answered: 0,
            abandoned: 0,
            gathered: BTreeMap::new(),
            written: 0,
            responses: 0,
            sent: Vec::new(),
            text: Vec::new(),
            full_feature_at: None,
            parsed: 0,
            next_stat_sn: None,
            login_status: None,
            failure: None,
            session: None,
            max_cmd_sn: 0,
        }
    }

    /// Hands bytes over as they would lie in a receive buffer, until all are dealt with or more are
    /// needed. Returns those left over, or `None` once the connection is closing.
    pub(crate) fn feed<'a>(&mut self, mut input: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            let owned = self.connection.outbox().owned();
            let Ok(received) = self.connection.receive(input) else {
                assert!(self.connection.wants_close(), "no connection survives an error");
                self.drain();
                return None;
            };
            let consumed = received.consumed;
            assert!(consumed <= input.len(), "{consumed} of {} bytes taken", input.len());
            let needed = self.connection.needed();
            assert!(needed <= self.limits.pdu_length_max(), "{needed} bytes needed");
            self.requests += usize::from(consumed > 0);
            let progress = consumed > 0 || received.event.is_some();
            if let Some(event) = received.event {
                self.act(&event);
            }
            let grown = self.connection.outbox().owned().saturating_sub(owned);
            assert!(grown <= ANSWER_MAX + consumed, "{grown} bytes in answer to {consumed}");
            self.check_counts();
            input = &input[consumed..];
            if self.connection.wants_close() {
                self.drain();
                return None;
            }
            if !progress {
                assert!(needed > input.len(), "a PDU that is there must be taken");
                return Some(input);
            }
            if self.connection.outbox().owned() > OUTBOX_MAX {
                self.drain();
            }
        }
    }

    fn check_counts(&self) {
        let outstanding = self.connection.outstanding_tasks().len();
        let most = self.limits.command_window as usize + IMMEDIATE_TASKS_MAX;
        assert!(outstanding <= most, "{outstanding} commands outstanding");
        let ended = self.answered + self.abandoned;
        assert_eq!(self.commands, ended + outstanding, "a command ends once");
    }

    /// What a shell does about an event. Three commands of four are answered at once.
    fn act(&mut self, event: &Event<'_>) {
        match event {
            Event::SessionRequested { initiator, tsih, target, account, .. } => {
                let (initiator, account) = (initiator.clone(), account.clone());
                self.session = Some(Session { initiator, target: *target, account });
                self.drain();
                if *tsih == 0 {
                    self.connection.session_admitted(TSIH);
                } else {
                    self.failure = Some(LoginStatus::SessionDoesNotExist);
                    self.connection.login_refused(LoginStatus::SessionDoesNotExist);
                }
            }
            Event::CredentialsOffered { initiator, account } => {
                assert!(!initiator.is_empty() && (1..=255).contains(&account.len()));
                self.drain();
                if let Some(event) = self.connection.check_credentials() {
                    self.act(&event);
                }
            }
            Event::LoginFailed { status, reason } => {
                assert_ne!(*status, LoginStatus::Success);
                assert_eq!(*status, reason.status());
                let words = reason.to_string();
                assert!(!words.chars().any(char::is_control), "{words:?} goes to a log");
                assert!(self.connection.wants_close());
                self.failure = Some(*status);
            }
            Event::Command(command) => {
                self.commands += 1;
                let (received, expected) =
                    (command.immediate.len() as u32, command.expected_length);
                assert!(received <= expected && (command.writes || !command.unsolicited));
                // A command may take less than there is.
                let wanted = if command.itt.0 & 4 == 0 { expected } else { expected / 2 };
                self.gathered.insert(command.itt.0, Gathered { received, wanted, expected });
                if command.writes && self.connection.solicit(command.itt, wanted) {
                    return;
                }
                match command.itt.0 % 4 {
                    0 => {}
                    1 => self.respond(command.itt, ScsiStatus::Good, None),
                    2 => {
                        let sense = Sense::LBA_OUT_OF_RANGE.with_information(u64::MAX);
                        self.respond(command.itt, ScsiStatus::CheckCondition, Some(sense));
                    }
                    _ => self.respond_data(command.itt),
                }
            }
            Event::Data { itt, offset, bytes, complete } => {
                assert!(self.connection.outstanding_tasks().contains(itt));
                let gathered = self.gathered.get_mut(&itt.0).expect("a known task");
                assert_eq!(*offset, gathered.received, "write data comes in order");
                gathered.received += bytes.len() as u32;
                assert!(gathered.received <= gathered.expected, "{gathered:?}");
                assert!(!complete || gathered.received >= gathered.wanted, "{gathered:?}");
                if *complete && itt.0 % 4 != 0 {
                    self.respond(*itt, ScsiStatus::Good, None);
                }
            }
            Event::TransferFailed { itt, sense } => {
                self.respond(*itt, ScsiStatus::CheckCondition, Some(*sense));
            }
            Event::TaskManagement { itt, function, referenced_itt, .. } => {
                if *function == TaskFunction::AbortTask {
                    self.abandoned += usize::from(self.connection.abandon(*referenced_itt));
                } else {
                    self.abandon_all();
                }
                self.connection.task_management_response(*itt, TmfResponse::Complete);
            }
            Event::Logout { itt, .. } => self.connection.logout_response(*itt),
            Event::Pong | Event::Rejected { .. } => {}
        }
    }

    fn respond(&mut self, itt: Itt, status: ScsiStatus, sense: Option<Sense>) {
        self.answered += usize::from(self.connection.outstanding_tasks().contains(&itt));
        self.connection.respond(itt, status, sense.as_ref(), 0);
    }

    fn respond_data(&mut self, itt: Itt) {
        self.answered += usize::from(self.connection.outstanding_tasks().contains(&itt));
        let data: Arc<[u8]> = vec![0xda; READ_LENGTH].into();
        self.connection.respond_data(itt, data, 0..READ_LENGTH, READ_LENGTH as u32);
    }

    /// Ends a command that was left unanswered, as a disk does later.
    pub(crate) fn finish_one(&mut self) {
        if let Some(&itt) = self.connection.outstanding_tasks().first() {
            self.respond_data(itt);
            self.check_counts();
        }
    }

    /// Forgets all commands, as a reset does.
    pub(crate) fn abandon_all(&mut self) {
        for task in self.connection.outstanding_tasks().to_vec() {
            self.abandoned += usize::from(self.connection.abandon(task));
        }
    }

    /// Writes the outbox in uneven portions, and parses it.
    pub(crate) fn drain(&mut self) {
        let mut portion = 1;
        let outbox = self.connection.outbox();
        while !outbox.is_empty() {
            let slice = outbox.slices().next().expect("a slice, as something waits");
            assert!(!slice.is_empty());
            let n = slice.len().min(portion);
            self.sent.extend_from_slice(&slice[..n]);
            outbox.advance(n, |_| self.written += 1);
            portion += 97;
        }
        assert!(outbox.is_empty() && outbox.owned() == 0);
        self.parse();
        assert_eq!(self.written, self.responses, "each response is reported when it left");
        // The connection refuses what breaks a rule by itself; nothing is answered twice.
        let outstanding = self.connection.outstanding_tasks().len();
        let ended = self.responses + self.abandoned + outstanding;
        assert!(self.answered <= self.responses && ended <= self.requests);
        if let Some(failure) = self.failure {
            assert_eq!(self.login_status, Some(failure as u16), "the initiator gets the same");
        }
        if self.connection.is_full_feature() && self.full_feature_at.is_none() {
            // The answer that ends the login was sent now, without digests; all later PDUs have
            // those that were negotiated.
            self.full_feature_at = Some(self.sent.len());
            self.next_stat_sn = None;
        }
    }

    /// Takes apart what was sent since the last time: whole PDUs, their numbers in order.
    fn parse(&mut self) {
        let parameters = self.connection.parameters();
        let in_login = self.full_feature_at.is_none();
        let (header_digest, data_digest, longest) = if in_login {
            (0, 0, 8192)
        } else {
            let digest = |used| if used { 4 } else { 0 };
            let longest = parameters.initiator_segment_length as usize;
            (digest(parameters.header_digest), digest(parameters.data_digest), longest)
        };
        let mut rest = &self.sent[self.parsed..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
            let opcode = rest[0];
            assert_eq!(rest[4], 0, "no additional headers from a target");
            let length = (word(4) & 0x00ff_ffff) as usize;
            assert!(length <= longest, "{length} bytes of data, the initiator takes {longest}");
            assert_eq!(opcode == 0x23, in_login, "a login has its own answers");
            // RFC 7143 sections 11.4 to 11.19: where StatSN advances.
            let counts = match opcode {
                0x21 | 0x22 | 0x24 | 0x26 | 0x32 | 0x3f => true,
                // RFC 7143 section 11.13.4: only a login that was not refused counts.
                0x23 => rest[36] == 0,
                0x20 => word(16) != u32::MAX,
                0x25 => rest[1] & 1 != 0,
                0x31 => false,
                _ => panic!("a target does not send opcode {opcode:#x}"),
            };
            self.responses += usize::from(opcode == 0x21 || opcode == 0x25 && counts);
            if counts {
                let stat_sn = word(24);
                assert!(self.next_stat_sn.is_none_or(|next| next == stat_sn), "StatSN {stat_sn}");
                self.next_stat_sn = Some(stat_sn.wrapping_add(1));
            }
            let window = word(32).wrapping_sub(word(28)).wrapping_add(1);
            assert!(window <= self.limits.command_window, "a window of {window}");
            self.max_cmd_sn = word(32);
            let data = 48 + header_digest;
            if matches!(opcode, 0x23 | 0x24) {
                self.text.extend_from_slice(&rest[data..data + length]);
            }
            if opcode == 0x23 {
                self.login_status = Some(u16::from_be_bytes([rest[36], rest[37]]));
            }
            match opcode {
                // RFC 7143 section 11.8.4: at most a burst, and never nothing.
                0x31 => assert!((1..=parameters.max_burst_length).contains(&word(44))),
                // RFC 7143 section 11.9.1: a logout is asked for, or the session is dropped.
                0x32 => assert!(matches!(rest[36], 1 | 3)),
                _ => {}
            }
            let data_digest = if length > 0 { data_digest } else { 0 };
            let data_end = data + length.next_multiple_of(4);
            check_digest(&rest[..48], &rest[48..data]);
            check_digest(&rest[data..data_end], &rest[data_end..data_end + data_digest]);
            rest = &rest[data_end + data_digest..];
        }
        self.parsed = self.sent.len();
    }
}

/// A digest, if there is one, fits what it covers.
fn check_digest(covered: &[u8], digest: &[u8]) {
    assert!(digest.is_empty() || crc32c::crc32c(covered).to_le_bytes() == *digest);
}
