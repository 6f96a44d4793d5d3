//! The operational keys: their ranges, and how two sides agree (RFC 7143 section 13).

use super::target_role::Limits;
use super::text;

/// Largest value of a key that counts bytes of one transfer: 2^24 - 1.
pub(crate) const LENGTH_MAX: u32 = (1 << 24) - 1;
/// Smallest value of a key that counts bytes of one transfer.
pub(crate) const LENGTH_MIN: u32 = 512;
/// `MaxRecvDataSegmentLength` of a side that declared none, in bytes.
// RFC 7143 section 13.12: the default is 8192.
pub(crate) const SEGMENT_LENGTH_DEFAULT: u32 = 8192;

/// Whether a digest is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Never.
    Never,
    /// If the other side wants it.
    #[default]
    Allowed,
    /// Always; no session with a peer that will not use one.
    Required,
}

/// The negotiated operational parameters, initially the defaults of RFC 7143.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Header digests are on.
    pub header_digest: bool,
    /// Data digests are on.
    pub data_digest: bool,
    /// Unsolicited Data-Out is forbidden.
    pub initial_r2t: bool,
    /// A command may carry write data.
    pub immediate_data: bool,
    /// Largest data segment that the initiator takes, in bytes.
    pub initiator_segment_length: u32,
    /// Largest data segment that the target takes, in bytes.
    pub target_segment_length: u32,
    /// Longest sequence of Data-In or solicited Data-Out, in bytes.
    pub max_burst_length: u32,
    /// Most unsolicited data of one command, in bytes.
    pub first_burst_length: u32,
    /// Seconds that an initiator waits before it logs in again.
    pub default_time2wait: u16,
    /// R2Ts that one command may have outstanding.
    pub max_outstanding_r2t: u16,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            initiator_segment_length: SEGMENT_LENGTH_DEFAULT,
            target_segment_length: SEGMENT_LENGTH_DEFAULT,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait: 2,
            max_outstanding_r2t: 1,
        }
    }
}

/// The answer to one offered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Answer with this value.
    Value(String),
    /// Answer with this constant.
    Constant(&'static str),
    /// A declaration, which gets no answer.
    Nothing,
    /// An illegal declaration, which no answer can refuse: the negotiation fails.
    Fail,
    /// A key that belongs elsewhere: to the start of a login, to the full feature phase, or to what
    /// a target sends.
    Misplaced,
}

/// Whether a value is one of the constants that answer an offer.
fn is_constant(value: &str) -> bool {
    matches!(value, "Reject" | "Irrelevant" | "NotUnderstood")
}

