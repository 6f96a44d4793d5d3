//! What is remembered of units, and when a gateway starts without them.

use super::super::Upstreams;
use super::super::network::Tcp;
use super::super::ownership::{Owner, Standing};
use super::super::session::Loss;
use super::super::start::StartError;
use super::super::testing::{Silence, logged, remembered, upstream, upstreams};
use super::super::unit::LogicalUnit;
use super::*;
use crate::config::{Ack, IoMode, Log, Where};
use std::net::SocketAddr;
use weir_flow::cache::writeback::{Order, Sync};
use weir_flow::clock::{Duration, Instant};

const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 3260);

fn named(name: u8) -> Option<Identity> {
    serde_json::from_value(serde_json::json!({ "kind": 3, "bytes": [0x60, name] })).expect("a name")
}

fn facts() -> Facts {
    Facts { identity: named(1), max_blocks: 64, write_cache: false, ..Facts::simple(512, 2048) }
}

fn unit(owned: bool) -> RememberedUnit {
    RememberedUnit::new(&upstream(1, ADDRESS), &facts(), owned)
}

/// A list of units is read as it was written, and a file with any other byte is of no use.
#[test]
fn a_damaged_list_is_of_no_use() {
    let units = vec![unit(true), RememberedUnit { identity: None, ..unit(false) }];
    let bytes = encode(&units);
    assert_eq!(decode(&bytes), Some(units));
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert_eq!(decode(&other), None, "byte {at}");
        assert_eq!(decode(&bytes[..at]), None, "{at} bytes");
    }
}

/// A configuration of a volume on the upstream; with a log, so that the unit is reserved.
fn config() -> Config {
    let mut config = crate::testing::config(vec![Where::Upstream { index: 0, size: None }]);
    config.upstreams = vec![upstream(1, ADDRESS)];
    config.volumes[0].log = Some(Log {
        path: PathBuf::from("log"),
        size: None,
        io: IoMode::Buffered,
        ack: Ack::Log,
        sync: Sync::Local,
        order: Order::Auto,
    });
    config
}

fn away(config: &Config, owned: bool) -> bool {
    may_be_away(config, &[Some(unit(owned))])[0].is_some()
}

/// A unit may be away at the start if the gateway owned it when it ended, or does not reserve it; and neither if the
/// configuration names another unit, nor if the operator lets the gateway take it over.
#[test]
fn only_an_owner_starts_alone() {
    let mut config = config();
    assert!(away(&config, true) && !away(&config, false));
    assert!(may_be_away(&config, &[None])[0].is_none());
    config.take_over = vec![(0, 1)];
    assert!(!away(&config, true));
    config.take_over.clear();
    config.upstreams[0].lun = 3;
    assert!(!away(&config, true));
    config.upstreams[0].lun = 0;
    config.upstreams[0].fence = Fence::Off;
    assert!(away(&config, false));
    (config.upstreams[0].fence, config.volumes[0].log) = (Fence::Auto, None);
    assert!(away(&config, false));
    config.upstreams[0].fence = Fence::On;
    assert!(!away(&config, false));
}

/// The unit that answers after a start without it must be the one that is remembered, or one that has grown. Another
/// one is not used, and the reason says what differs.
#[test]
fn another_unit_is_not_used() {
    let started = || {
        let mut started = LogicalUnit::default();
        started.remember(unit(true));
        started.start_without();
        assert!(started.is_absent());
        started
    };
    let refused = |facts: Facts, why: &str| {
        let mut started = started();
        match started.compare(&facts) {
            Err(Loss::Different(told)) => {
                assert!(told.contains(why) && told.contains("at the last start"), "{told}");
            }
            other => panic!("{why}: {other:?}"),
        }
        assert!(started.is_absent());
    };
    refused(Facts { identity: named(2), ..facts() }, "its name is naa.6002");
    refused(Facts { identity: None, ..facts() }, "its name is no name");
    refused(Facts { block_size: 4096, ..facts() }, "its block size is 4096");
    refused(Facts { blocks: 2047, ..facts() }, "its number of blocks is 2047");
    refused(Facts { write_cache: true, ..facts() }, "its write cache is on");
    refused(Facts { max_blocks: 63, ..facts() }, "it takes 32256 bytes in a command");
    assert_eq!(started().compare(&facts()).ok().flatten(), None);
    let grown = Facts { blocks: 4096, fua: true, ..facts() };
    let mut one = started();
    assert_eq!(one.compare(&grown).ok().flatten(), Some(4096 * 512));
    one.probed(grown, "array path 0");
    assert!(!one.is_absent());
    let known = one.to_remember(&upstream(1, ADDRESS), false).expect("it was probed");
    assert_eq!((known.blocks, known.owned), (4096, false));
}

/// An upstream that is silent fails the start, unless its unit is remembered: then the start says so, the size is the
/// remembered one, and the unit is unclaimed.
#[test]
fn a_start_without_the_upstream_says_so() {
    let begin = Instant::ZERO + Duration::from_secs(100);
    let connect = |upstreams: &mut Upstreams<Tcp>, unit: Option<RememberedUnit>| {
        upstreams.connect(&mut Silence(begin), vec![unit])
    };
    let (_portal, mut alone) = upstreams(2);
    assert!(matches!(connect(&mut alone, None), Err(StartError::Unreachable(_))));
    let (_portal, mut alone) = upstreams(2);
    let told = logged(|| connect(&mut alone, Some(remembered())).expect("it starts"));
    assert!(told.iter().any(|line| line.contains("STARTED WITHOUT")), "{told:?}");
    assert_eq!(alone.unit(0).capacity.get(), 2048 * 512);
    let owners = vec![Some(Owner::new(1, false, Vec::new()))];
    alone
        .claim(&mut Silence(begin + Duration::from_secs(11)), &config(), owners)
        .expect("it waits");
    let standing = alone.ownership(0).map(|owned| owned.standing);
    let Some(Standing::Unclaimed { why, .. }) = standing else { panic!("{standing:?}") };
    assert!(why.contains("the connection is not made") || why.contains("login"), "{why}");
}
