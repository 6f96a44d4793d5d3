use super::*;
use crate::accept::{Cap, Layout, Part, Volume};
use crate::cache::quarantine::LostRange;
use crate::cache::{Done, writeback};
use crate::control::PolicyHandover;
use crate::control::{Contract, Promises};
use crate::dispatch::{Background, HostNumber, Member, Shares, Weight};
use crate::path::{Access, Failback, PathOrder, Settings};
use crate::pipeline::{Backend, Limits, VolumeAdded};
use crate::request::{BackendId, PathId};
use core::num::NonZeroU32;
use proptest::prelude::*;

fn config() -> Config {
    let mut policies = Policies::default();
    policies.dispatch.set("depth", 7).unwrap();
    let volume = Volume {
        capacity: 1 << 40,
        layout: Layout::One(BackendId::new(1)),
        max_transfer: u64::MAX,
        cap: cap(),
    };
    let contract = Contract::new(3_500, 4_096, Duration::from_millis(41));
    Config {
        volumes: alloc::vec![
            volume.clone(),
            Volume { capacity: 1_024, layout: concat(), ..volume.clone() },
            Volume { layout: stripe(4_096), ..volume },
        ],
        backends: alloc::vec![Backend::alike(1), Backend { groups: alloc::vec![1, 0] }],
        promises: Promises { contracts: alloc::vec![Some(contract), None], groups: Vec::new() },
        shares: shares(),
        limits: Limits::default(),
        paths: Settings {
            failback: Failback::After,
            failback_after: Duration::from_millis(7),
            ..Settings::default()
        },
        cache: crate::cache::Settings {
            size: 1 << 20,
            line: 8_192,
            owners: alloc::vec![TenantId::new(1)],
            logs: alloc::vec![None, Some(log())],
        },
        policies,
    }
}

/// Weights, all of them different.
fn shares() -> Shares {
    let weight = |parts| Weight::from_1024ths(parts).unwrap();
    let background = Background { write_back: weight(1), prefetch: weight(2), jobs: weight(3) };
    Shares { tenants: alloc::vec![weight(u32::MAX), weight(512)], background }
}

/// Settings of a log, none of them the default.
fn log() -> writeback::Settings {
    writeback::Settings {
        volume: [7; 16],
        block: 4_096,
        owner: 9,
        mode: writeback::Mode::Ram,
        sync: writeback::Sync::Upstream,
        order: writeback::Order::Strict,
        capacity: 2 << 30,
        segment: 32 << 20,
        batch_bytes: 512 << 10,
        batch_records: 64,
        epoch_bytes: 1 << 20,
        epoch_age: Duration::from_millis(10),
        dirty_age: Duration::from_millis(20),
        depth: 3,
        merge: 64 << 10,
        hold: Duration::from_millis(30),
        upstream_flush: false,
        earn: false,
    }
}

fn concat() -> Layout {
    let part = |backend| Part { backend: BackendId::new(backend), length: 512 << backend };
    Layout::Concat(alloc::vec![part(1), part(0)])
}

fn stripe(chunk: u64) -> Layout {
    Layout::Stripe { backends: alloc::vec![BackendId::new(1), BackendId::new(0)], chunk }
}

fn cap() -> Cap {
    let (iops, bandwidth) = (NonZeroU32::new(500), Bandwidth::per_second(1 << 40));
    Cap { iops, bandwidth, burst: Duration::from_millis(3) }
}

/// Promises that use everything.
fn set_control() -> SetControl {
    use crate::control::{Group, Ops, Row, Target, Tier};
    let target = |quantile_ppm, millis| {
        let response = Duration::from_millis(millis);
        Target { quantile_ppm, response }
    };
    let targets = alloc::vec![target(500_000, 8), target(999_000, 41)];
    let row = |ops, size| Row {
        ops,
        size,
        iops: 200,
        load_permille: (size > 4_096).then_some(700),
        targets: targets.clone(),
    };
    let group = Group { parent: None, iops: 1_000, size: 4_096, limit: Some(2_000), weight: 3 };
    let contract = Contract {
        rows: alloc::vec![row(Ops::Read, 4_096), row(Ops::Write, 4_096), row(Ops::Read, 65_536)],
        burst: Duration::from_secs(1),
        credit: Duration::from_secs(60),
        peak_permille: 3_000,
        limit: Some(700),
        weight: 9,
        tier: Tier::Bronze,
        group: Some(1),
    };
    let groups = alloc::vec![group, Group { parent: Some(0), limit: None, ..group }];
    let mut control = Choice::named(control::POLICIES, "ta3").unwrap();
    control.set("hwm", 95).unwrap();
    let contracts = alloc::vec![None, Some(contract)];
    SetControl { control, promises: Promises { contracts, groups } }
}

