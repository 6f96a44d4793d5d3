//! What the fuzz targets run. The functions live beside the test that replays the corpora.

#[path = "../../crates/wire/tests/corpora/iscsi_initiator.rs"]
mod iscsi_initiator_target;
#[path = "../../crates/wire/tests/corpora/iscsi_login.rs"]
mod iscsi_login_target;
#[path = "../../crates/wire/tests/corpora/iscsi_pdu.rs"]
mod iscsi_pdu_target;
#[path = "../../crates/wire/tests/corpora/isns.rs"]
mod isns_target;
#[path = "../../crates/flow/tests/corpora/log.rs"]
mod log_target;
#[path = "../../crates/wire/tests/corpora/nbd_client.rs"]
mod nbd_client;
#[path = "../../crates/wire/tests/corpora/nbd_replies.rs"]
mod nbd_replies;
#[path = "../../crates/wire/tests/corpora/nbd.rs"]
mod nbd_target;
#[path = "../../crates/wire/tests/corpora/nvme_connection.rs"]
mod nvme_connection_target;
#[path = "../../crates/wire/tests/corpora/nvme_gateway.rs"]
mod nvme_gateway;
#[path = "../../crates/wire/tests/corpora/nvme_host.rs"]
mod nvme_host;
#[path = "../../crates/wire/tests/corpora/nvme_pdu.rs"]
mod nvme_pdu_target;
#[path = "../../crates/wire/tests/corpora/scsi_answers.rs"]
mod scsi_answers;
#[path = "../../crates/wire/tests/corpora/scsi_cdb.rs"]
mod scsi_cdb_target;
#[path = "../../crates/wire/tests/corpora/scsi_model.rs"]
mod scsi_model;
#[path = "../../crates/wire/tests/corpora/scsi_state.rs"]
mod scsi_state_target;
#[path = "../../crates/wire/tests/corpora/shell.rs"]
mod shell;

/// Logins and text keys.
pub fn iscsi_login(input: &[u8]) {
    iscsi_login_target::run(input);
}

/// The initiator, and what a target answers.
pub fn iscsi_initiator(input: &[u8]) {
    iscsi_initiator_target::run(input);
}

/// The full feature phase.
pub fn iscsi_pdu(input: &[u8]) {
    iscsi_pdu_target::run(input);
}

/// iSNS: what servers answer and ask.
pub fn isns(input: &[u8]) {
    isns_target::run(input);
}

/// Write-back logs, whole or not.
pub fn log(input: &[u8]) {
    log_target::run(input);
}

/// Commands and parameter lists.
pub fn scsi_cdb(input: &[u8]) {
    scsi_cdb_target::run(input);
}

/// Stored reservations.
pub fn scsi_state(input: &[u8]) {
    scsi_state_target::run(input);
}

/// NBD, from the first byte on.
pub fn nbd(input: &[u8]) {
    nbd_target::run(input);
}

/// NVMe/TCP: a queue and its controller.
pub fn nvme_connection(input: &[u8]) {
    nvme_connection_target::run(input);
}

/// NVMe/TCP: damaged PDUs.
pub fn nvme_pdu(input: &[u8]) {
    nvme_pdu_target::run(input);
}
