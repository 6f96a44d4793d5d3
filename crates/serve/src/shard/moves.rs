//! Moves volumes between gateways: does what `weir_flow::site::Mover` decides, and tells it what happens.

use super::Gateway;
use super::kernel::Kernel;
use crate::config::{Config, Where};
use crate::operator::{Answer, Asker, MoveOrder, MoveStatus, Question, Refusal};
use crate::storage::upstream::Key;
use tracing::{info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::site::{Action, Event, Limits, Mover, Order, State};
use weir_wire::iscsi::target_role::Redirect;

/// The volumes that can be moved.
#[derive(Default)]
pub(crate) struct Moves {
    all: Vec<Move>,
}

/// A volume that can be moved.
struct Move {
    volume: usize,
    upstream: usize,
    target: usize,
    mover: Mover,
    /// Since when it is in its state.
    since: Instant,
    /// Where hosts find the volume, if this gateway has given it to another since its start.
    to: Option<String>,
    /// The log is used again when the move is given up: it was used when the move was ordered.
    resumes: bool,
    /// The last flush before the unit is given over has begun.
    flushing: bool,
    /// When it is looked next whether the log is drained, or whether requests have ended.
    look: Option<Instant>,
    /// How the last move ended, for operators.
    ended: String,
}

impl Moves {
    /// The movable volumes of this configuration. `is_away`: whether another gateway owns the unit of an upstream.
    pub(super) fn new(config: &Config, now: Instant, is_away: impl Fn(usize) -> bool) -> Self {
        let movable = config.volumes.iter().enumerate().filter(|(_, volume)| volume.movable);
        let one = |(volume, configured): (usize, &crate::config::Volume)| {
            let upstream = configured.stores.iter().find_map(|store| match store {
                Where::Upstream { index, .. } => Some(*index),
                _ => None,
            });
            let offers =
                |target: &crate::config::Target| target.luns.iter().any(|lun| lun.1 == volume);
            let (upstream, target) = (upstream?, config.targets.iter().position(offers)?);
            Some(Move {
                volume,
                upstream,
                target,
                mover: Mover::new(!is_away(upstream), Limits::default()),
                since: now,
                to: None,
                resumes: false,
                flushing: false,
                look: None,
                ended: String::new(),
            })
        };
        Self { all: movable.filter_map(one).collect() }
    }

    /// When there is something to do if no event comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = |one: &Move| [one.mover.deadline(), one.look].into_iter().flatten().min();
        self.all.iter().filter_map(due).min()
    }

    /// The movable volume on an upstream.
    fn on(&self, upstream: usize) -> Option<usize> {
        self.all.iter().position(|one| one.upstream == upstream)
    }

    fn of(&self, volume: usize) -> Option<usize> {
        self.all.iter().position(|one| one.volume == volume)
    }
}

impl Move {
    /// Whether hosts that log in are served.
    const fn serves(&self) -> bool {
        self.mover.starts()
    }

    const fn number(&self) -> u64 {
        match self.mover.state() {
            State::Draining { number, .. }
            | State::Freezing { number, .. }
            | State::Granted { number, .. }
            | State::Revoking { number }
            | State::Claiming { number, .. } => number,
            State::Owner | State::Standby | State::Fenced => 0,
        }
    }
}