impl Parameters {
    /// Takes one offered operational key and says what to answer. `discovery` makes the keys that
    /// concern SCSI commands irrelevant.
    pub(crate) fn negotiate(
        &mut self,
        key: &str,
        value: &str,
        limits: &Limits,
        discovery: bool,
    ) -> Answer {
        // RFC 7143 section 6.2: these constants answer an offer. Weir offers nothing that needs an
        // answer, and answering an answer would never end.
        if is_constant(value) {
            return Answer::Nothing;
        }
        if discovery && is_irrelevant_to_discovery(key) {
            return Answer::Constant("Irrelevant");
        }
        match key {
            "HeaderDigest" => digest(&mut self.header_digest, value, limits.header_digest),
            "DataDigest" => digest(&mut self.data_digest, value, limits.data_digest),
            // RFC 7143 section 13.10: the result is OR.
            "InitialR2T" => {
                boolean(&mut self.initial_r2t, value, |theirs| theirs || limits.initial_r2t)
            }
            // RFC 7143 section 13.11: the result is AND.
            "ImmediateData" => {
                boolean(&mut self.immediate_data, value, |theirs| theirs && limits.immediate_data)
            }
            // RFC 7143 section 13.12: declarative, each direction on its own.
            "MaxRecvDataSegmentLength" => match number(value, LENGTH_MIN, LENGTH_MAX) {
                Some(length) => {
                    self.initiator_segment_length = length;
                    Answer::Nothing
                }
                None => Answer::Fail,
            },
            "MaxBurstLength" => minimum(&mut self.max_burst_length, value, limits.max_burst_length),
            // RFC 7143 section 13.14: it must not exceed MaxBurstLength.
            "FirstBurstLength" => {
                let ours = limits.first_burst_length.min(self.max_burst_length);
                minimum(&mut self.first_burst_length, value, ours)
            }
            // RFC 7143 section 13.15: the result is the maximum; Weir needs no pause.
            "DefaultTime2Wait" => match number(value, 0, 3600) {
                Some(seconds) => {
                    self.default_time2wait = seconds as u16;
                    Answer::Value(seconds.to_string())
                }
                None => Answer::Constant("Reject"),
            },
            // RFC 7143 section 13.16: the result is the minimum; nothing outlives a connection.
            "DefaultTime2Retain" => fixed(value, 0, 3600, 0),
            "MaxOutstandingR2T" => match number(value, 1, 65_535) {
                Some(theirs) => {
                    self.max_outstanding_r2t = limits.max_outstanding_r2t.min(theirs as u16);
                    Answer::Value(self.max_outstanding_r2t.to_string())
                }
                None => Answer::Constant("Reject"),
            },
            "MaxConnections" => fixed(value, 1, 65_535, 1),
            "ErrorRecoveryLevel" => fixed(value, 0, 2, 0),
            // RFC 7143 sections 13.18 and 13.19: the result is OR, and Weir insists on order.
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(&mut true, value, |_| true),
            // RFC 7143 section 13.23: without ResponseFence there is only the old behaviour.
            "TaskReporting" => {
                let known = value.split(',').any(|one| one == "RFC3720");
                Answer::Constant(if known { "RFC3720" } else { "Reject" })
            }
            // RFC 7144: level 1 is RFC 7143 itself.
            "iSCSIProtocolLevel" => match number(value, 0, 31) {
                Some(level) => Answer::Value(level.min(1).to_string()),
                None => Answer::Constant("Reject"),
            },
            // RFC 7143 section 13.25: obsolete, but never "not understood".
            "IFMarker" | "OFMarker" => Answer::Constant("No"),
            "IFMarkInt" | "OFMarkInt" => Answer::Constant("Reject"),
            "InitiatorAlias" => Answer::Nothing,
            // RFC 7143 sections 12.1 and 13: each has its own stage or sender.
            "AuthMethod"
            | "CHAP_A"
            | "CHAP_I"
            | "CHAP_C"
            | "CHAP_N"
            | "CHAP_R"
            | "InitiatorName"
            | "TargetName"
            | "SessionType"
            | "SendTargets"
            | "TargetAlias"
            | "TargetAddress"
            | "TargetPortalGroupTag" => Answer::Misplaced,
            // RFC 7143 section 6.2.
            _ => Answer::Constant("NotUnderstood"),
        }
    }
}

// RFC 7143 section 13: "Irrelevant when: SessionType=Discovery" stands at each of these.
fn is_irrelevant_to_discovery(key: &str) -> bool {
    matches!(
        key,
        "MaxConnections"
            | "InitialR2T"
            | "ImmediateData"
            | "MaxBurstLength"
            | "FirstBurstLength"
            | "MaxOutstandingR2T"
            | "DataPDUInOrder"
            | "DataSequenceInOrder"
            | "TaskReporting"
            | "iSCSIProtocolLevel"
    )
}

fn number(value: &str, low: u32, high: u32) -> Option<u32> {
    text::number(value).filter(|number| (low..=high).contains(number))
}

/// Minimum of an offered length and our own.
fn minimum(agreed: &mut u32, value: &str, ours: u32) -> Answer {
    match number(value, LENGTH_MIN, LENGTH_MAX) {
        Some(theirs) => {
            *agreed = theirs.min(ours);
            Answer::Value(agreed.to_string())
        }
        // RFC 7143 section 6.2.2: a value outside of its range is answered with Reject and the
        // key keeps its value.
        None => Answer::Constant("Reject"),
    }
}

/// A number with the same result for every legal offer.
fn fixed(value: &str, low: u32, high: u32, ours: u32) -> Answer {
    match number(value, low, high) {
        Some(_) => Answer::Value(ours.to_string()),
        None => Answer::Constant("Reject"),
    }
}

fn boolean(agreed: &mut bool, value: &str, rule: impl FnOnce(bool) -> bool) -> Answer {
    match text::boolean(value) {
        Some(theirs) => {
            *agreed = rule(theirs);
            Answer::Constant(if *agreed { "Yes" } else { "No" })
        }
        None => Answer::Constant("Reject"),
    }
}

