//! Caps, bounds of tenants and modelled devices against a real gateway: what is held stays held, and no
//! host that keeps to its window is ever refused.

use crate::gateway::initiator::{Session, Transfer, read16};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Gateway, TWO_DISKS, folder};

/// `TWO_DISKS` with these lines about the first volume, and these limits.
fn config(volume: &str, limits: &str) -> String {
    let line = "file = \"disk.img\"";
    format!("[limits]\n{limits}\n{}", TWO_DISKS.replace(line, &format!("{line}\n{volume}")))
}

/// Commands that the session may send now, as the gateway said last.
fn window(session: &mut Session) -> u32 {
    session.ping();
    session.max_cmd_sn.wrapping_sub(session.cmd_sn).wrapping_add(1)
}

/// Sends reads of one block until the window is closed.
fn flood(session: &mut Session) -> Vec<u32> {
    let mut sent = Vec::new();
    while session.has_room() {
        let at = (sent.len() as u64 + 1) * 8192;
        sent.push(session.try_issue(0, read16(at, 512), Transfer::In(512)).unwrap());
    }
    sent
}

/// One request an hour is held from the second on: as many commands as the tenant may have are taken in,
/// the window closes, and a host that keeps to it is refused nothing. What is sent beyond the window is
/// ignored and counted. Another tenant's host notices nothing. Without the cap all of it ends well, and
/// what was ignored can be sent again.
#[test]
fn a_held_tenant_closes_its_window() {
    let capped = config("cap_iops = 1", "max_tenant_requests = 16");
    let mut gateway = Gateway::start(&folder("held"), &capped, RECORDED);
    let mut host = gateway.session("host");
    let sent = flood(&mut host);
    assert_eq!(sent.len(), 16);
    let before = host.cmd_sn;
    // One a second ends meanwhile, and opens the window by as many.
    host.cmd_sn = before.wrapping_add(1_000);
    for _ in 0..5 {
        let itt = host.try_issue(0, read16(0, 512), Transfer::In(512)).unwrap();
        host.forget(itt);
    }
    host.cmd_sn = before;
    host.ping();
    let other = crate::gateway::initiator::Login {
        target: "other",
        ..crate::gateway::initiator::Login::of("b")
    };
    let mut other = other.connect(gateway.portal).unwrap().ready();
    for at in 0..100 {
        other.write(at * 512, &[7; 512]);
    }
    assert!(!host.outstanding().is_empty(), "a cap of 1 holds 15 of 16 for seconds");
    gateway.reload(&config("", "max_tenant_requests = 16"));
    for itt in sent {
        host.wait(itt).good();
    }
    host.execute(read16(0, 512), Transfer::In(512)).good();
    host.logout();
    gateway.logged(&["session ended", "host:host", "ignored_total=5"]);
    gateway.stop();
    assert_eq!(gateway.count("task set full"), 0, "{}", gateway.log());
    gateway.replays();
}

/// The sessions of a tenant share its requests, and share them out anew when one of them leaves.
#[test]
fn sessions_share_a_tenant() {
    let capped = config("cap_iops = 1", "max_tenant_requests = 16");
    let mut gateway = Gateway::start(&folder("share"), &capped, &[]);
    let mut sessions = [gateway.session("one"), gateway.session("two")];
    // What the first was told when it was alone is used up first.
    while window(&mut sessions[0]) > 8 {
        sessions[0].ping();
        sessions[0].execute(crate::gateway::commands::READY, Transfer::None).good();
    }
    let sent: Vec<_> = sessions.iter_mut().map(flood).collect();
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8]);
    gateway.reload(&config("", "max_tenant_requests = 16"));
    for (session, sent) in sessions.iter_mut().zip(sent) {
        for itt in sent {
            session.wait(itt).good();
        }
    }
    let [one, mut two] = sessions;
    one.logout();
    gateway.logged(&["session ended", "host:one"]);
    two.execute(crate::gateway::commands::READY, Transfer::None).good();
    assert_eq!(window(&mut two), 16);
    gateway.stop();
    assert_eq!(gateway.count("task set full"), 0, "{}", gateway.log());
}

/// A host whose commands become larger may have fewer of them outstanding, as its tenant's bytes allow;
/// when they have been small for a while, more again.
#[test]
fn large_commands_narrow_the_window() {
    let mut gateway =
        Gateway::start(&folder("large"), &config("", "max_tenant_bytes = \"8MiB\""), &[]);
    let mut host = gateway.session("host");
    assert_eq!(window(&mut host), 16, "as for commands of 512 KiB");
    host.read(0, 1 << 20);
    // What it was told before is not taken back, but used up.
    for _ in 0..8 {
        host.execute(crate::gateway::commands::READY, Transfer::None).good();
    }
    assert_eq!(window(&mut host), 8);
    let sent: Vec<_> = (0..8)
        .map(|at| host.try_issue(0, read16(at << 20, 1 << 20), Transfer::In(1 << 20)).unwrap())
        .collect();
    for itt in sent {
        host.wait(itt).good();
    }
    for at in 0..256 {
        host.read(at * 512, 512);
    }
    assert_eq!(window(&mut host), 128);
    gateway.stop();
    assert_eq!(gateway.count("task set full"), 0, "{}", gateway.log());
}

