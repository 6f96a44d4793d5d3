//! What the fuzz targets run. The functions live beside the test that replays the corpora.

#[path = "../../crates/wire/tests/corpora/iscsi_login.rs"]
mod iscsi_login_target;
#[path = "../../crates/wire/tests/corpora/iscsi_pdu.rs"]
mod iscsi_pdu_target;
#[path = "../../crates/wire/tests/corpora/scsi_cdb.rs"]
mod scsi_cdb_target;
#[path = "../../crates/wire/tests/corpora/shell.rs"]
mod shell;

/// Logins and text keys.
pub fn iscsi_login(input: &[u8]) {
    iscsi_login_target::run(input);
}

/// The full feature phase.
pub fn iscsi_pdu(input: &[u8]) {
    iscsi_pdu_target::run(input);
}

/// Commands and parameter lists.
pub fn scsi_cdb(input: &[u8]) {
    scsi_cdb_target::run(input);
}