/// A configuration survives the way into a header and back, policies and values included.
#[test]
fn header_round_trips() {
    let mut bytes = Vec::new();
    encode_header(&mut bytes, &config());
    let (read, length) = decode_header(&bytes).unwrap();
    assert_eq!(read, config());
    assert_eq!(length, bytes.len());
    for cut in 0..bytes.len() {
        assert_eq!(decode_header(&bytes[..cut]).unwrap_err(), FormatError::Truncated);
    }
}

/// A contract that no pipeline takes is damage, not a panic later.
#[test]
fn an_impossible_contract_is_damage() {
    let mut config = config();
    let contract = Contract::new(1, 0, Duration::from_millis(1));
    config.promises.contracts = alloc::vec![Some(contract)];
    let mut bytes = Vec::new();
    encode_header(&mut bytes, &config);
    assert_eq!(decode_header(&bytes).unwrap_err(), FormatError::Damaged);
}

/// A layout that no pipeline takes is damage, too, and so is one that is longer than any.
#[test]
fn an_impossible_layout_is_damage() {
    let many = Layout::Concat(alloc::vec![Part { backend: BackendId::new(0), length: 1 }; 65]);
    for layout in [stripe(4_097), many] {
        let mut config = config();
        config.volumes[2] = Volume { capacity: 1, layout, ..config.volumes[2].clone() };
        let mut bytes = Vec::new();
        encode_header(&mut bytes, &config);
        assert_eq!(decode_header(&bytes).unwrap_err(), FormatError::Damaged);
    }
}

/// A cap past what a pipeline takes is damage, too, where a run begins and where it changes.
#[test]
fn an_impossible_cap_is_damage() {
    let mut config = config();
    config.volumes[0].cap.burst = Duration::MAX;
    let mut bytes = Vec::new();
    encode_header(&mut bytes, &config);
    assert_eq!(decode_header(&bytes).unwrap_err(), FormatError::Damaged);
    bytes.clear();
    let bandwidth = Bandwidth::per_second(u64::MAX);
    let capped = Input::Capped(VolumeId::new(0), Cap { bandwidth, ..cap() });
    encode_entry(&mut bytes, Instant::ZERO, &Entry::Input(Instant::ZERO, capped));
    assert_eq!(decode_entry(&bytes, Instant::ZERO), Err(FormatError::Damaged));
}

/// The two ways in which the first bytes can be wrong are distinguished.
#[test]
fn other_files_are_refused() {
    assert_eq!(decode_header(b"#!/bin/sh\n").unwrap_err(), FormatError::NotARecording);
    assert_eq!(decode_header(b"WEIRREC\x0b").unwrap_err(), FormatError::UnknownVersion(11));
}

/// A flipped bit anywhere is noticed, at the latest at the end; the whole is read as written.
#[test]
fn every_flipped_bit_is_noticed() {
    let at = Instant::from_nanos;
    let arrive = Input::Arrive(crate::testing::request(7));
    let entries = [
        Entry::Input(at(5), arrive),
        Entry::Deadline(at(900)),
        Entry::Input(
            at(900),
            Input::TakeOver(Arc::new(PolicyHandover {
                credits: alloc::vec![Duration::ZERO, Duration::from_secs(7)],
                window: Some(40),
            })),
        ),
        Entry::Input(at(900), Input::SetControl(Arc::new(set_control()))),
        Entry::Input(at(900), Input::SetWeights(Arc::new(shares()))),
        Entry::Input(at(901), Input::PathUp(BackendId::new(1), PathId::new(0))),
        Entry::Input(at(902), Input::UnitReset(BackendId::new(1))),
        Entry::Input(at(903), Input::WriteLost(BackendId::new(1))),
        Entry::End(Digest::resume(99, 3)),
    ];
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&mut bytes, &config());
    for entry in &entries {
        encoder.entry(&mut bytes, entry);
    }
    let read = |bytes: &[u8]| -> Result<Vec<Entry>, FormatError> {
        let (mut decoder, _, mut place) = Decoder::begin(bytes)?;
        let mut read = Vec::new();
        while place < bytes.len() {
            let (entry, length) = decoder.entry(&bytes[place..])?;
            place += length;
            read.push(entry);
        }
        Ok(read)
    };
    assert_eq!(read(&bytes).unwrap(), entries);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit} may be flipped unnoticed");
    }
}

