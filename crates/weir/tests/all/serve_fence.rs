//! Two gateways in front of one unit of a third: one at a time writes to it, and the unit itself sees to that.

use crate::gateway::initiator::{Transfer, read16, synchronize16, write16};
use crate::gateway::proxy::{Fate, Proxy};
use crate::gateway::{Gateway, ONE_DISK, eventually, folder, weir};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

/// The storage behind: one disk on two portals, on a device that takes its time.
fn behind(test: &str, service: &str) -> Gateway {
    let config = ONE_DISK.replace("size =", "backend = \"slow\"\nsize =");
    let config = format!(
        "[[backend]]\nname = \"slow\"\nmodel = \"fixed\"\nservice = \"{service}\"\nservers = 1\n{config}"
    );
    Gateway::start(&folder(&format!("{test}-behind")), &config, &["--listen", "127.0.0.1:0"])
}

/// A gateway in front of these portals. `log` stands in the table of its volume, `fence` in that of the upstream.
fn in_front(who: &str, portals: &[SocketAddr], log: &str, fence: &str) -> String {
    let portals: Vec<_> = portals.iter().map(|portal| format!("\"{portal}\"")).collect();
    let portals = portals.join(", ");
    format!(
        "[control]\nsocket = \"c.sock\"\n\
         [[upstream]]\nname = \"array\"\ntarget = \"iqn.2026-11.org.example:disk\"\n\
         portals = [{portals}]\nreconnect_interval_max = \"200ms\"\n\
         initiator_name = \"iqn.2026-11.org.example:{who}\"\n{fence}\n\
         [[volume]]\nname = \"front\"\nupstream = \"array\"\nstate = \"front.state\"\n{log}\n\
         [[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = {{ 0 = \"front\" }}\n"
    )
}

const LOG: &str = "log = \"front.log\"\nlog_size = \"32MiB\"";

