//! What the gateway needs and cannot have: it says what, and what to do.

use crate::gateway::{Gateway, ONE_DISK, folder, weir};
use std::path::Path;

/// The exit code and the complaint of a gateway that cannot start.
fn refused(folder: &Path, listen: &str) -> (Option<i32>, String) {
    std::fs::write(folder.join("second.toml"), ONE_DISK).unwrap();
    let output = weir(folder, &["serve", "second.toml", "--listen", listen]).output().unwrap();
    assert!(output.stdout.is_empty(), "it is not ready");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A port that another gateway has is 7; the message names it and says what to do. The other
/// gateway continues.
#[test]
fn a_port_of_another_gateway_is_told() {
    let gateway = Gateway::with_one_disk("port");
    let witness = gateway.witness();
    let (code, told) = refused(&folder("port-second"), &gateway.portal.to_string());
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains(&format!("cannot listen on {}", gateway.portal)), "{told}");
    assert!(told.contains("use any free port") || told.contains("--listen 127.0.0.1:0"), "{told}");
    gateway.stop_after(witness);
}

/// A volume that another gateway serves is 7 and is named; the other gateway continues, and when it
/// has ended the volume can be had.
#[test]
fn a_volume_of_another_gateway_is_told() {
    let gateway = Gateway::with_one_disk("volume");
    let witness = gateway.witness();
    let folder = gateway.folder.clone();
    let (code, told) = refused(&folder, "127.0.0.1:0");
    assert_eq!(code, Some(7), "{told}");
    let holder = format!("in use by process {}", gateway.pid());
    for part in ["volume `disk`", "disk.img", &holder] {
        assert!(told.contains(part), "{told}");
    }
    gateway.stop_after(witness);
    let mut next = Gateway::start(&folder, ONE_DISK, &[]);
    next.session("next").ping();
    next.stop();
}
