//! Volumes on several stores: every byte is where the layout says, and nowhere else.

use crate::gateway::commands::{compare_and_write, or_write, write_and_verify};
use crate::gateway::initiator::{Transfer, synchronize16, unmap, write_same16, write16};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, folder, weir};

/// INVALID FIELD IN CDB.
const INVALID_FIELD: (u8, u8, u8) = (0x5, 0x24, 0x00);

const TARGET: &str = "[[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = { 0 = \"v\" }\n";

const CHUNK: u64 = 8 << 10;

/// In turns over three files, of which two have more than is used.
fn striped() -> String {
    let store = |(name, size)| {
        format!("[[store]]\nname = \"{name}\"\nfile = \"{name}.img\"\nsize = {size}\n")
    };
    let stores = [("a", "1050624"), ("b", "\"1MiB\""), ("c", "\"2MiB\"")].map(store).concat();
    format!(
        "{stores}[[volume]]\nname = \"v\"\nstores = [\"a\", \"b\", \"c\"]\nlayout = \"stripe\"\n\
         chunk = \"8KiB\"\n{TARGET}"
    )
}

/// A file of an odd number of blocks, and another one behind it.
const JOINED: &str = "[[store]]\nname = \"a\"\nfile = \"a.img\"\nsize = 1049088\n\
                      [[store]]\nname = \"b\"\nfile = \"b.img\"\nsize = \"1MiB\"\n\
                      [[volume]]\nname = \"v\"\nstores = [\"a\", \"b\"]\nlayout = \"concat\"\n";

fn joined() -> String {
    format!("{JOINED}{TARGET}")
}

