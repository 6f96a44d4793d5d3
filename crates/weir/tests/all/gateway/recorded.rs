//! What a gateway that was recorded has asked of its data path.

use super::{Gateway, weir};
use weir_flow::pipeline::Input;
use weir_flow::recording::{Decoder, Entry};
use weir_flow::request::{Op, Request};

/// The arguments of a gateway that is recorded.
pub(crate) const RECORDED: &[&str] = &["--record", "run.weir"];

impl Gateway {
    /// Ends it; returns its requests that write or flush, in order: what they do and whether it must
    /// be durable when they end.
    pub(crate) fn stop_and_tell(&mut self) -> Vec<(Op, bool)> {
        self.stop();
        let recording = std::fs::read(self.folder.join("run.weir")).unwrap();
        let (mut decoder, _, mut at) = Decoder::begin(&recording).unwrap();
        let mut told = Vec::new();
        loop {
            let (entry, length) = decoder.entry(&recording[at..]).unwrap();
            at += length;
            match entry {
                Entry::End(_) => return told,
                Entry::Input(_, Input::Arrive(Request { op, fua, .. })) if op != Op::Read => {
                    told.push((op, fua));
                }
                _ => {}
            }
        }
    }

    /// Asserts that its recording, replayed, does the same.
    pub(crate) fn replays(&self) {
        let output = weir(&self.folder, &["replay", "run.weir"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
