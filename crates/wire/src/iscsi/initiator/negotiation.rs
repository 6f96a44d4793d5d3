//! Negotiation of the operational keys: offers and accepted answers (RFC 7143 section 13).

use super::fault::Fault;
use super::settings::Settings;
use crate::iscsi::keys::{DigestPolicy, LENGTH_MAX, LENGTH_MIN, Parameters};
use crate::iscsi::text;

/// The values before the target has answered, and of keys that it never answers: the default of RFC 7143 if it is
/// within the offer, else the conservative value.
pub(super) fn beginning(settings: &Settings) -> Parameters {
    let default = Parameters::default();
    let max_burst_length = default.max_burst_length.min(settings.max_burst);
    Parameters {
        initial_r2t: true,
        immediate_data: false,
        initiator_segment_length: settings.max_recv,
        max_burst_length,
        first_burst_length: default.first_burst_length.min(settings.first_burst),
        default_time2wait: 0,
        ..default
    }
}

/// Offers everything at once.
pub(super) fn offer(settings: &Settings, text: &mut Vec<u8>) {
    let yes = |on| if on { "Yes" } else { "No" };
    let mut push = |key: &str, value: &str| text::push(text, key, value);
    push("HeaderDigest", digests(settings.header_digest));
    push("DataDigest", digests(settings.data_digest));
    push("MaxRecvDataSegmentLength", &settings.max_recv.to_string());
    push("DefaultTime2Wait", "0");
    push("DefaultTime2Retain", "0");
    push("ErrorRecoveryLevel", "0");
    // RFC 7143 section 13: the others are irrelevant to discovery.
    if settings.target.is_some() {
        push("InitialR2T", yes(settings.initial_r2t));
        push("ImmediateData", yes(settings.immediate_data));
        push("MaxBurstLength", &settings.max_burst.to_string());
        push("FirstBurstLength", &settings.first_burst.to_string());
        push("MaxOutstandingR2T", &settings.max_outstanding_r2t.to_string());
        push("MaxConnections", "1");
        push("DataPDUInOrder", "Yes");
        push("DataSequenceInOrder", "Yes");
    }
}

const fn digests(policy: DigestPolicy) -> &'static str {
    match policy {
        DigestPolicy::Never => "None",
        DigestPolicy::Allowed => "None,CRC32C",
        DigestPolicy::Required => "CRC32C",
    }
}

/// Takes one key that is neither a name nor about authentication. Returns what to answer, for keys
/// that the target offers by itself.
pub(super) fn take(
    parameters: &mut Parameters,
    settings: &Settings,
    key: &str,
    value: &str,
) -> Result<Option<&'static str>, Fault> {
    let illegal = || Fault::IllegalValue { key: key.to_owned(), value: value.to_owned() };
    let number = |low: u32, high: u32| {
        text::number(value).filter(|number| (low..=high).contains(number)).ok_or_else(illegal)
    };
    // The rule of a key of two values, and what was offered: OR takes Yes for Yes, AND No for No.
    let boolean = |offered: bool, or: bool| match text::boolean(value) {
        Some(answer) if offered != or || answer == offered => Ok(answer),
        _ => Err(illegal()),
    };
    // RFC 7143 section 6.2: these constants answer an offer, which then changes nothing.
    if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
        return Ok(None);
    }
    if settings.target.is_none() && concerns_commands(key) {
        return Ok(Some("Irrelevant"));
    }
    match key {
        "HeaderDigest" | "DataDigest" => {
            let is_header = key == "HeaderDigest";
            let (key, policy) = if is_header {
                ("HeaderDigest", settings.header_digest)
            } else {
                ("DataDigest", settings.data_digest)
            };
            if policy == DigestPolicy::Required && value == "None" {
                return Err(Fault::DigestRefused { key });
            }
            if digests(policy).split(',').all(|offer| offer != value) {
                return Err(illegal());
            }
            let agreed = value == "CRC32C";
            if is_header {
                parameters.header_digest = agreed;
            } else {
                parameters.data_digest = agreed;
            }
        }
        "MaxRecvDataSegmentLength" => {
            parameters.target_segment_length = number(LENGTH_MIN, LENGTH_MAX)?;
        }
        // RFC 7143 section 13.10: the result is OR.
        "InitialR2T" => parameters.initial_r2t = boolean(settings.initial_r2t, true)?,
        // RFC 7143 section 13.11: the result is AND.
        "ImmediateData" => parameters.immediate_data = boolean(settings.immediate_data, false)?,
        "MaxBurstLength" => parameters.max_burst_length = number(LENGTH_MIN, settings.max_burst)?,
        "FirstBurstLength" => {
            parameters.first_burst_length = number(LENGTH_MIN, settings.first_burst)?;
        }
        "MaxOutstandingR2T" => {
            parameters.max_outstanding_r2t = number(1, settings.max_outstanding_r2t.into())? as u16;
        }
        // RFC 7143 sections 13.15 and 13.16: the larger wait and the smaller retention.
        "DefaultTime2Wait" => parameters.default_time2wait = number(0, 3600)? as u16,
        "DefaultTime2Retain" | "ErrorRecoveryLevel" => {
            number(0, 0)?;
        }
        "MaxConnections" => {
            number(1, 1)?;
        }
        // RFC 7143 sections 13.18 and 13.19: the result is OR.
        "DataPDUInOrder" | "DataSequenceInOrder" => {
            boolean(true, true)?;
        }
        // RFC 7143 sections 13.23 and 13.25 and RFC 7144: never offered here, but known.
        "TaskReporting" => {
            let known = value.split(',').any(|one| one == "RFC3720");
            return Ok(Some(if known { "RFC3720" } else { "Reject" }));
        }
        "iSCSIProtocolLevel" => return Ok(Some(if number(0, 31)? == 0 { "0" } else { "1" })),
        "IFMarker" | "OFMarker" => return Ok(Some("No")),
        "IFMarkInt" | "OFMarkInt" => return Ok(Some("Reject")),
        "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "SendTargets" => {
            return Err(Fault::KeyOutOfPlace { key: key.to_owned() });
        }
        _ => return Ok(Some("NotUnderstood")),
    }
    Ok(None)
}

/// Checks what was agreed on as a whole.
pub(super) fn finish(parameters: &Parameters, settings: &Settings) -> Result<(), Fault> {
    for (key, policy, agreed) in [
        ("HeaderDigest", settings.header_digest, parameters.header_digest),
        ("DataDigest", settings.data_digest, parameters.data_digest),
    ] {
        if policy == DigestPolicy::Required && !agreed {
            return Err(Fault::DigestRefused { key });
        }
    }
    // RFC 7143 section 13.14.
    if parameters.first_burst_length > parameters.max_burst_length {
        return Err(Fault::IllegalValue {
            key: "FirstBurstLength".to_owned(),
            value: parameters.first_burst_length.to_string(),
        });
    }
    Ok(())
}

// RFC 7143 section 13: "Irrelevant when: SessionType=Discovery" stands at each of these.
fn concerns_commands(key: &str) -> bool {
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
