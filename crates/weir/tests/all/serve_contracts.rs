//! Tenants and what they are promised, in a gateway that serves: who is which tenant, and contracts that
//! change while hosts are connected.

use crate::gateway::commands::READY;
use crate::gateway::initiator::{Login, Session, Transfer, read16};
use crate::gateway::nbd::READ;
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Gateway, ONE_DISK, eventually, folder};

/// A policy under which a request of 64 KiB is for ever beyond a contract that is a request of 512
/// bytes a second: it takes 128 of these.
const HELD: &str = "objectives = [{ size = 512, iops = 1, p99 = \"1s\" }]\n";

/// Bytes of a request that a contract of [`HELD`] lets through at once.
const SMALL: usize = 512;

/// Bytes of one that it holds.
const LARGE: usize = 65_536;

/// `ONE_DISK` under this policy, with these tenants.
fn control_set(control: &str, tenants: &str) -> String {
    format!("[policy]\ncontrol = {control}\n{tenants}{ONE_DISK}")
}

const BUCKETS: &str = "{ name = \"ta1\", tau = 1 }";

/// A tenant that claims a host of the tests.
fn tenant(name: &str, host: &str, rows: &str) -> String {
    let host = format!("iqn.2026-11.org.example.host:{host}");
    format!("[[tenant]]\nname = \"{name}\"\ninitiators = [\"{host}\"]\n{rows}")
}

/// Reads this many times, from beginning to end.
fn flow(session: &mut Session, count: u64) {
    for at in 0..count {
        session.read(at * LARGE as u64, LARGE);
    }
}

/// A read that is held: others get an answer meanwhile, on this session too.
fn held(session: &mut Session) -> u32 {
    let itt = session.issue(read16(0, LARGE), Transfer::In(LARGE));
    session.execute(READY, Transfer::None).good();
    assert!(session.outstanding().contains(&itt), "it waits");
    itt
}

/// What was held continues, long before the old contract would let it.
fn goes_on(session: &mut Session, waiting: &[u32]) {
    eventually("end of what was held", || {
        session.execute(READY, Transfer::None).good();
        session.outstanding().is_empty().then_some(())
    });
    for &itt in waiting {
        assert_eq!(session.wait(itt).good().len(), LARGE);
    }
}

/// Two hosts with different names are two tenants on one volume: one has a contract and is held to it,
/// the other is not. It gets a hundred answers while the first gets none but that of a request within
/// its contract.
#[test]
fn hosts_of_one_volume_are_tenants_of_their_own() {
    let config = control_set(BUCKETS, &tenant("first", "one", HELD));
    let mut gateway = Gateway::start(&folder("two_tenants"), &config, &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    one.read(0, SMALL);
    let itt = held(&mut one);
    flow(&mut two, 100);
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.outstanding(), [itt]);
    // It stays behind: a stop that waited for it would wait two minutes.
    gateway.kill();
}

/// A beginning of a name claims all hosts that have no claim of their own, and a volume's own tenant is
/// that no tenant claims.
#[test]
fn the_most_specific_claim_counts() {
    let free = "objectives = [{ size = \"1MiB\", iops = 1000000, p99 = \"1s\" }]\n";
    let tenants = [tenant("most", "t*", HELD), tenant("two", "two", free)].concat();
    let mut gateway = Gateway::start(&folder("claims"), &control_set(BUCKETS, &tenants), &[]);
    let (mut two, mut three) = (gateway.session("two"), gateway.session("three"));
    let mut one = gateway.session("one");
    three.read(0, SMALL);
    let itt = held(&mut three);
    flow(&mut two, 100);
    flow(&mut one, 100);
    three.execute(READY, Transfer::None).good();
    assert_eq!(three.outstanding(), [itt]);
    gateway.kill();
}

/// NBD clients have no names: they are the volume's tenant, even if another one claims every host.
#[test]
fn nbd_clients_are_the_volumes_tenant() {
    let tenants = format!(
        "[[tenant]]\nname = \"disk\"\n{HELD}[[tenant]]\nname = \"hosts\"\ninitiators = [\"*\"]\n"
    );
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    let config = format!("{nbd}{}", control_set(BUCKETS, &tenants));
    let mut gateway = Gateway::start(&folder("nbd_tenant"), &config, &[]);
    let (mut one, mut client) = (gateway.session("one"), gateway.client());
    client.read(0, SMALL);
    let cookie = client.issue((READ, 0), 0, LARGE as u32, &[]);
    flow(&mut one, 100);
    client.holes(0, 4096);
    assert_eq!(client.outstanding(), [cookie]);
    gateway.reload(&config.replace("iops = 1,", "iops = 1000000,"));
    assert_eq!(client.wait(cookie).unwrap().len(), LARGE);
    gateway.stop();
}

