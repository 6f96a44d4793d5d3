//! Whatever a client sends, and however it is cut: no panic, no endless answer, the same meaning.

use std::sync::Arc;

use proptest::prelude::*;

use super::harness::{
    Client, FLAGS, Told, contexts, encode_option, encode_request, go, limits, option,
};
use crate::nbd::{Command, Error, Extent, NEEDED_MAX, PeerError, Refusal, Tls};

/// Most requests at once.
const REQUESTS: u32 = 4;
/// Output for one step, in bytes: a read of the largest payload, or what refusals may pile up.
const ANSWER_MAX: usize = 512 * 1024;

/// What a conversation came to: events with data joined, and all bytes that the server sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    told: Vec<Told>,
    output: Vec<u8>,
    error: Option<PeerError>,
}

impl Outcome {
    /// Joins data to the part before it, so that the cuts cannot be seen.
    fn add(&mut self, told: Told) {
        if let Told::Data { bytes, complete, offset, .. } = &told
            && let Some(Told::Data { bytes: before, complete: end, .. }) = self.told.last_mut()
            && *offset > 0
        {
            assert_eq!(before.len(), *offset as usize, "without gaps");
            before.extend(bytes);
            *end = *complete;
            return;
        }
        self.told.push(told);
    }
}

/// Sends the parts one after the other and answers everything at once, but for some trims that are
/// never answered, so that the connection fills up.
fn converse(mut client: Client, parts: &[&[u8]]) -> Outcome {
    let mut outcome = Outcome::default();
    for part in parts {
        let mut fresh = *part;
        loop {
            let told = match step(&mut client, fresh) {
                Ok(told) => told,
                Err(error) => {
                    client.drain();
                    outcome.output = client.output;
                    outcome.error = Some(error);
                    return outcome;
                }
            };
            fresh = &[];
            let Some(told) = told else {
                break;
            };
            act(&mut client, &told);
            outcome.add(told);
        }
    }
    client.drain();
    outcome.output = client.output;
    outcome
}

/// One event, or nothing when more bytes are needed.
fn step(client: &mut Client, fresh: &[u8]) -> Result<Option<Told>, PeerError> {
    client.pending.extend_from_slice(fresh);
    loop {
        let received = client.connection.receive(&client.pending)?;
        assert!(received.consumed <= client.pending.len());
        assert!(client.connection.needed() <= NEEDED_MAX);
        let (consumed, told) = (received.consumed, received.event.map(Told::from));
        client.pending.drain(..consumed);
        assert!(client.connection.outstanding() <= REQUESTS);
        assert!(client.connection.outbox().len() < ANSWER_MAX);
        if told.is_some() {
            return Ok(told);
        }
        if consumed == 0 {
            let is_behind = client.connection.is_waiting() && !client.connection.outbox.is_empty();
            if !is_behind {
                return Ok(None);
            }
            client.drain();
        }
    }
}

fn act(client: &mut Client, told: &Told) {
    let connection = &mut client.connection;
    match *told {
        Told::StartTls => {
            client.drain();
            client.connection.tls_started();
        }
        Told::Export(1) => connection.export_refused(Refusal::Policy),
        Told::Export(_) => connection.export_admitted(),
        Told::Request(request) => match request.command {
            Command::Read => {
                let payload: Arc<[u8]> = vec![3; request.length as usize].into();
                connection.respond_data(request.slot, payload, 0..request.length as usize);
            }
            Command::BlockStatus { .. } => {
                let extent = Extent { length: 512, hole: true, zero: false };
                connection.respond_status(request.slot, &[extent]);
            }
            // Some writes fail before their data has come.
            Command::Write if request.offset % 1024 != 0 => {
                connection.respond(request.slot, Err(Error::Enospc));
            }
            Command::Write => {}
            Command::Trim if request.offset % 4096 == 512 => {}
            _ => connection.respond(request.slot, Ok(())),
        },
        Told::Data { slot, complete: true, .. } => connection.respond(slot, Ok(())),
        Told::Data { .. } | Told::Disconnect => {}
    }
}

fn fresh(tls: Tls) -> Client {
    Client::silent(limits(REQUESTS, tls))
}

/// A conversation in which everything happens once, without TLS.
fn script() -> Vec<u8> {
    let write = |offset, length| {
        let mut bytes = encode_request(1, 1, 11, (offset, length));
        bytes.extend((0..length).map(|n| n as u8));
        bytes
    };
    [
        FLAGS.to_be_bytes().to_vec(),
        encode_option(option::STARTTLS, &[]),
        encode_option(option::LIST, &[]),
        encode_option(99, &[1; 5]),
        encode_option(option::STRUCTURED_REPLY, &[]),
        encode_option(option::INFO, &go("disk", &[1, 2, 3])),
        encode_option(option::SET_META_CONTEXT, &contexts("disk", &["base:allocation"])),
        encode_option(option::GO, &go("golden", &[])),
        encode_option(option::GO, &go("disk", &[3])),
        encode_request(0, 0, 10, (0, 512)),
        write(0, 1024),
        write(512, 512),
        write(100, 100),
        encode_request(0, 3, 12, (0, 0)),
        encode_request(0, 7, 13, (0, 1024)),
        encode_request(0, 55, 14, (0, 1024)),
        encode_request(0, 2, 15, (0, 0)),
    ]
    .concat()
}

