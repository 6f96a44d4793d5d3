//! Replays the inputs that fuzzing has found worth keeping, in `fuzz/corpus/`. The functions that
//! look at an input are shared with the fuzz targets, which include these files.

mod iscsi_initiator;
mod iscsi_login;
mod iscsi_pdu;
mod isns;
mod nbd;
mod nbd_client;
mod nbd_replies;
mod nvme_connection;
mod nvme_gateway;
mod nvme_host;
mod nvme_pdu;
mod scsi_answers;
mod scsi_cdb;
mod scsi_model;
mod scsi_state;
mod shell;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

/// Runs `run` on every file of a corpus, which must be there and have at least `least` of them.
fn replay(corpus: &str, least: usize, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= least, "{} holds {} files", folder.display(), files.len());
    for file in files {
        let input = fs::read(&file).unwrap();
        let failed = std::panic::catch_unwind(|| run(&input)).is_err();
        assert!(!failed, "the input in {} broke a property", file.display());
    }
}

/// What a session is sent in the full feature phase never breaks the connection's promises.
#[test]
fn sessions_keep_their_promises() {
    replay("iscsi_pdu", 20, iscsi_pdu::run);
}

/// Whatever a target answers and however it is cut, an initiator hands out only data that is in order
/// and belongs to a command, ends each command once, and logs in to no target that owes it a proof.
#[test]
fn initiators_keep_their_promises() {
    replay("iscsi_initiator", 20, iscsi_initiator::run);
}

/// Whatever a login looks like, it ends in a session, a refusal or a closed connection, and no initiator
/// gets what asks for a proof without it.
#[test]
fn logins_keep_their_promises() {
    replay("iscsi_login", 20, iscsi_login::run);
}

/// Whatever an iSNS server answers and asks and however it is cut, a client has one request outstanding, knows when it is
/// due, and keeps a bounded amount of memory.
#[test]
fn registrations_keep_their_promises() {
    replay("isns", 20, isns::run);
}

/// Every command and parameter list is answered within the disk, its limits, its reservations and its
/// state.
#[test]
fn commands_stay_on_the_disk() {
    replay("scsi_cdb", 20, scsi_cdb::run);
}

/// Stored reservations are read as they were written or refused.
#[test]
fn stored_reservations_are_whole() {
    replay("scsi_state", 10, scsi_state::run);
}

/// Whatever an NBD client sends and however it is cut, each request has one right answer and what is
/// kept for it is bounded.
#[test]
fn nbd_conversations_keep_their_promises() {
    replay("nbd", 20, nbd::run);
}

/// Whatever an NVMe host sends to a queue and however it is cut, each command has one answer and what is kept for it is
/// bounded.
#[test]
fn nvme_queues_keep_their_promises() {
    replay("nvme_connection", 20, nvme_connection::run);
}

/// However PDUs of NVMe/TCP are damaged, they are taken, or end the connection with one termination request.
#[test]
fn nvme_pdus_keep_their_promises() {
    replay("nvme_pdu", 20, nvme_pdu::run);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random conversations, legal and not, keep the promises of the corpora.
    #[test]
    fn random_nvme_queues_keep_their_promises(input in prop::collection::vec(any::<u8>(), 0..600)) {
        nvme_connection::run(&input);
    }

    /// So do random PDUs.
    #[test]
    fn random_nvme_pdus_keep_their_promises(input in prop::collection::vec(any::<u8>(), 0..300)) {
        nvme_pdu::run(&input);
    }

    /// And servers of iSNS.
    #[test]
    fn random_isns_servers_keep_their_promises(input in prop::collection::vec(any::<u8>(), 0..300)) {
        isns::run(&input);
    }
}