/// A contract that a new configuration raises holds at once for waiting requests: they continue, in its session,
/// which notices nothing else.
#[test]
fn a_contract_changes_live() {
    let config = control_set(BUCKETS, &tenant("first", "one", HELD));
    let mut gateway = Gateway::start(&folder("live_contract"), &config, &[]);
    let mut one = gateway.session("one");
    one.read(0, SMALL);
    let waiting = [held(&mut one), held(&mut one)];
    gateway.reload(&config.replace("iops = 1,", "iops = 1000000,"));
    goes_on(&mut one, &waiting);
    one.ping();
    assert_eq!(gateway.count("session ended"), 0);
    gateway.stop();
}

/// The policy changes live, with its parameters, and back; waiting requests are handed over each time. A recording
/// of it replays to the same decisions.
#[test]
fn the_policy_changes_live() {
    let tenants = tenant("first", "one", HELD);
    let config = |control| control_set(control, &tenants);
    let mut gateway = Gateway::start(&folder("live_policy"), &config(BUCKETS), RECORDED);
    let mut one = gateway.session("one");
    one.read(0, SMALL);
    let waiting = held(&mut one);
    gateway.reload(&config("{ name = \"ta1\", tau = 10 }"));
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.outstanding(), [waiting]);
    gateway.reload(&config("\"slack\""));
    goes_on(&mut one, &[waiting]);
    gateway.reload(&config(BUCKETS));
    one.read(0, SMALL);
    let waiting = held(&mut one);
    gateway.reload(&config("\"open\""));
    goes_on(&mut one, &[waiting]);
    one.ping();
    gateway.stop();
    gateway.replays();
}

/// A tenant that a new configuration adds, in front of the others, claims a host that is logged in: its
/// requests are the new tenant's from then on, and those of the others stay theirs.
#[test]
fn tenants_come_and_go() {
    let first = tenant("first", "one", HELD);
    let both = format!("{}{first}", tenant("second", "two", HELD));
    let config = |tenants: &str| control_set(BUCKETS, tenants);
    let mut gateway = Gateway::start(&folder("live_tenants"), &config(&first), &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    one.read(0, SMALL);
    let mut waiting = vec![held(&mut one)];
    flow(&mut two, 10);
    gateway.reload(&config(&both));
    two.read(0, SMALL);
    let itt = held(&mut two);
    one.execute(READY, Transfer::None).good();
    assert_eq!((one.outstanding(), two.outstanding()), (waiting.clone(), vec![itt]));
    // Without its contract the second continues at once, and what it asks for from then on is the
    // volume's again.
    gateway.reload(&config(&first));
    goes_on(&mut two, &[itt]);
    flow(&mut two, 10);
    waiting.push(held(&mut one));
    assert_eq!(one.outstanding(), waiting);
    gateway.kill();
}

/// What changes only with a restart is refused together with a new contract: that does not hold either.
#[test]
fn half_a_configuration_changes_no_contract() {
    let config = control_set(BUCKETS, &tenant("first", "one", HELD));
    let mut gateway = Gateway::start(&folder("half_contract"), &config, &[]);
    let mut one = gateway.session("one");
    one.read(0, SMALL);
    let itt = held(&mut one);
    let more = config.replace("iops = 1,", "iops = 1000000,");
    let dispatch = "[policy]\ndispatch = { name = \"fifo\", depth = 3 }\n";
    let more = more.replace("[policy]\n", dispatch);
    gateway.refuse_reload(&more, &["needs a restart", "another policy than `control`"]);
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.outstanding(), [itt]);
    gateway.kill();
}

/// A host whose command window is too small for its contract is named in the log, with both figures; one
/// whose window is large enough is not.
#[test]
fn a_window_below_the_contract_is_told() {
    let rows = |iops| format!("objectives = [{{ size = 512, iops = {iops}, p99 = \"10ms\" }}]\n");
    let tenants = tenant("first", "one", &rows(12_801)) + &tenant("second", "two", &rows(12_800));
    let config = format!("[iscsi]\nmax_commands = 128\n{}", control_set("\"slack\"", &tenants));
    let mut gateway = Gateway::start(&folder("depth"), &config, &[]);
    for host in ["one", "two"] {
        Login::of(host).connect(gateway.portal).unwrap().ready().logout();
    }
    gateway.logged(&["command window is smaller", "first", "window=128", "needed=129"]);
    gateway.stop();
    assert_eq!(gateway.count("command window is smaller"), 1);
}
