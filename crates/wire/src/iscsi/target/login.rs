//! The login phase: who is there, which target, under which parameters (RFC 7143 section 6.3).

use zerocopy::transmute_ref;

use super::connection::Phase;
use super::outbox::{Digests, Segment};
use super::{Connection, DigestPolicy, Event, Isid, LoginStatus};
use crate::iscsi::keys::Answer;
use crate::iscsi::pdu::{CONTINUE, FINAL, Header, LoginRequest, LoginResponse, opcode};
use crate::iscsi::text::{self, TEXT_LENGTH_MAX};

/// Security negotiation stage.
const SECURITY: u8 = 0;
/// Operational negotiation stage.
const OPERATIONAL: u8 = 1;
/// Full feature phase.
const FULL_FEATURE: u8 = 3;
/// Most different keys in one login. More end it.
const KEYS_MAX: usize = 128;
/// Longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
const NAME_LENGTH_MAX: usize = 223;

/// What a login has established so far.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) initiator: String,
    pub(super) isid: Isid,
    pub(super) tsih: u16,
    pub(super) cid: u16,
    pub(super) target: Option<usize>,
    pub(super) is_discovery: bool,
    /// The first request was seen.
    started: bool,
    /// The first text was complete, so the identity is fixed.
    identified: bool,
    /// Our own declarations are made.
    declared: bool,
    stage: u8,
    target_name: Option<String>,
    session_type: Option<String>,
    /// Keys that were negotiated, to find those that come twice.
    seen: Vec<String>,
    /// Text of requests that continue.
    incoming: Vec<u8>,
    /// Text of responses that continue.
    outgoing: Vec<u8>,
    /// The request whose answer waits for the shell.
    last: Option<LoginRequest>,
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
            Err(status) => Some(self.fail_login(request, status)),
        }
    }

    fn login_step(
        &mut self,
        header: &Header,
        request: &LoginRequest,
        data: &[u8],
    ) -> Result<Option<Event<'static>>, LoginStatus> {
        // RFC 7143 section 6.3: nothing but login requests before the full feature phase.
        if header.kind() != opcode::LOGIN_REQUEST {
            return Err(LoginStatus::InvalidDuringLogin);
        }
        self.check_login_header(request)?;

        if !self.login.outgoing.is_empty() {
            // RFC 7143 section 6.2: the answer to a continued response is an empty request.
            return if data.is_empty() {
                self.answer_login(request)
            } else {
                Err(LoginStatus::InitiatorError)
            };
        }
        if self.login.incoming.len() + data.len() > TEXT_LENGTH_MAX {
            return Err(LoginStatus::InitiatorError);
        }
        self.login.incoming.extend_from_slice(data);
        if request.flags & CONTINUE != 0 {
            self.push_login_response(request, current_stage(request) << 2, 0);
            return Ok(None);
        }

        let incoming = std::mem::take(&mut self.login.incoming);
        for (key, value) in text::pairs(&incoming).map_err(|_| LoginStatus::InitiatorError)? {
            self.login_key(key, value)?;
        }
        if !self.login.identified {
            self.identify()?;
        }
        if self.login.stage == OPERATIONAL && !self.login.declared {
            self.declare();
        }
        self.answer_login(request)
    }

    fn check_login_header(&mut self, request: &LoginRequest) -> Result<(), LoginStatus> {
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
                return Err(LoginStatus::UnsupportedVersion);
            }
        }
        // RFC 7143 section 11.12: these do not change during a login.
        let same = login.isid.0 == request.isid
            && login.tsih == request.tsih.get()
            && login.cid == request.cid.get()
            && login.stage == current_stage(request);
        // RFC 7143 section 11.12.3: stage 2 does not exist, and stages only go up.
        let stage = current_stage(request);
        let stages_fit = match next_stage(request) {
            None => true,
            Some(next) => request.flags & CONTINUE == 0 && next > stage && next != 2,
        };
        if same && stages_fit && stage <= OPERATIONAL {
            Ok(())
        } else {
            Err(LoginStatus::InitiatorError)
        }
    }

    fn login_key(&mut self, key: &str, value: &str) -> Result<(), LoginStatus> {
        if self.identity_key(key, value)? {
            return Ok(());
        }
        // RFC 7143 section 6.2: a key is negotiated once.
        let login = &mut self.login;
        if login.seen.iter().any(|seen| seen == key) || login.seen.len() == KEYS_MAX {
            return Err(LoginStatus::InitiatorError);
        }
        login.seen.push(key.to_owned());

        if key == "AuthMethod" {
            return self.choose_auth_method(value);
        }
        let discovery = login.session_type.as_deref() == Some("Discovery");
        let answer = if login.stage == OPERATIONAL
            || matches!(key, "MaxRecvDataSegmentLength" | "InitiatorAlias")
        {
            self.parameters.negotiate(key, value, &self.limits, discovery)
        } else {
            // RFC 7143 section 6.3.2: operational keys have no place in the security stage.
            match self.parameters.clone().negotiate(key, value, &self.limits, discovery) {
                unknown @ Answer::Constant("NotUnderstood") => unknown,
                _ => Answer::Fail,
            }
        };
        let outgoing = &mut self.login.outgoing;
        match answer {
            Answer::Value(value) => text::push(outgoing, key, &value),
            Answer::Constant(value) => text::push(outgoing, key, value),
            Answer::Nothing => {}
            Answer::Fail => return Err(LoginStatus::InitiatorError),
        }
        Ok(())
    }

    /// Takes a key that says who talks to whom. Some initiators repeat these in the operational
    /// stage; that is let through as long as nothing changes.
    fn identity_key(&mut self, key: &str, value: &str) -> Result<bool, LoginStatus> {
        let login = &mut self.login;
        let slot = match key {
            "InitiatorName" if login.initiator.is_empty() && !login.identified => {
                if value.is_empty() || value.len() > NAME_LENGTH_MAX {
                    return Err(LoginStatus::InitiatorError);
                }
                login.initiator = value.to_ascii_lowercase();
                return Ok(true);
            }
            "InitiatorName" => {
                let same = login.initiator.eq_ignore_ascii_case(value);
                return if same { Ok(true) } else { Err(LoginStatus::InitiatorError) };
            }
            "TargetName" => &mut login.target_name,
            "SessionType" => &mut login.session_type,
            _ => return Ok(false),
        };
        match slot {
            Some(known) if known == value => Ok(true),
            None if !login.identified => {
                *slot = Some(value.to_owned());
                Ok(true)
            }
            _ => Err(LoginStatus::InitiatorError),
        }
    }

    fn choose_auth_method(&mut self, value: &str) -> Result<(), LoginStatus> {
        if self.login.stage != SECURITY {
            return Err(LoginStatus::InitiatorError);
        }
        // RFC 7143 section 12.1: the first method of the list that both sides can do.
        if value.split(',').any(|method| method == "None") {
            text::push(&mut self.login.outgoing, "AuthMethod", "None");
            Ok(())
        } else {
            Err(LoginStatus::AuthenticationFailure)
        }
    }

    /// Ends the first exchange of text: the names must be there now.
    fn identify(&mut self) -> Result<(), LoginStatus> {
        let login = &mut self.login;
        // RFC 7143 section 6.3.1: InitiatorName always, TargetName in a normal session.
        if login.initiator.is_empty() {
            return Err(LoginStatus::MissingParameter);
        }
        // RFC 7143 section 13.21: the default is a normal session.
        login.is_discovery = match &**login.session_type.get_or_insert_with(|| "Normal".to_owned())
        {
            "Normal" => false,
            "Discovery" => true,
            _ => return Err(LoginStatus::SessionTypeNotSupported),
        };
        if !login.is_discovery {
            let name = login.target_name.as_deref().ok_or(LoginStatus::MissingParameter)?;
            let index = self.node.targets.iter().position(|one| one.iqn.eq_ignore_ascii_case(name));
            let entry = &self.node.targets[index.ok_or(LoginStatus::NotFound)?];
            login.target = index;
            // RFC 7143 section 13.9: the tag goes into the first response that follows TargetName.
            let group = self.node.portal_group.to_string();
            text::push(&mut login.outgoing, "TargetPortalGroupTag", &group);
            if let Some(alias) = &entry.alias {
                text::push(&mut login.outgoing, "TargetAlias", alias);
            }
        }
        login.identified = true;
        Ok(())
    }

    /// Says what the target takes, which needs no answer.
    fn declare(&mut self) {
        let ours = self.limits.max_recv_data_segment_length;
        text::push(&mut self.login.outgoing, "MaxRecvDataSegmentLength", &ours.to_string());
        self.parameters.target_segment_length = ours;
        self.login.declared = true;
    }

    /// Answers with as much of the text as the initiator takes, and moves on if it wants to.
    fn answer_login(
        &mut self,
        request: &LoginRequest,
    ) -> Result<Option<Event<'static>>, LoginStatus> {
        let stage = self.login.stage;
        let length = self.login.outgoing.len();
        let limit = self.parameters.initiator_segment_length as usize;
        if length > limit {
            // RFC 7143 section 6.2: the C bit, and no transit before all is said.
            self.push_login_response(request, CONTINUE | stage << 2, limit);
            return Ok(None);
        }
        match next_stage(request) {
            None => self.push_login_response(request, stage << 2, length),
            Some(FULL_FEATURE) => return self.request_session(request).map(Some),
            Some(next) => {
                self.push_login_response(request, FINAL | stage << 2 | next, length);
                self.login.stage = next;
            }
        }
        Ok(None)
    }

    fn request_session(&mut self, request: &LoginRequest) -> Result<Event<'static>, LoginStatus> {
        let lacks = |policy, agreed: bool| policy == DigestPolicy::Required && !agreed;
        if lacks(self.limits.header_digest, self.parameters.header_digest)
            || lacks(self.limits.data_digest, self.parameters.data_digest)
        {
            return Err(LoginStatus::InitiatorError);
        }
        self.login.last = Some(*request);
        self.phase = Phase::Deciding;
        Ok(Event::SessionRequested {
            initiator: self.login.initiator.clone(),
            isid: self.login.isid,
            tsih: self.login.tsih,
            target: self.login.target,
            cid: self.login.cid,
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
        self.login.tsih = tsih;
        let flags = FINAL | self.login.stage << 2 | FULL_FEATURE;
        self.push_login_response(&request, flags, self.login.outgoing.len());
        self.phase = Phase::FullFeature;
        // RFC 7143 section 13.1: digests begin with the first PDU after the login.
        self.digests =
            Digests { header: self.parameters.header_digest, data: self.parameters.data_digest };
        self.login.seen = Vec::new();
    }

    /// Answers [`Event::SessionRequested`]: no session. The connection closes.
    pub fn session_refused(&mut self, status: LoginStatus) {
        if let Some(request) = self.login.last.take() {
            self.fail_login(&request, status);
        }
    }

    fn fail_login(&mut self, request: &LoginRequest, status: LoginStatus) -> Event<'static> {
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
        self.outbox.push_pdu(bytes, Segment::Empty, Digests::default(), None);
        self.phase = Phase::Closing;
        Event::LoginFailed { status }
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
