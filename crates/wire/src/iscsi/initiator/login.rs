//! The login phase (RFC 7143 section 6.3): security stage, operational stage, session.

use zerocopy::transmute;

use super::chap::Handshake;
use super::event::Event;
use super::fault::{Fault, PduKind, Wanted};
use super::negotiation;
use super::session::{Initiator, Phase};
use crate::iscsi::chap::{CHALLENGE_LENGTH, Keys};
use crate::iscsi::framing::{Digests, Segment};
use crate::iscsi::pdu::{CONTINUE, FINAL, IMMEDIATE, LoginRequest, LoginResponse, opcode};
use crate::iscsi::text::{self, TEXT_LENGTH_MAX};

/// Security negotiation stage.
const SECURITY: u8 = 0;
/// Operational negotiation stage.
const OPERATIONAL: u8 = 1;
/// Full feature phase.
const FULL_FEATURE: u8 = 3;
/// Most responses to one login. More end it.
const ROUNDS_MAX: usize = 64;
/// Most different keys in one login. More end it.
const KEYS_MAX: usize = 128;
/// The tag of all requests of a login.
const LOGIN_ITT: u32 = 0;
const RESPONSE: PduKind = PduKind(opcode::LOGIN_RESPONSE);

/// The state of a login.
#[derive(Debug)]
pub(super) struct Login {
    stage: u8,
    /// The last request asked for the next stage.
    asked: bool,
    rounds: usize,
    /// Text of the target that is not complete.
    incoming: Vec<u8>,
    /// Keys received.
    seen: Vec<String>,
    handshake: Handshake,
    portal_group: Option<u16>,
}

impl Login {
    pub(super) const fn new(challenge: [u8; CHALLENGE_LENGTH]) -> Self {
        Self {
            stage: SECURITY,
            asked: false,
            rounds: 0,
            incoming: Vec::new(),
            seen: Vec::new(),
            handshake: Handshake::new(challenge),
            portal_group: None,
        }
    }

    /// Records a received key.
    // RFC 7143 section 6.2: a key is negotiated once.
    fn see(&mut self, key: &str) -> Result<(), Fault> {
        if self.seen.iter().any(|one| one == key) {
            return Err(Fault::KeyTwice { key: key.to_owned() });
        }
        if self.seen.len() == KEYS_MAX {
            return Err(Fault::Endless { pdu: RESPONSE, limit: KEYS_MAX, unit: "keys" });
        }
        self.seen.push(key.to_owned());
        Ok(())
    }
}

