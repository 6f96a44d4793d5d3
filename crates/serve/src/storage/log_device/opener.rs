//! Opens logs of volumes that come beside the event loop: making one, or reading what is in one, takes seconds.

use super::{OpenedLog, open_one, settings};
use crate::config::{Places, Volume};
use crate::identity::identity;
use crate::storage::random::KernelRandom;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, SendError, TryRecvError, channel};
use std::thread;
use tracing::{error, info};
use weir_flow::request::VolumeId;

/// The logs that were opened for volumes that come, by volume, each with the name of that.
#[derive(Debug, Default)]
pub(crate) struct Logs(BTreeMap<usize, (String, OpenedLog)>);

impl Logs {
    /// Whether the log of a volume is here.
    pub(crate) fn has(&self, volume: usize) -> bool {
        self.0.contains_key(&volume)
    }

    /// Takes the log of a volume.
    pub(crate) fn take(&mut self, volume: usize) -> Option<OpenedLog> {
        self.0.remove(&volume).map(|(_, log)| log)
    }

    /// Closes logs that were opened in vain, and removes what was made for them.
    pub(crate) fn unmake(self) {
        for (volume, log) in self.0.into_values() {
            log.unmake(&volume);
        }
    }
}

/// The logs, or what is wrong with them.
pub(crate) type Result = std::result::Result<Logs, Vec<String>>;

/// A thread that opens logs.
#[derive(Debug)]
pub(crate) struct Opener(Receiver<Result>);

impl Opener {
    /// Begins to open the logs of these volumes.
    pub(crate) fn begin(volumes: Vec<(usize, Volume)>, places: Places) -> io::Result<Self> {
        let (sender, opening) = channel();
        let open = move || {
            // The gateway may stop meanwhile, and wait for nothing.
            if let Err(SendError(Ok(logs))) = sender.send(open(&volumes, &places)) {
                logs.unmake();
            }
        };
        thread::Builder::new().name("logs".to_owned()).spawn(open)?;
        Ok(Self(opening))
    }

    /// What it has opened; `None` if it is at it. To be asked until then.
    pub(crate) fn look(&self) -> Option<Result> {
        match self.0.try_recv() {
            Ok(opened) => Some(opened),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(vec!["the thread that opens logs has ended".to_owned()]))
            }
        }
    }
}

/// Opens the logs of these volumes: all of them, or none.
fn open(volumes: &[(usize, Volume)], places: &Places) -> Result {
    let (node, mut faults, mut logs) = (identity(), Vec::new(), Logs::default());
    for (index, volume) in volumes {
        // Whether its stores have a cache says nothing of what is in the log.
        let settings = settings(volume, true, &node);
        info!(volume = volume.name, "opening the log of a volume that comes");
        let (id, random) = (VolumeId::new(*index as u32), &mut KernelRandom);
        match open_one(id, volume, settings.as_ref(), random) {
            Ok(log) => drop(logs.0.insert(*index, (volume.name.clone(), log))),
            Err(problem) => {
                let told = places.at("volume", &volume.name, &["log"], &problem.to_string());
                error!(reason = told, "this cannot be had; the configuration stays as it was");
                faults.push(told);
            }
        }
    }
    if faults.is_empty() {
        return Ok(logs);
    }
    logs.unmake();
    Err(faults)
}
