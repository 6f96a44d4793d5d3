//! Writes whose session was lost: who confirms that it is dead to the target.
//!
//! The path's own next session does, as soon as it is let in, since it has the same name. While the portal
//! cannot be reached, a short session of that name on another portal of the same group does it (RFC
//! 7143, 6.3.5). Where no portal is of the same group, the unit is reset over another path, which ends
//! what every session has under way there; so all of them begin anew.

use super::network::Network;
use super::path::{HELP_EVERY, Link, RESET_EVERY};
use super::session::{self, Around, Loss, PATH_FAILED, Session, SessionEvent};
use super::{FIRST_TOKEN, Upstreams};
use mio::Token;
use tracing::{info, warn};

impl<N: Network> Upstreams<N> {
    /// The target has confirmed that the old session of a path is dead: what it had under way may be done
    /// elsewhere.
    pub(super) fn confirm(&mut self, index: usize) {
        self.drop_helper(index);
        let path = &mut self.paths[index];
        let held = std::mem::take(&mut path.fence.held);
        if held.is_empty() {
            return;
        }
        let (writes, waited) = (held.len(), self.now.saturating_since(path.fence.since));
        info!(upstream = path.who, writes, %waited, "the old session is dead to the target");
        for flight in held {
            self.end(session::ended(flight, PATH_FAILED));
        }
    }

    fn drop_helper(&mut self, index: usize) {
        if let Some((mut session, _)) = self.paths[index].fence.helper.take() {
            self.network.forget(&mut session.stream);
        }
    }

    /// Does what is due for the writes of a lost session.
    pub(super) fn tick_fence(&mut self, index: usize) {
        let now = self.now;
        let fence = &mut self.paths[index].fence;
        if fence.held.is_empty() {
            return;
        }
        if fence.helper.as_ref().is_some_and(|&(_, by)| by <= now) {
            self.drop_helper(index);
            self.paths[index].fence.next = now;
        }
        let fence = &self.paths[index].fence;
        if fence.helper.is_none() && fence.next <= now {
            self.ask_another_portal(index);
        }
        if self.paths[index].fence.reset_at <= now {
            self.paths[index].fence.reset_at = now + RESET_EVERY;
            if self.others(index).is_empty() || self.paths[index].fence.tries >= HELPERS_MAX {
                self.reset_unit(index);
            }
        }
    }

    /// Paths that work and whose portal is of the same group.
    fn others(&self, index: usize) -> Vec<usize> {
        let path = &self.paths[index];
        let same = |other: &usize| {
            let one = &self.paths[*other];
            *other != index
                && one.upstream == path.upstream
                && one.is_ready()
                && one.group.is_some()
                && one.group == path.group
        };
        (0..self.paths.len()).filter(same).collect()
    }

    fn ask_another_portal(&mut self, index: usize) {
        let now = self.now;
        let others = self.others(index);
        let fence = &mut self.paths[index].fence;
        fence.next = now + HELP_EVERY;
        if others.is_empty() {
            return;
        }
        let other = others[fence.tries as usize % others.len()];
        fence.tries += 1;
        let by = now + self.all[self.paths[index].upstream].config.login_timeout;
        let portal = self.paths[other].portal;
        match self.open(index, portal, Token(FIRST_TOKEN + 2 * index + 1)) {
            Ok(session) => self.paths[index].fence.helper = Some((session, by)),
            Err(error) => {
                warn!(upstream = self.paths[index].who, %portal, %error, "cannot connect to another portal");
            }
        }
    }

    /// Something has happened at the socket of a session on another portal.
    pub(super) fn helper_event(&mut self, index: usize, readable: bool, writable: bool) {
        let mut told = Vec::new();
        let path = &mut self.paths[index];
        let upstream = &mut self.all[path.upstream];
        let Some((session, _)) = &mut path.fence.helper else { return };
        let mut around = Around {
            terms: &mut upstream.terms,
            owner: &mut upstream.owner,
            told: &mut told,
            errors: &mut upstream.errors,
            who: &path.who,
            now: self.now,
        };
        let result = Self::help(session, &mut around, readable, writable);
        if around.told.iter().any(|one| matches!(one, SessionEvent::LoggedIn(_))) {
            session.log_out();
            // The session has done what it was for; what becomes of it does not matter.
            drop(session.write(&mut around));
            self.confirm(index);
        } else if let Err(loss) = result {
            warn!(upstream = path.who, reason = %loss, "another portal does not confirm the end of the session");
            self.drop_helper(index);
        }
    }