/// Where a byte of the volume is: the file, and the byte there.
type Home = fn(u64) -> (&'static str, u64);

fn home_in_stripe(byte: u64) -> (&'static str, u64) {
    let row = byte / (3 * CHUNK);
    let within = byte % (3 * CHUNK);
    let file = ["a.img", "b.img", "c.img"][(within / CHUNK) as usize];
    (file, row * CHUNK + within % CHUNK)
}

fn home_in_concat(byte: u64) -> (&'static str, u64) {
    byte.checked_sub(1_049_088).map_or(("a.img", byte), |rest| ("b.img", rest))
}

/// Commands of all kinds, most of them over edges; what the volume has then, which was read back.
fn work(gateway: &Gateway, capacity: usize, edge: u64) -> Vec<u8> {
    let mut session = gateway.session("one");
    assert_eq!(session.capacity(), capacity as u64);
    let mut chance = Chance(11);
    let mut model = vec![0; capacity];
    for round in 0..240 {
        let most = [16, 200, 900][round % 3];
        let length = (1 + chance.below(most)) * 512;
        let room = capacity as u64 - length;
        let offset = if round % 4 == 0 {
            // Around an edge, wherever else the others are.
            (chance.below(room / edge) * edge + edge).saturating_sub(length / 1_024 * 512)
        } else {
            chance.below(room / 512) * 512
        };
        let offset = offset.min(room);
        let range = offset as usize..(offset + length) as usize;
        match chance.below(8) {
            0 => {
                let (cdb, list) = unmap(offset, length);
                session.execute(cdb, Transfer::Out(list)).good();
                model[range].fill(0);
            }
            1 => {
                let byte = chance.next() as u8;
                let same = write_same16(offset, length);
                session.execute(same, Transfer::Out(vec![byte; 512])).good();
                model[range].fill(byte);
            }
            2 => {
                assert!(session.read(offset, length as usize) == model[range], "{offset} {length}");
            }
            3 => drop(session.execute(synchronize16(), Transfer::None).good()),
            _ => {
                let data = chance.bytes(range.len());
                let cdb = write16(offset, data.len(), round % 5 == 0);
                session.execute(cdb, Transfer::Out(data.clone())).good();
                model[range].copy_from_slice(&data);
            }
        }
    }
    // All of it through the last chunk of the last row.
    let data = chance.bytes(capacity);
    session.write(0, &data);
    session.execute(synchronize16(), Transfer::None).good();
    let (cdb, list) = unmap(edge - 4_096, 3 * edge + 8_192);
    model = data;
    session.execute(cdb, Transfer::Out(list)).good();
    model[(edge - 4_096) as usize..(4 * edge + 4_096) as usize].fill(0);
    assert!(session.read(0, capacity) == model);
    session.logout();
    model
}

/// Each block of the volume is in its file.
fn at_home(gateway: &Gateway, model: &[u8], home: Home) {
    for (index, block) in model.chunks(512).enumerate() {
        let (file, at) = home(index as u64 * 512);
        assert!(gateway.stored(file, at, 512) == block, "block {index} in {file} at {at}");
    }
}

/// What is written to a stripe is in its files in turns; what is past the smallest stays as it is; all is
/// there after a restart, and the run replays.
#[test]
fn a_stripe_is_where_it_says() {
    let folder = folder("stripe");
    let mut gateway = Gateway::start(&folder, &striped(), RECORDED);
    gateway.logged(&["volume=\"v\"", "store=\"a\"", "unused=2 KiB"]);
    gateway.logged(&["store=\"c\"", "unused=1 MiB"]);
    let model = work(&gateway, 3 << 20, CHUNK);
    gateway.stop();
    at_home(&gateway, &model, home_in_stripe);
    assert_eq!(gateway.stored("a.img", 1 << 20, 2 << 10), [0; 2 << 10]);
    assert_eq!(gateway.stored("c.img", 1 << 20, 1 << 20), vec![0; 1 << 20]);
    gateway.replays();
    let mut again = Gateway::start(&folder, &striped(), &[]);
    let mut session = again.session("one");
    assert!(session.read(0, model.len()) == model);
    session.logout();
    again.stop();
}

/// The second file begins where the first ends, even if the first has grown since: its end is left alone.
#[test]
fn a_concatenation_is_where_it_says() {
    let folder = folder("concat");
    let mut gateway = Gateway::start(&folder, &joined(), RECORDED);
    let model = work(&gateway, 1_049_088 + (1 << 20), 1_049_088 / 8 / 512 * 512);
    gateway.stop();
    at_home(&gateway, &model, home_in_concat);
    gateway.replays();
    let file = std::fs::OpenOptions::new().append(true).open(folder.join("a.img")).unwrap();
    std::io::Write::write_all(&mut &file, &[7; 8_192]).unwrap();
    let mut again = Gateway::start(&folder, &joined(), &[]);
    again.logged(&["store=\"a\"", "unused=8 KiB"]);
    let mut session = again.session("one");
    assert!(session.read(0, model.len()) == model);
    session.write(1_048_576, &[9; 4_096]);
    session.logout();
    again.stop();
    assert_eq!(again.stored("a.img", 1_048_576, 512), [9; 512]);
    assert_eq!(again.stored("a.img", 1_049_088, 8_192), [7; 8_192], "unused bytes");
    assert_eq!(again.stored("b.img", 0, 3_584), [9; 3_584]);
}

/// What is one I/O to a host and would be on two stores is refused, and changes nothing; within a store it
/// is done, and COMPARE AND WRITE, which takes one block, always is.
#[test]
fn what_cannot_be_cut_is_refused() {
    let mut gateway = Gateway::start(&folder("uncut"), &striped(), &[]);
    let mut session = gateway.session("one");
    let edge = CHUNK;
    session.write(0, &[1; 2 * CHUNK as usize]);
    for (cdb, data) in
        [or_write(edge - 512, &[2; 1_024]), write_and_verify(edge - 512, &[2; 1_024])]
    {
        assert_eq!(session.sense_of(cdb, data), INVALID_FIELD);
    }
    let (cdb, data) = compare_and_write(0, &[1; 1_024], &[3; 1_024]);
    assert_eq!(session.sense_of(cdb, data), INVALID_FIELD);
    assert!(session.read(0, 2 * CHUNK as usize) == [1; 2 * CHUNK as usize]);
    let (cdb, data) = or_write(edge - 1_024, &[2; 1_024]);
    session.execute(cdb, data).good();
    let (cdb, data) = write_and_verify(edge, &[4; 1_024]);
    session.execute(cdb, data).good();
    for at in [edge - 512, edge] {
        let before = session.read(at, 512);
        let (cdb, data) = compare_and_write(at, &before, &[5; 512]);
        session.execute(cdb, data).good();
    }
    let expected = [[3; 512], [5; 512], [5; 512], [4; 512]].concat();
    assert_eq!(session.read(edge - 1_024, 2_048), expected);
    session.logout();
    gateway.stop();
}

/// A stripe may have an upstream as a store.
#[test]
fn an_upstream_is_a_store() {
    let mut behind = Gateway::with_one_disk("layout-behind");
    let config = format!(
        "[[upstream]]\nname = \"array\"\ntarget = \"iqn.2026-11.org.example:disk\"\n\
         portals = \"{}\"\n\
         [[store]]\nname = \"a\"\nfile = \"a.img\"\nsize = \"1MiB\"\n\
         [[store]]\nname = \"b\"\nupstream = \"array\"\nsize = \"1MiB\"\n\
         [[volume]]\nname = \"v\"\nstores = [\"a\", \"b\"]\nlayout = \"stripe\"\nchunk = \"8KiB\"\n\
         {TARGET}",
        behind.portal
    );
    let mut front = Gateway::start(&folder("layout-front"), &config, RECORDED);
    front.logged(&["store=\"array\"", "unused=63 MiB"]);
    let model = work(&front, 2 << 20, CHUNK);
    front.stop();
    front.replays();
    behind.stop();
    for (index, chunk) in model.chunks(CHUNK as usize).enumerate() {
        let at = (index / 2) as u64 * CHUNK;
        let stored = if index % 2 == 0 {
            front.stored("a.img", at, chunk.len())
        } else {
            behind.stored("disk.img", at, chunk.len())
        };
        assert!(stored == chunk, "chunk {index}");
    }
}

/// A store that is too small for one turn, and an upstream that has less than is written, are reported at the
/// start with what to do.
#[test]
fn stores_that_are_too_small_are_told() {
    let refused = |name: &str, config: &str| {
        let folder = folder(name);
        std::fs::write(folder.join("weir.toml"), config).unwrap();
        let serve = &["serve", "weir.toml", "--listen", "127.0.0.1:0"];
        let output = weir(&folder, serve).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let small = striped().replace("\"1MiB\"", "4096");
    let (code, told) = refused("small-store", &small);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("its store `b` is smaller than one chunk of 8 KiB"), "{told}");
    let mut behind = Gateway::with_one_disk("small-behind");
    let config = format!(
        "[[upstream]]\nname = \"array\"\ntarget = \"iqn.2026-11.org.example:disk\"\n\
         portals = \"{}\"\n[[store]]\nname = \"a\"\nupstream = \"array\"\nsize = \"65MiB\"\n\
         [[volume]]\nname = \"v\"\nstores = \"a\"\n{TARGET}",
        behind.portal
    );
    let (code, told) = refused("small-unit", &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(
        told.contains("upstream `array` has 64 MiB, but `size` of its store is 65 MiB"),
        "{told}"
    );
    behind.stop();
}

/// The size of a volume on several stores does not change while it is served: that is refused, and nothing
/// changes.
#[test]
fn stores_do_not_grow_live() {
    let mut gateway = Gateway::start(&folder("layout-reload"), &joined(), &[]);
    let larger = joined().replace("\"1MiB\"", "\"2MiB\"");
    gateway.refuse_reload(&larger, &["volume `v` differs", "this needs a restart"]);
    gateway.reload(&format!("[[tenant]]\nname = \"v\"\n{}", joined()));
    let mut session = gateway.session("one");
    assert_eq!(session.capacity(), 1_049_088 + (1 << 20));
    session.logout();
    gateway.stop();
}