impl<P: AsRef<[u8]> + Clone> Initiator<P> {
    /// Declares the initiator's and the target's name.
    pub(super) fn start_login(&mut self) {
        let settings = &self.settings;
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &settings.initiator_name);
        if let Some(alias) = &settings.alias {
            text::push(&mut text, "InitiatorAlias", alias);
        }
        match &settings.target {
            Some(target) => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", target);
            }
            None => text::push(&mut text, "SessionType", "Discovery"),
        }
        let methods = Handshake::methods(settings.chap.as_ref());
        text::push(&mut text, "AuthMethod", methods);
        // A target that may leave out the authentication moves on at once.
        self.push_login_request(&text, methods != "CHAP");
    }

    /// Takes one PDU of the login phase.
    pub(super) fn on_login<'a>(
        &mut self,
        response: &LoginResponse,
        data: &[u8],
    ) -> Result<Option<Event<'a>>, Fault> {
        self.check_login_header(response)?;
        let flags = response.flags;
        self.login.rounds += 1;
        if self.login.rounds > ROUNDS_MAX {
            return Err(Fault::Endless { pdu: RESPONSE, limit: ROUNDS_MAX, unit: "responses" });
        }
        if self.login.incoming.len() + data.len() > TEXT_LENGTH_MAX {
            let unit = "bytes of text";
            return Err(Fault::Endless { pdu: RESPONSE, limit: TEXT_LENGTH_MAX, unit });
        }
        self.login.incoming.extend_from_slice(data);
        let status = response.status.get();
        if status != 0 {
            return self.on_refusal(status).map(Some);
        }
        if flags & CONTINUE != 0 {
            // RFC 7143 section 6.2: the rest is fetched with an empty request.
            self.push_login_request(&[], false);
            return Ok(None);
        }
        let incoming = std::mem::take(&mut self.login.incoming);
        let mut answers = self.take_text(&incoming)?;
        if flags & FINAL == 0 {
            let may_go_on = self.login.stage == OPERATIONAL || self.login.handshake.may_go_on();
            self.push_login_request(&answers, may_go_on);
            return Ok(None);
        }
        if self.login.stage == SECURITY {
            if !self.login.handshake.is_done() {
                return Err(field("T", 1, Wanted::Exactly(0), "RFC 7143 section 6.3.2"));
            }
            self.login.stage = OPERATIONAL;
            negotiation::offer(&self.settings, &mut answers);
            self.push_login_request(&answers, true);
            return Ok(None);
        }
        negotiation::finish(&self.parameters, &self.settings)?;
        let tsih = response.tsih.get();
        if tsih == 0 && self.settings.target.is_some() {
            return Err(field("TSIH", 0, Wanted::AtLeast(1), "RFC 7143 section 11.13.3"));
        }
        self.phase = Phase::FullFeature;
        // RFC 7143 section 13.1: digests begin with the first PDU after the login.
        self.digests =
            Digests { header: self.parameters.header_digest, data: self.parameters.data_digest };
        self.login.seen = Vec::new();
        Ok(Some(Event::LoggedIn {
            tsih,
            portal_group: self.login.portal_group,
            window: self.numbers.room(),
            parameters: self.parameters,
        }))
    }

    fn check_login_header(&mut self, response: &LoginResponse) -> Result<(), Fault> {
        let kind = response.opcode & crate::iscsi::pdu::OPCODE_MASK;
        if kind != opcode::LOGIN_RESPONSE {
            return Err(Fault::OutOfPlace { pdu: PduKind(kind), when: "during the login" });
        }
        let itt = response.itt.get();
        if itt != LOGIN_ITT {
            return Err(Fault::UnknownTag { pdu: RESPONSE, itt });
        }
        // RFC 7143 section 11.13.4: of a refusal the rest of the header means nothing.
        if response.status.get() != 0 {
            return Ok(());
        }
        let version = response.version_active.into();
        if version != 0 {
            let rule = "RFC 7143 section 11.13.2";
            return Err(field("Version-active", version, Wanted::Exactly(0), rule));
        }
        if response.isid != self.settings.isid.0 {
            return Err(Fault::OtherIsid);
        }
        self.numbers.status(RESPONSE, response.stat_sn.get())?;
        self.numbers.hear(response.exp_cmd_sn.get(), response.max_cmd_sn.get());

        let (stage, next) = (self.login.stage, next_stage(self.login.stage));
        let flags = response.flags;
        let rule = "RFC 7143 section 11.13.4";
        if flags >> 2 & 3 != stage {
            let value = u32::from(flags >> 2 & 3);
            return Err(field("CSG", value, Wanted::Exactly(stage.into()), rule));
        }
        if flags & FINAL != 0 {
            if flags & CONTINUE != 0 || !self.login.asked {
                return Err(field("T", 1, Wanted::Exactly(0), rule));
            }
            if flags & 3 != next {
                let value = u32::from(flags & 3);
                return Err(field("NSG", value, Wanted::Exactly(next.into()), rule));
            }
        }
        Ok(())
    }

    /// Takes a text of the target; returns the text that answers it.
    fn take_text(&mut self, incoming: &[u8]) -> Result<Vec<u8>, Fault> {
        let Self { login, parameters, settings, .. } = self;
        let malformed = Fault::Text { pdu: RESPONSE };
        let mut answers = Vec::new();
        let (mut method, mut keys) = (None, Keys::default());
        for (key, value) in text::pairs(incoming).map_err(|_| malformed)? {
            let illegal = || Fault::IllegalValue { key: key.to_owned(), value: value.to_owned() };
            match key {
                // Declarations, which some targets repeat in each stage.
                "TargetAlias" | "TargetAddress" => continue,
                "TargetPortalGroupTag" => {
                    let tag = text::number(value).and_then(|tag| u16::try_from(tag).ok());
                    login.portal_group = Some(tag.ok_or_else(illegal)?);
                    continue;
                }
                _ => login.see(key)?,
            }
            if key == "AuthMethod" {
                method = Some(value);
            } else if !keys.keep(key, value) {
                // RFC 7143 section 6.3.2: nothing operational was offered before its stage.
                let is_early = login.stage == SECURITY && key != "MaxRecvDataSegmentLength";
                let before = *parameters;
                if let Some(answer) = negotiation::take(parameters, settings, key, value)? {
                    text::push(&mut answers, key, answer);
                } else if is_early && *parameters != before {
                    return Err(Fault::KeyOutOfPlace { key: key.to_owned() });
                }
            }
        }
        if login.stage == SECURITY {
            for (key, value) in login.handshake.step(method, keys, settings.chap.as_ref())? {
                text::push(&mut answers, key, &value);
            }
        } else if let Some(key) = method.map(|_| "AuthMethod").or(keys.first()) {
            return Err(Fault::KeyOutOfPlace { key: key.to_owned() });
        }
        Ok(answers)
    }

    /// Takes an answer that is not a success.
    // RFC 7143 section 11.13.5: class 1 is a redirection, and says where to.
    fn on_refusal(&mut self, code: u16) -> Result<Event<'static>, Fault> {
        if code >> 8 != 1 {
            return Err(Fault::Refused { code });
        }
        let incoming = std::mem::take(&mut self.login.incoming);
        let mut pairs = text::pairs(&incoming).map_err(|_| Fault::Text { pdu: RESPONSE })?;
        let address = pairs.find(|(key, _)| *key == "TargetAddress");
        let (_, address) = address.ok_or(Fault::KeyMissing { key: "TargetAddress" })?;
        // RFC 7143 section 13.8: a portal group tag has no place in a redirection, but may be there.
        let address = address.split_once(',').map_or(address, |(address, _)| address);
        self.phase = Phase::Over;
        Ok(Event::Redirected { address: address.to_owned(), permanent: code & 0xff == 2 })
    }

    /// Sends a text in the current stage; `go_on` asks for the next one.
    fn push_login_request(&mut self, text: &[u8], go_on: bool) {
        let stage = self.login.stage;
        self.login.asked = go_on;
        let transit = if go_on { FINAL | next_stage(stage) } else { 0 };
        let request = LoginRequest {
            // RFC 7143 section 11.12: a login request is immediate.
            opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
            flags: transit | stage << 2,
            isid: self.settings.isid.0,
            itt: LOGIN_ITT.into(),
            cmd_sn: self.numbers.cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            ..LoginRequest::default()
        };
        self.outbox.push_pdu(transmute!(request), Segment::Bytes(text), Digests::default(), None);
    }
}

const fn next_stage(stage: u8) -> u8 {
    if stage == SECURITY { OPERATIONAL } else { FULL_FEATURE }
}

const fn field(field: &'static str, value: u32, wanted: Wanted, rule: &'static str) -> Fault {
    Fault::Field { pdu: RESPONSE, field, value, wanted, rule }
}