proptest! {
    /// Every entry survives encoding and decoding and fits the bound that readers rely on.
    #[test]
    fn entries_round_trip(
        previous in 0_u64..1 << 40, passed in 0_u64..1 << 40, word: u64, small: u32, op in 0_u8..7,
        code in 0_u8..8, flags: (bool, bool, bool), kind in 0..21,
    ) {
        let (before, at) =
            (Instant::from_nanos(previous), Instant::from_nanos(previous + passed));
        let key: RequestKey = KeyData::from_ffi(word | 1 << 32).into();
        let (backend, path) = (BackendId::new(small), PathId::new(small / 2));
        let entry = match kind {
            0 => Entry::Input(at, Input::Arrive(Request {
                tag: Tag(word),
                tenant: TenantId::new(small),
                volume: VolumeId::new(small),
                link: LinkId::new(small),
                op: Op::from_code(op).unwrap(),
                extent: Extent::new(word, word),
                fua: flags.0,
                ordered: flags.1,
                job: flags.2,
            })),
            1 => Entry::Input(at, Input::Stored {
                key, outcome: IoError::from_code(code).map_or(Ok(()), Err),
            }),
            2 => Entry::Input(at, Input::Sent { key, bytes: word }),
            3 => Entry::Input(at, Input::PathDown(backend, path)),
            4 => Entry::Input(at, Input::PathUp(backend, path)),
            5 => Entry::Deadline(at),
            6 => Entry::Input(at, Input::Resized(VolumeId::new(small), word)),
            7 => Entry::Input(at, Input::Capped(VolumeId::new(small), Cap {
                bandwidth: Bandwidth::per_second(word % (1 << 50)), ..cap()
            })),
            8 => Entry::Input(at, Input::PathAccess(
                backend, path, Access::ALL[usize::from(code % 5)],
            )),
            9 => Entry::Input(at, Input::Checked(backend, path)),
            10 => Entry::Input(at, Input::PathOrder(backend, PathOrder::Disable(path))),
            11 => Entry::Input(at, Input::PathOrder(backend, PathOrder::Enable(path))),
            12 => Entry::Input(at, Input::PathOrder(backend, PathOrder::Failback)),
            13 => Entry::Input(at, Input::Link(
                LinkId::new(small), transfer::Link {
                    interleaves: flags.0,
                    port: Bandwidth::per_second(word).map(|rate| transfer::Port { id: small, rate }),
                },
            )),
            14 => {
                let extent = |i| Extent::new(word >> 2 | i, u64::from(small) + 1);
                let lost = |i| LostRange { extent: extent(i), seq: word, since: word };
                let ranges = (0..u64::from(code % 3)).map(lost).collect();
                Entry::Input(at, Input::Cache(Done::Lost(VolumeId::new(small), ranges)))
            }
            15 => Entry::Input(at, Input::Cache(Done::Quarantine(VolumeId::new(small), word))),
            16 => Entry::Input(at, Input::Cache(Done::LostKept(
                VolumeId::new(small), IoError::from_code(code).map_or(Ok(()), Err),
            ))),
            17 => Entry::Input(at, Input::Substream(
                match code % 3 {
                    0 => Member::Link(LinkId::new(small)),
                    1 => Member::Host(LinkId::new(small), HostNumber(word as u32)),
                    _ => Member::Volume(VolumeId::new(small)),
                },
                Weight::from_1024ths(word as u32),
            )),
            18 => Entry::Input(at, Input::VolumeRemoved(VolumeId::new(small))),
            19 => Entry::Input(at, Input::VolumeAdded(Arc::new(VolumeAdded {
                id: VolumeId::new(small),
                volume: Volume {
                    capacity: word,
                    layout: Layout::One(backend),
                    max_transfer: word,
                    cap: cap(),
                },
                backends: alloc::vec![Backend::alike(u32::from(code)); usize::from(flags.0)],
                owner: TenantId::new(small),
                log: flags.0.then(log),
            }))),
            _ => Entry::End(Digest::resume(word, u64::from(small))),
        };
        let mut bytes = Vec::new();
        encode_entry(&mut bytes, before, &entry);
        prop_assert!(bytes.len() <= MAX_ENTRY);
        prop_assert_eq!(decode_entry(&bytes, before), Ok((entry, bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert_eq!(decode_entry(&bytes[..cut], before), Err(FormatError::Truncated));
        }
    }

    /// Any bytes give an entry or an error, never a panic.
    #[test]
    fn rubbish_is_an_error(bytes: Vec<u8>) {
        let _ = decode_entry(&bytes, Instant::from_nanos(u64::MAX));
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&bytes);
        let _ = decode_header(&header);
    }
}
