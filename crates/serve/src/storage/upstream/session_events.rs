//! What follows from what happens on a session, up to its end.

use super::flight::Terms;
use super::network::Network;
use super::path::{GOOD_AFTER, LOOK_EVERY, Link};
use super::probe::Facts;
use super::session::{self, Loss, PATH_FAILED, SessionEvent};
use super::{Farewell, StorageDone, Upstreams};
use tracing::info;
use weir_flow::path::Access;
use weir_flow::pipeline::Input;
use weir_flow::units::ByteCount;

impl<N: Network> Upstreams<N> {
    /// What follows from what a session tells.
    pub(super) fn take(&mut self, index: usize, told: SessionEvent) -> Result<(), Loss> {
        let (upstream, id) = (self.paths[index].upstream, self.paths[index].id);
        let backend = self.backend(upstream);
        match told {
            SessionEvent::Ended(ended) => self.end(ended),
            SessionEvent::Connected => self.connected(index),
            SessionEvent::LoggedIn(group) => {
                self.paths[index].group = group;
                self.confirm(index);
            }
            SessionEvent::Looked(facts) => self.looked(index, *facts)?,
            SessionEvent::Claimed => self.claimed(index),
            SessionEvent::Owner(holder) => self.owner_told(upstream, holder),
            SessionEvent::Cleared => self.all[upstream].release = Farewell::Done(Ok(())),
            SessionEvent::Refreshed(facts) => {
                let access = facts.access;
                self.compare(index, &facts)?;
                self.accessible(index, access);
            }
            SessionEvent::Access(access) => self.accessible(index, access),
            SessionEvent::Sign => self.input(Input::Checked(backend, id)),
            SessionEvent::Reset => self.unit_was_reset(upstream),
            SessionEvent::NotReset(response) => self.not_reset(index, &format!("{response:?}")),
            SessionEvent::Flushed(result) => {
                self.all[upstream].farewell = Farewell::Done(result);
            }
            SessionEvent::Leave => self.leave(index),
        }
        Ok(())
    }

    /// A new session has looked at the unit: it is of use if that is the one that it should be.
    fn looked(&mut self, index: usize, facts: Facts) -> Result<(), Loss> {
        // Before anything is refused: a session that is of no use was not good since the last that was.
        self.paths[index].ready_since = self.now;
        self.compare(index, &facts)?;
        let access = facts.access;
        let upstream = self.paths[index].upstream;
        let terms = &mut self.all[upstream].terms;
        let who = &self.paths[index].who;
        if terms.is_none() {
            let size = ByteCount(facts.capacity());
            let Facts { block_size, ref product, write_cache, fua, .. } = facts;
            info!(upstream = who, product, %size, block_size, write_cache, fua, "unit");
            *terms = Some(Terms::new(facts));
        }
        let path = &mut self.paths[index];
        if self.all[upstream].owner.is_some() {
            path.access = access;
            self.claim_on(index);
            return Ok(());
        }
        info!(upstream = path.who, %access, "path is ready");
        path.failure = None;
        self.accessible(index, access);
        Ok(())
    }

    /// Whether a session leads to the unit that the others lead to; a unit may have grown meanwhile.
    fn compare(&mut self, index: usize, facts: &Facts) -> Result<(), Loss> {
        let upstream = self.paths[index].upstream;
        let Some(terms) = &mut self.all[upstream].terms else { return Ok(()) };
        let known = &mut terms.facts;
        let name = |facts: &Facts| {
            facts.identity.as_ref().map_or_else(|| String::from("no name"), ToString::to_string)
        };
        let different = |what, here: String, there: String| {
            Err(Loss::Different(format!("its {what} is {here}, on the other paths it is {there}")))
        };
        if known.identity != facts.identity {
            return different("name", name(facts), name(known));
        }
        if known.block_size != facts.block_size {
            let sizes = (facts.block_size.to_string(), known.block_size.to_string());
            return different("block size", sizes.0, sizes.1);
        }
        if facts.blocks < known.blocks || facts.blocks > known.blocks && facts.identity.is_none() {
            let sizes = (facts.blocks.to_string(), known.blocks.to_string());
            return different("number of blocks", sizes.0, sizes.1);
        }
        if facts.blocks > known.blocks {
            known.blocks = facts.blocks;
            let capacity = facts.capacity();
            self.done.push(StorageDone::Resized(upstream, capacity));
        }
        Ok(())
    }

