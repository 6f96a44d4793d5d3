//! What a gateway logs of its tenants when it is asked, and at its end.

use crate::gateway::commands::READY;
use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::{Gateway, ONE_DISK, eventually, folder, weir};

/// A tenant that claims a host of the tests, and is promised this many requests of 512 bytes a second.
fn tenant(name: &str, iops: u32, p99: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\ninitiators = [\"iqn.2026-11.org.example.host:{name}\"]\n\
         objectives = [{{ size = 512, iops = {iops}, p99 = \"{p99}\" }}]\n"
    )
}

/// SIGUSR1 has the gateway tell of each tenant with a contract how it fares and what held it, the one with the
/// worst burn first, and what is outstanding where; no host notices, and a recording continues. At its end it
/// tells again.
#[test]
fn tenants_are_told_of_on_a_signal() {
    let folder = folder("summary");
    // A request of 64 KiB is for ever beyond the first contract; no policy enforces the second.
    let tenants =
        [tenant("one", 1, "1s"), tenant("two", 1_000_000, "1us"), tenant("none", 1, "1s")];
    let policy = "[policy]\ncontrol = { name = \"ta1\", tau = 1 }\n";
    let config = format!("{policy}{}{ONE_DISK}", tenants.concat());
    let mut gateway = Gateway::start(&folder, &config, &["--record", "run.weirrec"]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let mut guest = gateway.session("guest");
    one.read(0, 512);
    let waiting = one.issue(read16(0, 65_536), Transfer::In(65_536));
    one.execute(READY, Transfer::None).good();
    for at in 0..10 {
        two.read(at * 512, 512);
    }
    guest.read(0, 512);
    gateway.signal("USR1");
    let last = ["promise", "tenant=\"one\"", "op=\"read\"", "size=512 B", "promised=p99 1.000 s"];
    gateway.logged(&[&last[..], &["requests=1 met_per_cent=100.0 burn=0.0 "]].concat());
    let burn = "requests=10 met_per_cent=0.0 burn=100.0 burn_5min=100.0 burn_1h=100.0";
    gateway.logged(&["promise", "tenant=\"two\"", "promised=p99 1.000 us", burn]);
    gateway.logged(&["account", "tenant=\"one\"", "requests=1 late=0 refused=0", "storage/device"]);
    gateway.logged(&["account", "tenant=\"two\"", "requests=10 late=10", "storage/device"]);
    gateway.logged(&["requests completed=12 failed=0 refused=0 outstanding=1"]);
    gateway.logged(&["outstanding stage=control count=1 oldest="]);
    let log = gateway.log();
    let place = |tenant: &str| log.find(&format!("account tenant=\"{tenant}\"")).unwrap();
    assert!(place("two") < place("one"), "{log}");
    assert_eq!((gateway.count("account"), gateway.count("stage=")), (2, 1), "{log}");

    assert_eq!(one.outstanding(), [waiting]);
    gateway.reload(&config.replace("iops = 1,", "iops = 1000000,"));
    eventually("end of what was held", || {
        one.execute(READY, Transfer::None).good();
        one.outstanding().is_empty().then_some(())
    });
    assert_eq!(one.wait(waiting).good().len(), 65_536);
    gateway.stop();
    gateway.logged(&["account", "tenant=\"one\"", "requests=2", "control/bucket"]);
    assert_eq!((gateway.count("account"), gateway.count("left behind")), (4, 0));
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}
