//! Performs the work of the cache stage in no time: memory and log are instant.

use std::collections::VecDeque;
use weir_flow::cache::{Done, Work};
use weir_flow::pipeline::Input;
use weir_flow::request::Tag;

/// What the cache has asked for.
#[derive(Debug, Default)]
pub(crate) struct CacheWork {
    done: VecDeque<Done>,
    /// Requests of the cache's own, counted.
    own: u64,
}

impl CacheWork {
    pub(crate) fn is_idle(&self) -> bool {
        self.done.is_empty()
    }

    pub(crate) fn happen(&mut self) -> Option<Input> {
        self.done.pop_front().map(Input::Cache)
    }

    pub(crate) fn perform(&mut self, work: Work) {
        let outcome = Ok(());
        self.done.extend(match work {
            Work::Copy(_)
            | Work::Zero { .. }
            | Work::CopyBuffer { .. }
            | Work::Release(_)
            | Work::ReleaseBatch { .. }
            | Work::Closed(_) => None,
            Work::Fetch { fetch, .. } => Some(Done::Fetched { fetch, outcome }),
            Work::Reserve { job, .. } => {
                self.own += 1;
                Some(Done::Reserved { job, tag: Tag(OWN + self.own) })
            }
            Work::Log { volume, write } => {
                Some(Done::Logged { volume, io: write.write.io, outcome })
            }
            Work::Sync { volume, io } => Some(Done::Logged { volume, io, outcome }),
            Work::KeepLost(volume, _) => Some(Done::LostKept(volume, outcome)),
            Work::Abandon(volume) => Some(Done::Abandoned(volume, outcome)),
        });
    }
}

/// Tags of the cache's own requests are above this, those of hosts' below.
const OWN: u64 = 1 << 32;