/// What a gateway that cannot start says.
fn refused(folder: &Path, config: &str, more: &[&str]) -> (Option<i32>, String) {
    std::fs::write(folder.join("weir.toml"), config).unwrap();
    let arguments = [&["serve", "weir.toml", "--listen", "127.0.0.1:0"], more].concat();
    let Output { status, stderr, .. } = weir(folder, &arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// The key of the gateway that has the unit, as its status says.
fn key(gateway: &Gateway) -> String {
    let status = gateway.asked(&["volume", "status", "front"]);
    let fence = &status["volumes"][0]["fences"][0];
    assert_eq!(
        (&fence["upstream"], &fence["state"]),
        (&"array".into(), &"held".into()),
        "{status}"
    );
    fence["key"].as_str().expect("it is text").to_owned()
}

/// A second gateway is refused while the first has the unit, even over the kill of the first, which knows itself again
/// on both ways. When the first has left with an empty log the second may come.
#[test]
fn a_second_gateway_is_refused() {
    let mut behind = behind("second", "1us");
    let (first, second) = (folder("second-a"), folder("second-b"));
    let a = in_front("a", &behind.portals, LOG, "");
    let b = in_front("b", &behind.portals, LOG, "");
    let mut gateway = Gateway::start(&first, &a, &[]);
    let old = key(&gateway);
    let mut session = gateway.session("one");
    session.write(0, &vec![1; 64 << 10]);
    let (code, told) = refused(&second, &b, &[]);
    assert_eq!(code, Some(7), "{told}");
    for part in
        ["volume `front`", "upstream `array`", "another gateway holds it", &old, "Registrants Only"]
    {
        assert!(told.contains(part), "no {part}: {told}");
    }
    assert!(told.contains(&format!("weir serve --take-over front={old}")), "{told}");
    // A wrong word takes nothing over.
    let (code, _) = refused(&second, &b, &["--take-over", "front=0x0001000000000001"]);
    assert_eq!(code, Some(7));
    session.write(64 << 10, &vec![2; 64 << 10]);

    gateway.kill();
    let (code, told) = refused(&second, &b, &[]);
    assert_eq!(code, Some(7), "it may come again: {told}");
    let mut gateway = Gateway::start(&first, &a, &[]);
    assert_eq!(gateway.count("path is ready: the unit is reserved"), 2, "{}", gateway.log());
    let new = key(&gateway);
    // The same gateway, the next start.
    assert_eq!((&new[6..], old != new), (&old[6..], true));
    let mut session = gateway.session("one");
    assert!(session.read(0, 128 << 10) == [vec![1; 64 << 10], vec![2; 64 << 10]].concat());
    session.logout();
    assert!(gateway.command(&["volume", "drain", "front"]).status.success());
    gateway.stop();
    assert_eq!(gateway.count("FENCED"), 0, "{}", gateway.log());

    let mut gateway = Gateway::start(&second, &b, &[]);
    assert_eq!(gateway.count("path is ready: the unit is reserved"), 2);
    gateway.stop();
    behind.stop();
}

/// What a person has taken over is fenced for its former owner: it says so, nothing more of it reaches the unit though
/// its log is full, hosts get the path as unavailable, and it cannot come back without a person.
#[test]
fn who_was_taken_over_from_is_fenced() {
    let mut behind = behind("over", "50ms");
    let (first, second) = (folder("over-a"), folder("over-b"));
    let a = in_front("a", &behind.portals, LOG, "");
    let b = in_front("b", &behind.portals, LOG, "");
    let mut old = Gateway::start(&first, &a, &[]);
    let taken = key(&old);
    let mut host = old.session("one");
    // Ordered by flushes, so that write-back takes long.
    for round in 0..200 {
        host.write(round * 4_096, &[0xaa; 4_096]);
        host.execute(synchronize16(), Transfer::None).good();
    }
    let word = format!("front={taken}");
    let mut new = Gateway::start(&second, &b, &["--take-over", &word]);
    let mut session = new.session("two");
    session.write(0, &vec![0xbb; 200 * 4_096]);
    old.logged(&["FENCED", &key(&new), &taken, "--take-over"]);
    for cdb in [read16(0, 4_096), [0; 16]] {
        let transfer = if cdb == [0; 16] { Transfer::None } else { Transfer::In(4_096) };
        assert_eq!(host.sense_of(cdb, transfer), (2, 0x04, 0x0c), "nothing is done there");
    }
    let write = Transfer::Out(vec![0xaa; 4_096]);
    assert_eq!(host.sense_of(write16(0, 4_096, false), write), (2, 0x04, 0x0c));
    let status = old.asked(&["volume", "status", "front"]);
    let fence = &status["volumes"][0]["fences"][0];
    assert_eq!((&fence["state"], &fence["holder"]), (&"fenced".into(), &key(&new).into()));
    assert!(status["volumes"][0]["log"]["dirty_bytes"].as_u64() > Some(0), "{status}");
    let told = String::from_utf8(old.command(&["status"]).stdout).unwrap();
    assert!(told.contains("FENCED for") && told.contains(&key(&new)), "{told}");
    old.stop();

    // Neither with the word that he has heard, nor without: what he has is from before.
    let (code, told) = refused(&first, &a, &[]);
    assert!(code == Some(7) && told.contains(&key(&new)), "{told}");
    let word = format!("front={}", key(&new));
    let (code, told) = refused(&first, &a, &["--take-over", &word]);
    assert!(code == Some(6) && told.contains("must not overwrite"), "{told}");

    session.execute(synchronize16(), Transfer::None).good();
    assert!(new.command(&["volume", "drain", "front"]).status.success());
    assert!(session.read(0, 200 * 4_096) == vec![0xbb; 200 * 4_096]);
    session.logout();
    new.stop();
    // Nor when it has no owner.
    let (code, told) = refused(&first, &a, &[]);
    assert!(code == Some(6) && told.contains("PRGENERATION"), "{told}");
    behind.stop();
    let stored = behind.stored("disk.img", 0, 200 * 4_096);
    assert!(stored == vec![0xbb; 200 * 4_096], "what came after the take-over stays");
}

/// A way that comes back is registered anew before it is used, without anybody noticing.
#[test]
fn ways_come_and_go() {
    let mut behind = behind("ways", "1us");
    let paths = [0, 1].map(|index| Proxy::start(behind.portals[index], Fate::Open));
    let portals = paths.each_ref().map(|path| path.address);
    let mut front = Gateway::start(&folder("ways"), &in_front("a", &portals, LOG, ""), &[]);
    let witness = front.witness();
    for round in 0..4 {
        let path = &paths[round % 2];
        let before = front.count("path is ready: the unit is reserved");
        path.be(Fate::Cut);
        front.logged(&[&format!("({})", path.address), "path lost"]);
        path.be(Fate::Open);
        eventually("path that is back", || {
            (front.count("path is ready: the unit is reserved") > before).then_some(())
        });
    }
    witness.finish();
    front.stop();
    assert_eq!(front.count("FENCED"), 0, "{}", front.log());
    behind.stop();
}

/// The fence is asked for without a log, or is not wanted with one, which is not done in silence.
#[test]
fn the_fence_is_as_configured() {
    let mut behind = behind("as", "1us");
    let (first, second) = (folder("as-a"), folder("as-b"));
    let mut gateway =
        Gateway::start(&first, &in_front("a", &behind.portals, "", "fence = \"on\""), &[]);
    let (code, told) = refused(&second, &in_front("b", &behind.portals, "", "fence = \"on\""), &[]);
    assert!(code == Some(7) && told.contains(&key(&gateway)), "{told}");
    gateway.stop();

    let off = |who| in_front(who, &behind.portals, LOG, "fence = \"off\"");
    let mut one = Gateway::start(&first, &off("a"), &[]);
    one.logged(&["another gateway could write there"]);
    let mut other = Gateway::start(&second, &off("b"), &[]);
    one.stop();
    other.stop();
    let (code, told) = refused(&first, &off("a"), &["--take-over", "front=0x01"]);
    assert!(code == Some(2) && told.contains("no upstream of volume `front` is fenced"), "{told}");
    let (code, told) = refused(&first, &off("a"), &["--take-over", "front=me"]);
    assert!(code == Some(2) && told.contains("write VOLUME=KEY"), "{told}");
    behind.stop();
}
