//! A host that minds its own business while another one misbehaves.

use super::Chance;
use super::initiator::{BLOCK, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the witness writes: tests leave this part of the volume alone.
pub(crate) const OFFSET: u64 = 48 << 20;

/// How much of it.
const LENGTH: usize = 4 << 20;

/// A session that writes and reads what it has written, until the test ends it.
#[derive(Debug)]
pub(crate) struct Witness {
    finish: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Witness {
    /// Starts it. When this returns, one round is over.
    pub(crate) fn start(mut session: Session) -> Self {
        let finish = Arc::new(AtomicBool::new(false));
        let told = finish.clone();
        let mut chance = Chance(0x5eed);
        let mut model = vec![0; LENGTH];
        session.write(OFFSET, &model[..1 << 20]);
        round(&mut session, &mut chance, &mut model);
        let thread = std::thread::spawn(move || {
            // However the test ends, and however soon: some rounds come after that.
            let mut after = 0;
            while after < 8 {
                after += u32::from(told.load(Ordering::Relaxed));
                round(&mut session, &mut chance, &mut model);
                std::thread::park_timeout(Duration::from_millis(2));
            }
            for (index, expected) in model.chunks(1 << 20).enumerate() {
                let found = session.read(OFFSET + ((index as u64) << 20), expected.len());
                assert!(found == expected, "all that was acknowledged is there");
            }
            session.logout();
            model
        });
        Self { finish, thread }
    }

    /// Lets it look at everything once more; returns where its data is and what must be there.
    pub(crate) fn finish(self) -> (u64, Vec<u8>) {
        self.finish.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(model) => (OFFSET, model),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Writes a range and reads another.
fn round(session: &mut Session, chance: &mut Chance, model: &mut [u8]) {
    let mut range = || {
        let blocks = 1 + chance.below(64);
        let first = chance.below(LENGTH as u64 / BLOCK - blocks);
        ((first * BLOCK) as usize, (blocks * BLOCK) as usize)
    };
    let ((to, count), (from, length)) = (range(), range());
    let data = chance.bytes(count);
    session.write(OFFSET + to as u64, &data);
    model[to..to + count].copy_from_slice(&data);
    let found = session.read(OFFSET + from as u64, length);
    assert!(found == model[from..from + length], "what was acknowledged is read back");
}