    /// The target says how a path may be used.
    pub(super) fn accessible(&mut self, index: usize, access: Access) {
        let now = self.now;
        let path = &mut self.paths[index];
        if path.access != access {
            info!(upstream = path.who, %access, "the target reports the ALUA state of the path");
        }
        (path.access, path.look_at) = (access, now + LOOK_EVERY);
        let (upstream, id) = (path.upstream, path.id);
        let up = access.is_accessible()
            && path.is_ready()
            && !std::mem::replace(&mut path.told_up, true);
        if !access.is_accessible() {
            // What was refused there is told as the path's failure, so that it is to be told repaired.
            self.tell_down(index);
        }
        // Before the repair: a path that is repaired and may not yet be used would change twice.
        self.input(Input::PathAccess(self.backend(upstream), id, access));
        if up {
            self.input(Input::PathUp(self.backend(upstream), id));
        }
    }

    /// The target asks to be left: nothing new is begun on the path, and what is under way ends.
    fn leave(&mut self, index: usize) {
        let within = self.all[self.paths[index].upstream].config.login_timeout;
        let path = &mut self.paths[index];
        info!(upstream = path.who, "the target requests a logout");
        path.leaves = true;
        if let Link::Up(_, by) = &mut path.link {
            *by = self.now + within;
        }
        self.tell_down(index);
    }

    pub(super) fn leave_if_idle(&mut self, index: usize) {
        let path = &mut self.paths[index];
        if !path.leaves {
            return;
        }
        if let Link::Up(session, _) = &mut path.link
            && session.is_ready()
            && session.is_idle()
        {
            session.log_out();
            self.dirty.push(index);
        }
    }

    /// Tells the data path that a path does not work, if that is news.
    pub(super) fn tell_down(&mut self, index: usize) {
        let path = &mut self.paths[index];
        if std::mem::replace(&mut path.told_up, false) {
            let (upstream, id) = (path.upstream, path.id);
            self.input(Input::PathDown(self.backend(upstream), id));
            self.hurry(upstream);
        }
    }

    /// A session is over.
    pub(super) fn lose(&mut self, index: usize, loss: &Loss) {
        let now = self.now;
        let old = std::mem::replace(&mut self.paths[index].link, Link::Down(now));
        let Link::Up(mut session, _) = old else {
            self.paths[index].link = old;
            return;
        };
        self.tell_down(index);
        self.network.forget(&mut session.stream);
        let upstream = &mut self.all[self.paths[index].upstream];
        for asked in [&mut upstream.farewell, &mut upstream.release] {
            if *asked == Farewell::Asked(index) {
                *asked = Farewell::Wanted;
            }
        }
        let was_good =
            session.is_ready() && now.saturating_since(self.paths[index].ready_since) >= GOOD_AFTER;
        if was_good {
            self.paths[index].tries = 0;
        }
        let remains = session.bury(matches!(loss, Loss::GivenUp | Loss::Late(_)));
        for ended in remains.ended {
            self.end(ended);
        }
        for flight in remains.dead {
            self.end(session::ended(flight, PATH_FAILED));
        }
        let unknown = remains.unknown.len();
        if unknown > 0 {
            info!(
                upstream = self.paths[index].who,
                unknown, "writes wait until the old session is known to be dead"
            );
        }
        self.paths[index].fence.hold(remains.unknown, now);
        self.failed(index, loss);
        if let Loss::Denied(denied) = loss {
            self.denied(self.paths[index].upstream, denied);
        }
    }
}