    fn help(
        session: &mut Session<N::Stream>,
        around: &mut Around<'_>,
        readable: bool,
        writable: bool,
    ) -> Result<(), Loss> {
        if writable {
            session.writable(around)?;
        }
        while readable && session.read(around)? {}
        session.write(around)
    }

    /// Has the unit reset over another path.
    fn reset_unit(&mut self, index: usize) {
        let upstream = self.paths[index].upstream;
        let works = |other: &usize| {
            *other != index
                && self.paths[*other].upstream == upstream
                && self.paths[*other].is_ready()
        };
        let Some(other) = (0..self.paths.len()).find(works) else { return };
        warn!(
            upstream = self.paths[index].who,
            over = self.paths[other].who,
            "no portal of the same group confirms that the old session is dead: the unit is reset"
        );
        let since = self.with(other, |session, around| Ok(session.reset_unit(around.now)));
        if since.flatten().is_some_and(|since| since + RESET_EVERY <= self.now) {
            self.not_reset(other, "no answer");
        }
    }

    /// What a path was asked for did not happen: said once for its upstream, as it does not end by itself.
    pub(super) fn not_reset(&mut self, index: usize, answer: &str) {
        let path = &self.paths[index];
        let said = std::mem::replace(&mut self.all[path.upstream].not_reset, true);
        if !said {
            warn!(
                upstream = path.who,
                answer,
                "the target does not reset the unit: writes of a lost session wait until its own portal \
                 lets the gateway in again"
            );
        }
    }

    /// The unit was reset: nothing that any session had under way is any more.
    pub(super) fn unit_was_reset(&mut self, upstream: usize) {
        let concerned: Vec<usize> =
            (0..self.paths.len()).filter(|&index| self.paths[index].upstream == upstream).collect();
        for &index in &concerned {
            if matches!(&self.paths[index].link, Link::Up(session, _) if session.is_ready()) {
                self.lose(index, &Loss::Reset);
            }
        }
        for index in concerned {
            self.confirm(index);
        }
    }
}

/// How many sessions on other portals are tried before the unit is reset all the same.
const HELPERS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::super::session::Stage;
    use super::super::testing::{logged, remotes};
    use super::*;
    use weir_wire::iscsi::initiator::TmfResponse;

    const LINE: &str = "the target does not reset the unit: writes of a lost session wait";

    fn lines(logged: &[String], answer: &str) -> usize {
        logged.iter().filter(|line| line.contains(LINE) && line.contains(answer)).count()
    }

    /// A target that refuses to reset its unit is told of once, with what follows from it.
    #[test]
    fn a_refused_reset_is_told() {
        let (_portal, mut remotes) = remotes(2);
        let logged = logged(|| {
            for _ in 0..3 {
                remotes
                    .take(1, SessionEvent::NotReset(TmfResponse::NotSupported))
                    .expect("it goes on");
            }
        });
        assert_eq!(lines(&logged, "answer=\"NotSupported\""), 1, "{logged:?}");
    }

    /// So is one that does not answer before the unit would be reset again.
    #[test]
    fn an_unanswered_reset_is_told() {
        let (_portal, mut remotes) = remotes(2);
        remotes.begin(1);
        remotes.paths[1].session().expect("it was begun").stage = Stage::Ready;
        let asked = logged(|| {
            remotes.reset_unit(0);
            remotes.now += HELP_EVERY;
            // Another path's writes may ask for the same.
            remotes.reset_unit(0);
        });
        assert_eq!(lines(&asked, ""), 0, "{asked:?}");
        let late = logged(|| {
            for _ in 0..2 {
                remotes.now += RESET_EVERY;
                remotes.reset_unit(0);
            }
        });
        assert_eq!(lines(&late, "no answer"), 1, "{late:?}");
    }
}