/// However the stream is cut, into two parts or into single bytes, it means the same.
#[test]
fn cuts_do_not_matter() {
    let script = script();
    let whole = converse(fresh(Tls::Off), &[&script]);
    assert_eq!((whole.error, whole.told.last()), (None, Some(&Told::Disconnect)));
    assert_eq!(whole.told.len(), 2 + 1 + 3 + 1 + 1 + 1, "{:?}", whole.told);
    for at in 0..script.len() {
        let (front, back) = script.split_at(at);
        assert_eq!(converse(fresh(Tls::Off), &[front, back]), whole, "cut at {at}");
    }
    let bytes: Vec<&[u8]> = script.chunks(1).collect();
    assert_eq!(converse(fresh(Tls::Off), &bytes), whole);
}

/// An option that could stand in a conversation, with numbers that get through often enough.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = || prop::sample::select(vec!["disk", "golden", "", "other"]);
    let query = prop::sample::select(vec!["base:allocation", "base:", "x:y", ""]);
    let data = prop_oneof![
        Just(Vec::new()),
        name().prop_map(|name| name.as_bytes().to_vec()),
        (name(), prop::collection::vec(0..5_u16, 0..4)).prop_map(|(name, infos)| go(name, &infos)),
        (name(), prop::collection::vec(query, 0..3))
            .prop_map(|(name, queries)| contexts(name, &queries)),
        prop::collection::vec(any::<u8>(), 0..40),
        Just(vec![0; NEEDED_MAX]),
    ];
    (0..12_u32, data).prop_map(|(number, data)| encode_option(number, &data))
}

/// A request that could stand in a conversation.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![4 => Just(0), 2 => 0..32_u16, 1 => any::<u16>()];
    let offset = prop_oneof![4 => (0..20_u64).prop_map(|n| n * 512), 1 => any::<u64>()];
    let length = prop_oneof![4 => (0..9_u32).prop_map(|n| n * 512), 1 => 0..70_000_u32];
    (flags, 0..9_u16, any::<u64>(), offset, length, any::<bool>()).prop_map(
        |(flags, kind, cookie, offset, length, short)| {
            let mut bytes = encode_request(flags, kind, cookie, (offset, length));
            if kind == 1 {
                let length = if short { length / 2 } else { length };
                bytes.resize(bytes.len() + length as usize, 0x25);
            }
            bytes
        },
    )
}

fn any_tls() -> impl Strategy<Value = Tls> {
    prop::sample::select(vec![Tls::Off, Tls::Offered, Tls::Required])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Noise on a new connection, and behind good flags.
    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), tls in any_tls()) {
        converse(fresh(tls), &[&bytes]);
        converse(fresh(tls), &[&FLAGS.to_be_bytes(), &bytes]);
        converse(Client::ready_with(limits(REQUESTS, Tls::Off), "disk", true), &[&bytes]);
    }

    /// Plausible options, each sent for itself, then noise.
    #[test]
    fn plausible_options_are_survived(
        options in prop::collection::vec(any_option(), 1..20),
        noise in prop::collection::vec(any::<u8>(), 0..100),
        tls in any_tls(),
    ) {
        let flags = FLAGS.to_be_bytes();
        let parts: Vec<&[u8]> = [&flags[..]]
            .into_iter()
            .chain(options.iter().map(Vec::as_slice))
            .chain([&noise[..]])
            .collect();
        converse(fresh(tls), &parts);
    }

    /// Plausible requests mean the same in one part and in pieces.
    #[test]
    fn plausible_requests_are_survived(
        requests in prop::collection::vec(any_request(), 1..30),
        structured in any::<bool>(),
        piece in 1..3000_usize,
    ) {
        let bytes = requests.concat();
        let ready = || Client::ready_with(limits(REQUESTS, Tls::Off), "disk", structured);
        let whole = converse(ready(), &[&bytes]);
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        prop_assert_eq!(converse(ready(), &pieces), whole);
    }

    /// One flipped byte anywhere, or an end anywhere, in an otherwise good conversation.
    #[test]
    fn damage_is_survived(at in 0..2600_usize, flip in 1..=255_u8, cut in 0..2600_usize) {
        let mut bytes = script();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= flip;
        }
        bytes.truncate(cut);
        converse(fresh(Tls::Off), &[&bytes]);
    }
}
