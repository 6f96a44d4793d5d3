//! Tests of the switch to TLS.

use super::harness::{
    ACK, Client, ERR_INVALID, ERR_POLICY, ERR_TLS_REQD, Told, contexts, encode_option,
    encode_request, go, limits, option,
};
use crate::nbd::{PeerError, Tls};

/// Starts TLS, which must be granted.
fn start(client: &mut Client) {
    let told = client.send(&encode_option(option::STARTTLS, &[]));
    assert_eq!(told, Ok(vec![Told::StartTls]));
    assert!(client.connection.is_waiting());
    assert_eq!(client.option_replies(option::STARTTLS), [(ACK, vec![])]);
    assert!(client.connection.is_waiting(), "the TLS handshake comes first");
    client.connection.tls_started();
    assert!(!client.connection.is_waiting());
}

/// Without TLS a client gets an error and continues without.
#[test]
fn there_may_be_no_tls() {
    let mut client = Client::new(limits(8, Tls::Off));
    assert_eq!(client.ask(option::STARTTLS, &[]), [(ERR_POLICY, vec![])]);
    assert_eq!(client.ask(option::STARTTLS, b"x"), [(ERR_INVALID, vec![])]);
    client.choose("disk");
}

/// When TLS is required, all options but the two that lead on are refused, known or not, well
/// formed or not, and however long.
#[test]
fn required_tls_comes_first() {
    let mut client = Client::new(limits(8, Tls::Required));
    for number in [3, 4, 6, 7, 8, 9, 10, 11, 99] {
        for data in [vec![], go("disk", &[]), vec![1; 100], vec![0; 100_000]] {
            assert_eq!(client.ask(number, &data), [(ERR_TLS_REQD, vec![])], "{number}");
        }
    }
    assert_eq!(client.ask(option::STARTTLS, b"x"), [(ERR_INVALID, vec![])]);
    start(&mut client);
    assert_eq!(client.ask(option::STARTTLS, &[]), [(ERR_INVALID, vec![])]);
    assert_eq!(client.ask(option::LIST, &[]).len(), 5);
    client.choose("disk");

    let mut aborting = Client::new(limits(8, Tls::Required));
    let told = aborting.send(&encode_option(option::ABORT, &[]));
    assert_eq!(told, Ok(vec![Told::Disconnect]));
    assert_eq!(aborting.option_replies(option::ABORT), [(ACK, vec![])]);
}

/// `NBD_OPT_EXPORT_NAME` before required TLS ends the connection, and works after it.
#[test]
fn export_name_needs_tls_too() {
    let name = encode_option(option::EXPORT_NAME, b"disk");
    let mut client = Client::new(limits(8, Tls::Required));
    assert_eq!(client.send(&name), Err(PeerError::TlsRequired));
    // A client that does not know of refusals cannot start TLS either.
    let mut old = Client::silent(limits(8, Tls::Required));
    old.send(&[0; 4]).unwrap();
    assert_eq!(old.send(&name), Err(PeerError::TlsRequired));

    let mut client = Client::new(limits(8, Tls::Required));
    start(&mut client);
    assert_eq!(client.send(&name), Ok(vec![Told::Export(0)]));
}

/// Offered TLS is the client's choice.
#[test]
fn offered_tls_is_optional() {
    let mut client = Client::new(limits(8, Tls::Offered));
    assert_eq!(client.ask(option::LIST, &[]).len(), 5);
    client.choose("disk");
    let mut client = Client::new(limits(8, Tls::Offered));
    start(&mut client);
    client.choose("disk");
}

/// Bytes that came with the request to encrypt, or before the server has said yes, were not
/// encrypted and are not listened to.
#[test]
fn plaintext_is_not_carried_over() {
    let injected = encode_option(option::STRUCTURED_REPLY, &[]);
    let mut client = Client::new(limits(8, Tls::Offered));
    let both = [encode_option(option::STARTTLS, &[]), injected.clone()].concat();
    assert_eq!(client.send(&both), Err(PeerError::PlaintextBehindStartTls));
    assert!(client.connection.is_finished());

    let mut client = Client::new(limits(8, Tls::Offered));
    client.send(&encode_option(option::STARTTLS, &[])).unwrap();
    let refused = client.connection.receive(&injected[..1]);
    assert_eq!(refused.unwrap_err(), PeerError::PlaintextBehindStartTls);
    assert!(client.connection.wants_close());
}

/// What was agreed on before TLS is forgotten: structured replies and metadata contexts.
#[test]
fn tls_starts_afresh() {
    let query = contexts("disk", &["base:allocation"]);
    let begun = || {
        let mut client = Client::new(limits(8, Tls::Offered));
        client.ask(option::STRUCTURED_REPLY, &[]);
        assert_eq!(client.ask(option::SET_META_CONTEXT, &query).len(), 2);
        start(&mut client);
        client
    };
    assert_eq!(begun().ask(option::SET_META_CONTEXT, &query), [(ERR_INVALID, vec![])]);

    let mut client = begun();
    client.ask(option::STRUCTURED_REPLY, &[]);
    client.choose("disk");
    client.connection.export_admitted();
    let told = client.send(&encode_request(0, 7, 7, (0, 512)));
    assert_eq!(told, Ok(vec![]), "no context is selected");
}
