//! What operators ask for by signals.

use super::{Gateway, Stop};
use crate::frontend;
use tracing::{info, warn};

impl Gateway<'_> {
    /// Somebody asks the gateway to leave.
    pub(super) fn signalled(&mut self) {
        let count = self.stop_signals.take();
        if count == 0 {
            return;
        }
        match self.stop {
            Stop::No if count == 1 => self.leave(),
            _ => {
                warn!("second signal: leaving at once");
                self.stop = Stop::Now;
            }
        }
    }

    /// Takes no new work; what is in flight is finished.
    pub(super) fn leave(&mut self) {
        if self.stop != Stop::No {
            return;
        }
        info!(
            outstanding = self.engine.outstanding(),
            "stopping: no new requests; requests in flight end first"
        );
        self.stop = Stop::Draining(self.now + self.config.stop_within);
        self.listeners.clear();
        self.engine.set.drop_gathering();
        self.engine.drop_jobs();
    }

    /// Reads the configuration again and applies what can change live.
    pub(super) fn reload(&mut self) {
        if self.reload_signals.take() == 0 || self.stop != Stop::No {
            return;
        }
        info!("reading the configuration again");
        self.engine.set.now = self.now;
        if let Some(new) = (self.reload)()
            && let Some(merged) = self.engine.reload(&self.config, new)
        {
            self.config = merged;
            for connection in self.connections.iter_mut().flatten() {
                frontend::refresh(&mut self.engine, connection);
            }
        }
        self.run_errands();
    }

    /// Whether everything in flight has ended and been told.
    pub(super) fn is_drained(&mut self) -> bool {
        if self.engine.outstanding() > 0 || !self.engine.close_logs() {
            return false;
        }
        if !std::mem::replace(&mut self.announced, true) {
            for connection in self.connections.iter_mut().flatten() {
                frontend::iscsi::session::take_leave(&mut self.engine, connection);
            }
            self.run_errands();
            for index in std::mem::take(&mut self.dirty) {
                self.write(index);
            }
        }
        self.connections.iter_mut().flatten().all(|connection| connection.has_told_all())
    }
}
