//! The login phase: identity, security and parameters (RFC 7143 section 6.3).

mod fault;
mod identity;
mod security;

pub use fault::LoginFault;

use zerocopy::transmute_ref;

use self::security::Security;
use super::connection::Phase;
use super::{Connection, DigestPolicy, Event, Isid, LoginStatus};
use crate::iscsi::chap::Keys;
use crate::iscsi::framing::{Digests, Segment};
use crate::iscsi::keys::Answer;
use crate::iscsi::pdu::{CONTINUE, FINAL, Header, LoginRequest, LoginResponse, opcode};
use crate::iscsi::text::{self, TEXT_LENGTH_MAX};

/// Security negotiation stage.
const SECURITY: u8 = 0;
/// Operational negotiation stage.
const OPERATIONAL: u8 = 1;
/// Full feature phase.
const FULL_FEATURE: u8 = 3;
/// Maximum number of different keys in one login. More end it.
const KEYS_MAX: usize = 128;

/// The state of a login.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) initiator: String,
    pub(super) isid: Isid,
    /// As the host asks; that of the session once it is admitted.
    pub(super) tsih: u16,
    /// The session is admitted.
    pub(super) admitted: bool,
    pub(super) cid: u16,
    pub(super) target: Option<usize>,
    pub(super) is_discovery: bool,
    /// CHAP name of the initiator, once it is authenticated.
    account: Option<String>,
    security: Security,
    /// The first request was seen.
    started: bool,
    /// The first text was complete, so the identity is fixed.
    identified: bool,
    /// The target's declarations were sent.
    declared: bool,
    stage: u8,
    target_name: Option<String>,
    session_type: Option<String>,
    /// Keys that were negotiated, to detect duplicates.
    seen: Vec<String>,
    /// Text of requests that continue.
    incoming: Vec<u8>,
    /// Text of responses that continue.
    outgoing: Vec<u8>,
    /// The request whose answer waits for the shell's decision on the session.
    last: Option<LoginRequest>,
    /// The request whose credentials wait for the shell's decision; its text is in `incoming`.
    offered: Option<LoginRequest>,
    /// All logins are refused with this status.
    refusal: Option<LoginStatus>,
}

/// Current stage of a request.
const fn current_stage(request: &LoginRequest) -> u8 {
    request.flags >> 2 & 3
}