/// An NBD client of a held tenant is not read from while there is no room: nothing is refused, and
/// everything is answered when it continues.
#[test]
fn a_held_client_is_not_read_from() {
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    let limits = format!("max_tenant_requests = 4\n{nbd}");
    let mut gateway = Gateway::start(&folder("client"), &config("cap_iops = 1", &limits), &[]);
    let mut client = gateway.client();
    let cookies: Vec<_> = (0..40).map(|at| client.issue((0, 0), at * 8192, 512, &[])).collect();
    // The first one is answered, which shows that they have been looked at.
    assert_eq!(client.wait(cookies[0]).unwrap(), [0; 512]);
    gateway.reload(&config("", &limits));
    for &cookie in &cookies[1..] {
        assert_eq!(client.wait(cookie).unwrap(), [0; 512]);
    }
    drop(client);
    gateway.stop();
    gateway.logged(&["stopped; every volume is durable", "completed=40", "refused=0"]);
}

/// Emulated flash wears as hosts write: operators see pages, erasures and amplification, and how many I/Os the
/// file made later than the model; a write that must be durable, a flush, zeroes and a discard end well, and
/// data are there. After a restart the data are still there, and the device is as its configuration says.
#[test]
fn emulated_flash_wears() {
    let config = "[control]\nsocket = \"c.sock\"\n\
                  [[backend]]\nname = \"flash\"\nmodel = \"ssd-nvme\"\nchips = 2\nblocks = 24\npages = 16\n\
                  spare_permille = 450\nfilled_permille = 1000\nbuffer = 4\n\
                  [[volume]]\nname = \"disk\"\nfile = \"disk.img\"\nsize = \"1MiB\"\nbackend = \"flash\"\n\
                  [[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = { 0 = \"disk\" }\n";
    let mut gateway = Gateway::start(&folder("flash"), config, RECORDED);
    let device = |gateway: &Gateway| gateway.asked(&["status"])["status"]["devices"][0].take();
    let mut host = gateway.session("host");
    let data = |round: u64| vec![round as u8; 4096];
    let mut written = std::collections::BTreeMap::new();
    for round in 0..1_500_u64 {
        let page = round * 97 % 251;
        let cdb = crate::gateway::initiator::write16(page * 4096, 4096, round % 50 == 0);
        host.execute(cdb, Transfer::Out(data(round))).good();
        written.insert(page, round);
    }
    let (unmap, list) = crate::gateway::initiator::unmap(0, 16_384);
    host.execute(unmap, Transfer::Out(list)).good();
    host.execute(crate::gateway::initiator::synchronize16(), Transfer::None).good();
    for page in 0..4 {
        assert_eq!(host.read(page * 4096, 4096), [0; 4096]);
        written.remove(&page);
    }
    let status = device(&gateway);
    let flash = &status["flash"];
    assert_eq!(status["name"], "flash", "{status}");
    assert_eq!(flash["programs"], 1_500, "{status}");
    assert!(flash["erases"].as_u64() > Some(20), "{status}");
    assert!(flash["most_worn"].as_u64() >= flash["least_worn"].as_u64(), "{status}");
    let amplified = 1.0 + flash["moves"].as_f64().unwrap() / 1_500.0;
    assert!((flash["amplification"].as_f64().unwrap() - amplified).abs() < 1e-9, "{status}");
    assert!(status["ios"].as_u64() >= Some(1_500 + 1 + 1 + 4), "{status}");
    assert!(status["timer"]["max_ns"].is_u64() || status["late"] == status["ios"], "{status}");
    for (page, round) in &written {
        assert_eq!(host.read(page * 4096, 4096), data(*round), "page {page}");
    }
    gateway.stop();
    gateway.replays();
    let mut gateway = Gateway::start(&gateway.folder.clone(), config, &[]);
    let mut host = gateway.session("host");
    for (page, round) in &written {
        assert_eq!(host.read(page * 4096, 4096), data(*round), "page {page}");
    }
    assert_eq!(device(&gateway)["flash"]["erases"], 0, "wear is not kept");
    gateway.stop();
}

/// A volume on a modelled device answers when the model has done with it as well, in the model's order,
/// which it shares with another volume on the same device; a volume without one answers meanwhile. Data
/// is in the files as ever, and the run replays.
#[test]
fn volumes_share_a_modelled_device() {
    let device =
        "[[backend]]\nname = \"slow\"\nmodel = \"fixed\"\nservice = \"300ms\"\nservers = 1\n";
    let disk =
        |name| format!("[[volume]]\nname = \"{name}\"\nfile = \"{name}.img\"\nsize = \"1MiB\"\n");
    let on = "backend = \"slow\"\n";
    let target = "[[target]]\nname = \"iqn.2026-11.org.example:disk\"\n\
                  luns = { 0 = \"a\", 1 = \"b\", 2 = \"free\" }\n";
    let volumes = [disk("a"), on.to_owned(), disk("b"), on.to_owned(), disk("free")].concat();
    let config = [device, &volumes, target].concat();
    let mut gateway = Gateway::start(&folder("model"), &config, RECORDED);
    let mut host = gateway.session("host");
    for lun in 1..=2 {
        host.lun = lun;
        host.execute(crate::gateway::commands::READY, Transfer::None);
    }
    let data = vec![9; 4096];
    let mut issue = |lun, at| {
        host.lun = lun;
        let cdb = crate::gateway::initiator::write16(at, 4096, false);
        host.issue(cdb, Transfer::Out(data.clone()))
    };
    let issued = [issue(0, 0), issue(1, 0), issue(0, 4096), issue(2, 0)];
    let mut ended = Vec::new();
    while ended.len() < 4 {
        let (itt, end) = host.next_ended().unwrap();
        end.good();
        ended.push(itt);
    }
    assert_eq!(ended, [issued[3], issued[0], issued[1], issued[2]]);
    assert_eq!(gateway.stored("b.img", 0, 4096), data);
    gateway.stop();
    gateway.replays();
}