/// The first value of the list that the policy allows.
// RFC 7143 section 6.2.1: the list is in order of preference, and the responder picks the first
// value that it supports.
fn digest(agreed: &mut bool, value: &str, policy: DigestPolicy) -> Answer {
    for offer in value.split(',') {
        match (offer, policy) {
            ("CRC32C", DigestPolicy::Allowed | DigestPolicy::Required) => {
                *agreed = true;
                return Answer::Constant("CRC32C");
            }
            ("None", DigestPolicy::Allowed | DigestPolicy::Never) => {
                *agreed = false;
                return Answer::Constant("None");
            }
            _ => {}
        }
    }
    Answer::Constant("Reject")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(key: &str, value: &str, limits: &Limits) -> (Parameters, String) {
        let mut parameters = Parameters::default();
        let answer = match parameters.negotiate(key, value, limits, false) {
            Answer::Value(value) => value,
            Answer::Constant(value) => value.to_string(),
            Answer::Nothing => "-".to_string(),
            Answer::Fail => "!".to_string(),
            Answer::Misplaced => "?".to_string(),
        };
        (parameters, answer)
    }

    /// Each key's rule, with offers on both sides of our own value and outside of its range.
    #[test]
    fn every_key_has_its_rule() {
        let limits = Limits {
            max_burst_length: 100_000,
            first_burst_length: 50_000,
            max_outstanding_r2t: 4,
            ..Limits::default()
        };
        for (key, offer, answer) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("HeaderDigest", "None,CRC32C", "None"),
            ("HeaderDigest", "MD5,None", "None"),
            ("HeaderDigest", "MD5", "Reject"),
            ("DataDigest", "CRC32C", "CRC32C"),
            ("InitialR2T", "Yes", "Yes"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "no", "Reject"),
            ("ImmediateData", "Yes", "Yes"),
            ("ImmediateData", "No", "No"),
            ("MaxRecvDataSegmentLength", "262144", "-"),
            ("MaxRecvDataSegmentLength", "511", "!"),
            ("MaxRecvDataSegmentLength", "16777216", "!"),
            ("MaxBurstLength", "16776192", "100000"),
            ("MaxBurstLength", "0x8000", "32768"),
            ("MaxBurstLength", "1", "Reject"),
            ("FirstBurstLength", "262144", "50000"),
            ("FirstBurstLength", "512", "512"),
            ("FirstBurstLength", "511", "Reject"),
            ("FirstBurstLength", "512~1024", "Reject"),
            ("MaxBurstLength", "16777215", "100000"),
            ("MaxBurstLength", "16777216", "Reject"),
            ("MaxBurstLength", "", "Reject"),
            ("MaxBurstLength", "None", "Reject"),
            ("MaxBurstLength", "Irrelevant", "-"),
            ("MaxBurstLength", "Reject", "-"),
            ("HeaderDigest", "", "Reject"),
            ("HeaderDigest", "crc32c", "Reject"),
            ("ImmediateData", "Yes,No", "Reject"),
            ("ImmediateData", "", "Reject"),
            ("InitialR2T", "1", "Reject"),
            ("DataPDUInOrder", "Yes", "Yes"),
            ("DataPDUInOrder", "Maybe", "Reject"),
            ("DataSequenceInOrder", "Yes", "Yes"),
            ("DataSequenceInOrder", "", "Reject"),
            ("DefaultTime2Wait", "0", "0"),
            ("DefaultTime2Wait", "3600", "3600"),
            ("DefaultTime2Retain", "0", "0"),
            ("DefaultTime2Retain", "3601", "Reject"),
            ("MaxOutstandingR2T", "65535", "4"),
            ("MaxOutstandingR2T", "65536", "Reject"),
            ("MaxConnections", "65535", "1"),
            ("MaxConnections", "0", "Reject"),
            ("MaxConnections", "65536", "Reject"),
            ("ErrorRecoveryLevel", "0", "0"),
            ("ErrorRecoveryLevel", "-1", "Reject"),
            ("TaskReporting", "RFC3720", "RFC3720"),
            ("TaskReporting", "ResponseFence,RFC3720", "RFC3720"),
            ("iSCSIProtocolLevel", "0", "0"),
            ("iSCSIProtocolLevel", "31", "1"),
            ("iSCSIProtocolLevel", "32", "Reject"),
            ("OFMarker", "Yes", "No"),
            ("IFMarkInt", "2048~8192", "Reject"),
            ("MaxRecvDataSegmentLength", "512", "-"),
            ("MaxRecvDataSegmentLength", "16777215", "-"),
            ("MaxRecvDataSegmentLength", "", "!"),
            ("InitiatorAlias", "a host", "-"),
            ("InitiatorName", "iqn.x", "?"),
            ("TargetName", "iqn.x", "?"),
            ("SessionType", "Normal", "?"),
            ("SendTargets", "All", "?"),
            ("TargetAlias", "x", "?"),
            ("TargetAddress", "x", "?"),
            ("TargetPortalGroupTag", "1", "?"),
            ("AuthMethod", "None", "?"),
            ("CHAP_A", "5", "?"),
            ("DefaultTime2Wait", "7", "7"),
            ("DefaultTime2Wait", "3601", "Reject"),
            ("DefaultTime2Retain", "20", "0"),
            ("MaxOutstandingR2T", "8", "4"),
            ("MaxOutstandingR2T", "2", "2"),
            ("MaxOutstandingR2T", "0", "Reject"),
            ("MaxConnections", "8", "1"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("ErrorRecoveryLevel", "3", "Reject"),
            ("DataPDUInOrder", "No", "Yes"),
            ("DataSequenceInOrder", "No", "Yes"),
            ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
            ("TaskReporting", "FastAbort", "Reject"),
            ("iSCSIProtocolLevel", "2", "1"),
            ("IFMarker", "No", "No"),
            ("OFMarkInt", "2048", "Reject"),
            ("RDMAExtensions", "Yes", "NotUnderstood"),
            ("X-com.example.key", "1", "NotUnderstood"),
            ("maxburstlength", "512", "NotUnderstood"),
            ("MaxBurstLength", "NotUnderstood", "-"),
        ] {
            assert_eq!(ask(key, offer, &limits).1, answer, "{key}={offer}");
        }
    }

    /// Our own preference wins where the rule lets it.
    #[test]
    fn preferences_count() {
        let limits = Limits {
            initial_r2t: true,
            immediate_data: false,
            header_digest: DigestPolicy::Never,
            data_digest: DigestPolicy::Required,
            ..Limits::default()
        };
        assert_eq!(ask("InitialR2T", "No", &limits).1, "Yes");
        assert_eq!(ask("ImmediateData", "Yes", &limits).1, "No");
        assert_eq!(ask("HeaderDigest", "CRC32C,None", &limits).1, "None");
        assert_eq!(ask("DataDigest", "None,CRC32C", &limits).1, "CRC32C");
        assert_eq!(ask("DataDigest", "None", &limits).1, "Reject");
    }

    /// The first burst is never longer than a burst that was agreed on before.
    #[test]
    fn the_first_burst_fits_into_a_burst() {
        let limits = Limits::default();
        let mut parameters = Parameters::default();
        parameters.negotiate("MaxBurstLength", "4096", &limits, false);
        let answer = parameters.negotiate("FirstBurstLength", "65536", &limits, false);
        assert_eq!(answer, Answer::Value("4096".to_owned()));
        assert_eq!(parameters.first_burst_length, 4096);
    }

    /// The limits of the two directions are independent.
    #[test]
    fn segment_lengths_are_declared_for_one_direction() {
        let (parameters, _) = ask("MaxRecvDataSegmentLength", "4096", &Limits::default());
        assert_eq!(parameters.initiator_segment_length, 4096);
        assert_eq!(parameters.target_segment_length, SEGMENT_LENGTH_DEFAULT);
    }

    /// An offer that is refused changes nothing.
    #[test]
    fn a_refused_offer_changes_nothing() {
        for (key, value) in [
            ("MaxBurstLength", "1"),
            ("FirstBurstLength", "x"),
            ("InitialR2T", "no"),
            ("ImmediateData", "no"),
            ("HeaderDigest", "MD5"),
            ("MaxOutstandingR2T", "0"),
            ("DefaultTime2Wait", "9999"),
            ("MaxBurstLength", "NotUnderstood"),
        ] {
            assert_eq!(ask(key, value, &Limits::default()).0, Parameters::default(), "{key}");
        }
    }

    /// Keys about SCSI data mean nothing to a discovery session; the others do.
    #[test]
    fn discovery_finds_transfer_keys_irrelevant() {
        let limits = Limits::default();
        for key in [
            "MaxConnections",
            "InitialR2T",
            "ImmediateData",
            "MaxBurstLength",
            "FirstBurstLength",
            "MaxOutstandingR2T",
            "DataPDUInOrder",
            "DataSequenceInOrder",
            "TaskReporting",
            "iSCSIProtocolLevel",
        ] {
            let mut parameters = Parameters::default();
            let answer = parameters.negotiate(key, "4096", &limits, true);
            assert_eq!(answer, Answer::Constant("Irrelevant"), "{key}");
            assert_eq!(parameters, Parameters::default());
        }
        let mut parameters = Parameters::default();
        for (key, value, answer) in [
            ("HeaderDigest", "CRC32C", Answer::Constant("CRC32C")),
            ("DefaultTime2Wait", "1", Answer::Value("1".to_owned())),
            ("ErrorRecoveryLevel", "1", Answer::Value("0".to_owned())),
            ("MaxRecvDataSegmentLength", "512", Answer::Nothing),
        ] {
            assert_eq!(parameters.negotiate(key, value, &limits, true), answer, "{key}");
        }
    }
}