/// The stage to which a request wants to move on, if any.
const fn next_stage(request: &LoginRequest) -> Option<u8> {
    if request.flags & FINAL != 0 { Some(request.flags & 3) } else { None }
}

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Takes one PDU of the login phase.
    pub(super) fn on_login(&mut self, header: &Header, data: &[u8]) -> Option<Event<'static>> {
        let request: &LoginRequest = transmute_ref!(header);
        match self.login_step(header, request, data) {
            Ok(event) => event,
            Err(reason) => Some(self.fail_login(request, reason)),
        }
    }

    fn login_step(
        &mut self,
        header: &Header,
        request: &LoginRequest,
        data: &[u8],
    ) -> Result<Option<Event<'static>>, LoginFault> {
        // RFC 7143 section 6.3: nothing but login requests before the full feature phase.
        if header.kind() != opcode::LOGIN_REQUEST {
            return Err(LoginFault::NotALogin { opcode: header.kind() });
        }
        self.check_login_header(request)?;

        if !self.login.outgoing.is_empty() {
            // RFC 7143 section 6.2: the answer to a continued response is an empty request.
            return if data.is_empty() {
                self.answer_login(request)
            } else {
                Err(LoginFault::TextTooEarly)
            };
        }
        if self.login.incoming.len() + data.len() > TEXT_LENGTH_MAX {
            return Err(LoginFault::TextTooLong);
        }
        self.login.incoming.extend_from_slice(data);
        if request.flags & CONTINUE != 0 {
            self.push_login_response(request, current_stage(request) << 2, 0);
            return Ok(None);
        }

        let incoming = std::mem::take(&mut self.login.incoming);
        if let Some(status) = self.login.refusal {
            self.note_initiator(&incoming);
            return Err(LoginFault::TurnedAway { status });
        }
        if let Some(account) = self.offered_account(&incoming) {
            let event = Event::CredentialsOffered {
                initiator: self.login.initiator.clone(),
                account: account.to_owned(),
            };
            self.login.incoming = incoming;
            self.login.offered = Some(*request);
            self.phase = Phase::Deciding;
            return Ok(Some(event));
        }
        self.take_login_text(&incoming)?;
        self.answer_login(request)
    }

    /// Answers [`Event::CredentialsOffered`]: the login continues with the credentials. Returns the next event.
    pub fn check_credentials(&mut self) -> Option<Event<'static>> {
        let request = self.login.offered.take()?;
        self.phase = Phase::Login;
        let incoming = std::mem::take(&mut self.login.incoming);
        match self.take_login_text(&incoming).and_then(|()| self.answer_login(&request)) {
            Ok(event) => event,
            Err(reason) => Some(self.fail_login(&request, reason)),
        }
    }

    /// Refuses the login with this status, at the next request of the initiator. Only before the full feature phase.
    pub fn refuse_logins(&mut self, status: LoginStatus) {
        self.login.refusal = Some(status);
    }

    /// Handles one complete text. Its keys have no order, but identity keys are handled first, since the others
    /// depend on them.
    fn take_login_text(&mut self, incoming: &[u8]) -> Result<(), LoginFault> {
        let mut others = Vec::new();
        for (key, value) in text::pairs(incoming).map_err(|_| LoginFault::Text)? {
            if !self.identity_key(key, value)? {
                others.push((key, value));
            }
        }
        let is_first = !self.login.identified;
        if is_first {
            self.identify()?;
        }
        self.check_stage()?;

        // RFC 7143 section 13.14: FirstBurstLength depends on MaxBurstLength.
        others.sort_by_key(|&(key, _)| key == "FirstBurstLength");
        let was = self.login.security;
        let mut keys = Keys::default();
        for (key, value) in others {
            self.see(key)?;
            if !keys.keep(key, value) {
                self.login_key(key, value)?;
            }
        }
        self.authenticate(keys, was)?;
        if is_first {
            self.introduce();
        }
        if self.login.stage == OPERATIONAL && !self.login.declared {
            self.declare();
        }
        Ok(())
    }

    fn check_login_header(&mut self, request: &LoginRequest) -> Result<(), LoginFault> {
        let login = &mut self.login;
        if !login.started {
            login.started = true;
            login.isid = Isid(request.isid);
            login.tsih = request.tsih.get();
            login.cid = request.cid.get();
            login.stage = current_stage(request);
            self.window.start(request.cmd_sn.get(), request.exp_stat_sn.get());
            // RFC 7143 section 11.12.4: Weir speaks version 0 and nothing else.
            if request.version_min > 0 {
                return Err(LoginFault::Version { lowest: request.version_min });
            }
        }
        // RFC 7143 section 11.12: these do not change during a login.
        let same = login.isid.0 == request.isid
            && login.tsih == request.tsih.get()
            && login.cid == request.cid.get()
            && login.stage == current_stage(request);
        if !same {
            return Err(LoginFault::HeaderChanged);
        }
        // RFC 7143 section 11.12.3: stage 2 does not exist, and stages only go up.
        let stage = current_stage(request);
        let stages_fit = match next_stage(request) {
            None => true,
            Some(next) => request.flags & CONTINUE == 0 && next > stage && next != 2,
        };
        if stages_fit && stage <= OPERATIONAL {
            Ok(())
        } else {
            Err(LoginFault::Stages { flags: request.flags })
        }
    }

    /// Records a received key.
    // RFC 7143 section 6.2: a key is negotiated once.
    fn see(&mut self, key: &str) -> Result<(), LoginFault> {
        let seen = &mut self.login.seen;
        if seen.iter().any(|one| one == key) {
            return Err(LoginFault::KeyTwice { key: key.to_owned() });
        }
        if seen.len() == KEYS_MAX {
            return Err(LoginFault::TooManyKeys);
        }
        seen.push(key.to_owned());
        Ok(())
    }

    fn login_key(&mut self, key: &str, value: &str) -> Result<(), LoginFault> {
        if key == "AuthMethod" {
            return self.choose_method(value);
        }
        let is_discovery = self.login.is_discovery;
        let answer = if self.login.stage == OPERATIONAL
            || matches!(key, "MaxRecvDataSegmentLength" | "InitiatorAlias")
        {
            self.parameters.negotiate(key, value, &self.limits, is_discovery)
        } else {
            // RFC 7143 section 6.3.2: operational keys are not allowed in the security stage.
            match self.parameters.clone().negotiate(key, value, &self.limits, is_discovery) {
                unknown @ (Answer::Nothing | Answer::Constant("NotUnderstood")) => unknown,
                _ => Answer::Misplaced,
            }
        };
        let outgoing = &mut self.login.outgoing;
        match answer {
            Answer::Value(value) => text::push(outgoing, key, &value),
            Answer::Constant(value) => text::push(outgoing, key, value),
            Answer::Nothing => {}
            Answer::Fail => return Err(LoginFault::IllegalValue { key: key.to_owned() }),
            Answer::Misplaced => return Err(LoginFault::KeyOutOfPlace { key: key.to_owned() }),
        }
        Ok(())
    }

    /// Sends the target's declarations, which need no answer.
    fn declare(&mut self) {
        let ours = self.limits.max_recv_data_segment_length;
        text::push(&mut self.login.outgoing, "MaxRecvDataSegmentLength", &ours.to_string());
        self.parameters.target_segment_length = ours;
        self.login.declared = true;
    }

    /// Answers with as much of the text as the initiator accepts, and changes the stage if it requests that.
    fn answer_login(
        &mut self,
        request: &LoginRequest,
    ) -> Result<Option<Event<'static>>, LoginFault> {
        let stage = self.login.stage;
        let length = self.login.outgoing.len();
        let limit = self.parameters.initiator_segment_length as usize;
        if length > limit {
            // RFC 7143 section 6.2: the C bit, and no transit before the text is complete.
            self.push_login_response(request, CONTINUE | stage << 2, limit);
            return Ok(None);
        }
        match self.transit(next_stage(request))? {
            None => self.push_login_response(request, stage << 2, length),
            Some(FULL_FEATURE) => return self.request_session(request).map(Some),
            Some(next) => {
                self.push_login_response(request, FINAL | stage << 2 | next, length);
                self.login.stage = next;
            }
        }
        Ok(None)
    }

    fn request_session(&mut self, request: &LoginRequest) -> Result<Event<'static>, LoginFault> {
        for (key, policy, agreed) in [
            ("HeaderDigest", self.limits.header_digest, self.parameters.header_digest),
            ("DataDigest", self.limits.data_digest, self.parameters.data_digest),
        ] {
            if policy == DigestPolicy::Required && !agreed {
                return Err(LoginFault::DigestRequired { key });
            }
        }
        self.login.last = Some(*request);
        self.phase = Phase::Deciding;
        Ok(Event::SessionRequested {
            initiator: self.login.initiator.clone(),
            isid: self.login.isid,
            tsih: self.login.tsih,
            target: self.login.target,
            cid: self.login.cid,
            account: self.login.account.clone(),
        })
    }

    /// Answers [`Event::SessionRequested`]: the session exists from now on and is called `tsih`,
    /// which must not be zero.
    pub fn session_admitted(&mut self, tsih: u16) {
        assert_ne!(tsih, 0, "a session has a handle");
        let Some(request) = self.login.last.take() else {
            return;
        };
        // RFC 7143 section 11.13.3: the final response names the session.
        (self.login.tsih, self.login.admitted) = (tsih, true);
        let flags = FINAL | self.login.stage << 2 | FULL_FEATURE;
        self.push_login_response(&request, flags, self.login.outgoing.len());
        self.phase = Phase::FullFeature;
        // RFC 7143 section 13.1: digests begin with the first PDU after the login.
        self.digests =
            Digests { header: self.parameters.header_digest, data: self.parameters.data_digest };
        self.login.seen = Vec::new();
    }

    /// Answers [`Event::SessionRequested`] or [`Event::CredentialsOffered`]: no session. The connection closes.
    pub fn login_refused(&mut self, status: LoginStatus) {
        if let Some(request) = self.login.last.take().or(self.login.offered.take()) {
            self.push_refusal(&request, status, &[]);
        }
    }

    fn fail_login(&mut self, request: &LoginRequest, reason: LoginFault) -> Event<'static> {
        let mut text = Vec::new();
        if let LoginFault::Redirected { portal, .. } = &reason {
            // RFC 7143 section 13.8: in a redirection the address has no portal group tag.
            text::push(&mut text, "TargetAddress", portal);
        }
        let status = reason.status();
        self.push_refusal(request, status, &text);
        Event::LoginFailed { status, reason }
    }

    fn push_refusal(&mut self, request: &LoginRequest, status: LoginStatus, text: &[u8]) {
        let response = LoginResponse {
            opcode: opcode::LOGIN_RESPONSE,
            flags: request.flags & 0x0c,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            status: (status as u16).into(),
            ..LoginResponse::default()
        };
        let bytes = zerocopy::transmute!(response);
        self.outbox.push_pdu(bytes, Segment::Bytes(text), Digests::default(), None);
        self.phase = Phase::Closing;
    }

    /// Sends the first `length` bytes of the text that waits.
    fn push_login_response(&mut self, request: &LoginRequest, flags: u8, length: usize) {
        let numbers = self.numbers();
        let response = LoginResponse {
            opcode: opcode::LOGIN_RESPONSE,
            flags,
            isid: request.isid,
            tsih: self.login.tsih.into(),
            itt: request.itt,
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..LoginResponse::default()
        };
        let bytes = zerocopy::transmute!(response);
        let text = Segment::Bytes(&self.login.outgoing[..length]);
        self.outbox.push_pdu(bytes, text, Digests::default(), None);
        self.login.outgoing.drain(..length);
    }
}