impl<K: Kernel> Gateway<'_, K> {
    /// Has hosts served, sent elsewhere or asked to try again, by the state of each movable volume.
    pub(super) fn place_targets(&mut self) {
        for one in &self.moves.all {
            let redirect = |portal: &String| Redirect { portal: portal.clone(), permanent: false };
            let redirect =
                one.to.as_ref().filter(|_| one.mover.state() == State::Standby).map(redirect);
            let serves = one.serves() || one.mover.state() == State::Fenced;
            self.engine.catalog.place_target(one.target, redirect, serves);
        }
    }

    /// Does what is due.
    pub(super) fn tick_moves(&mut self) {
        for index in 0..self.moves.all.len() {
            let one = &mut self.moves.all[index];
            if one.mover.deadline().is_some_and(|at| at <= self.now) {
                self.moved(index, Event::Time);
            } else if one.look.is_some_and(|at| at <= self.now) {
                match one.mover.state() {
                    State::Draining { .. } => {
                        one.look = Some(self.now + DRAINED_EACH);
                        self.operators.ask(Question::Drained(one.volume));
                    }
                    State::Freezing { .. } => {
                        one.look = Some(self.now + QUIET_EACH);
                        self.look_for_quiet(index);
                    }
                    _ => one.look = None,
                }
            }
        }
    }

    /// The log of a volume that is to be moved is drained.
    pub(crate) fn drained(&mut self, volume: usize) {
        if let Some(index) = self.moves.of(volume) {
            self.moved(index, Event::Drained);
        }
    }

    /// The unit of an upstream is the gateway's.
    pub(super) fn unit_claimed(&mut self, upstream: usize) {
        if let Some(index) = self.moves.on(upstream) {
            self.moved(index, Event::Held);
        }
    }

    /// The unit of an upstream is another gateway's.
    pub(super) fn unit_left(&mut self, upstream: usize) {
        if let Some(index) = self.moves.on(upstream) {
            self.moved(index, Event::Other);
        }
    }

    /// Whether all that was begun has ended and was answered, and is durable at the home.
    fn look_for_quiet(&mut self, index: usize) {
        let Move { volume, target, upstream, flushing, .. } = self.moves.all[index];
        if !(flushing || self.engine.is_quiet(volume) && self.connections.have_answered(target)) {
            return;
        }
        self.moves.all[index].flushing = true;
        if self.storage.upstreams.flush_to_give(upstream, !flushing)
            && let Some(key) = self.storage.upstreams.give(upstream)
        {
            self.moved(index, Event::Quiet(key));
        }
    }

    /// Takes an event of a movable volume, and does what follows.
    fn moved(&mut self, index: usize, event: Event) {
        let one = &mut self.moves.all[index];
        let before = one.mover.state();
        let actions = one.mover.step(self.now, event);
        let after = one.mover.state();
        if before == after {
            return;
        }
        one.since = self.now;
        one.look = match after {
            State::Draining { .. } | State::Freezing { .. } => Some(self.now),
            _ => None,
        };
        let name = &self.config.volumes[one.volume].name;
        info!(volume = name, from = word(before), to = word(after), "move of a volume");
        for &action in actions {
            self.act(index, action, before);
        }
        self.place_targets();
    }

    fn act(&mut self, index: usize, action: Action, before: State) {
        let Move { volume, upstream, target, resumes, .. } = self.moves.all[index];
        let one = &mut self.moves.all[index];
        match action {
            Action::Drain => self.engine.drain(volume, true),
            Action::Resume => {
                one.ended = String::from(match before {
                    State::Draining { .. } => {
                        "given up: the log was not drained in time, or the move was cancelled"
                    }
                    State::Freezing { .. } => {
                        "given up: requests in flight did not end in time, or the move was cancelled"
                    }
                    _ => "given up: the next owner did not take the unit in time",
                });
                one.to = None;
                let (name, why) = (&self.config.volumes[volume].name, &one.ended);
                warn!(volume = name, why, "the volume stays here");
                if resumes {
                    self.engine.drain(volume, false);
                }
            }
            Action::Freeze => {
                one.flushing = false;
                self.connections.freeze(target);
            }
            Action::Thaw => self.connections.thaw(target),
            // The upstream reads the reservation often from the moment that the unit was given.
            Action::Watch => {}
            Action::Revoke => self.storage.upstreams.claim_again(upstream),
            Action::Claim => {
                if let State::Claiming { from, .. } = one.mover.state() {
                    self.storage.upstreams.claim_from(upstream, from);
                }
            }
            Action::Serve => {
                one.to = None;
                one.ended = String::from("taken over");
                self.engine.forget_cached(volume);
                self.engine.drain(volume, false);
            }
            Action::Leave => {
                one.ended = String::from("moved");
                self.engine.forget_cached(volume);
                self.place_targets();
                self.connections.send_away(&mut self.engine, self.now, target);
            }
            Action::Withdraw => {
                one.ended =
                    String::from("not taken over: the key that was given does not hold the unit");
            }
            Action::Fence => {
                one.ended = String::from("taken by another gateway without a move");
                // Hosts are to hear that the volume is unavailable.
                self.connections.thaw(target);
            }
        }
    }

    /// Carries out an order about a move. `passes`: new writes pass the log of the volume.
    pub(super) fn order_move(&mut self, client: Asker, order: MoveOrder, passes: bool) {
        let answer = self.take_order(order, passes).map(|status| Answer::Move(Box::new(status)));
        let answer = answer.unwrap_or_else(|refusal| (&refusal).into());
        self.operators.answer(self.now, client, answer);
    }

    fn take_order(&mut self, order: MoveOrder, passes: bool) -> Result<MoveStatus, Refusal> {
        let volume = order.volume();
        let name = || self.config.volumes[volume].name.clone();
        let index = self.moves.of(volume).ok_or_else(|| Refusal::NotMovable { volume: name() })?;
        let state = self.moves.all[index].mover.state();
        let busy = || Refusal::Moving { volume: name(), state: word(state) };
        match order {
            MoveOrder::Look { .. } => {}
            MoveOrder::Out { number, .. } if self.moves.all[index].number() == number => {}
            MoveOrder::Out { number, to, identity, within, .. } => {
                if state != State::Owner {
                    return Err(busy());
                }
                let here = self.unit_identity(volume);
                if here != identity {
                    return Err(Refusal::OtherUnit { volume: name(), here, there: identity });
                }
                let unit = &self.engine.catalog.volumes[volume].unit;
                if unit.reservations().registrants().next().is_some() {
                    return Err(Refusal::HostReservation { volume: name() });
                }
                info!(volume = name(), number, to, "order: move");
                let one = &mut self.moves.all[index];
                (one.to, one.resumes) = (Some(to), !passes);
                let order = Order { number, drain_within: within };
                self.moved(index, Event::Offer(order));
            }
            MoveOrder::In { number, .. } if self.moves.all[index].number() == number => {}
            MoveOrder::In { number, key, .. } => {
                if state != State::Standby {
                    return Err(busy());
                }
                info!(volume = name(), number, from = %Key(key), "order: take a volume over");
                self.moved(index, Event::Grant { number, key });
            }
            MoveOrder::Cancel { number, .. } => self.moved(index, Event::Cancel(number)),
        }
        Ok(self.move_status(index))
    }

    fn move_status(&self, index: usize) -> MoveStatus {
        let one = &self.moves.all[index];
        let portals = match &self.config.advertise[..] {
            [] => self.portals().unwrap_or_default().iter().map(ToString::to_string).collect(),
            advertised => advertised.to_vec(),
        };
        let key = match one.mover.state() {
            State::Granted { key, .. } => Some(Key(key).to_string()),
            _ => None,
        };
        MoveStatus {
            volume: self.config.volumes[one.volume].name.clone(),
            state: word(one.mover.state()).to_owned(),
            number: one.number(),
            key,
            age_ns: self.now.saturating_since(one.since).as_nanos(),
            to: one.to.clone(),
            portals,
            identity: self.unit_identity(one.volume),
            ended: one.ended.clone(),
        }
    }

    /// What must be equal at both gateways: the disk that hosts see, and the unit that it is on.
    fn unit_identity(&self, volume: usize) -> String {
        let disk = self.engine.catalog.volumes[volume].unit.disk();
        let moves = self.moves.of(volume).map(|index| self.moves.all[index].upstream);
        let upstream = moves.map(|upstream| &self.config.upstreams[upstream]);
        let unit = moves.and_then(|upstream| self.storage.upstreams.unit_name(upstream));
        let place =
            upstream.map(|one| format!("{} LUN {}", one.target, one.lun)).unwrap_or_default();
        format!(
            "disk {} of {} blocks of {} bytes on {place}, unit {}",
            disk.serial,
            disk.blocks,
            disk.block_size,
            unit.as_deref().unwrap_or("without a name")
        )
    }
}

const fn word(state: State) -> &'static str {
    match state {
        State::Owner => "owner",
        State::Draining { .. } => "draining",
        State::Freezing { .. } => "freezing",
        State::Granted { .. } => "granted",
        State::Revoking { .. } => "revoking",
        State::Standby => "standby",
        State::Claiming { .. } => "claiming",
        State::Fenced => "fenced",
    }
}

/// How often it is looked whether a log is drained.
const DRAINED_EACH: Duration = Duration::from_millis(10);

/// How often it is looked whether requests have ended.
const QUIET_EACH: Duration = Duration::from_millis(1);
