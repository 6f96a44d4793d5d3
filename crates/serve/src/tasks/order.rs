//! The order of commands whose data is still arriving: none passes an ORDERED command of its session, and an ORDERED
//! command passes none.
//!
//! The pipeline orders what it has: an ORDERED command there waits for every older one of the volume and holds back every
//! newer one. A write that waits for the data of an R2T is not there yet, so a newer ORDERED command that needs no data
//! would overtake it. SAM-5 section 8.6 counts the write as older from the moment that its CDB has arrived.
//!
//! So a command that must wait for data stands in a [line](Line) with the commands of its session for the same volume. The
//! line is as short as that: a command that has its data enters it only if the line has an ORDERED command, or if it is
//! one itself and the line has others. It leaves the line when it enters the pipeline, or when it is aborted.
//!
//! Ties: there are none; a session has one connection, which delivers one command after the other. HEAD OF QUEUE is not
//! offered (VPD page 86h) and counts as SIMPLE.
//!
//! Between sessions an ORDERED command is ordered with what has entered the pipeline, although the control mode page
//! reports one task set for all sessions: otherwise a host that withholds its data could stop every other host. A host
//! cannot know what another one has in flight unless that one has its status, and then it has left the pipeline.
//!
//! Cost: O(1) for a command that has its data while no line has an ORDERED command; O(older commands of the line) for
//! one that waits for data. A line has as many commands as the session's window allows.
//!
//! Invariant: a command is in a line exactly while its place is [`Some`], and then it has no request in the pipeline.

use crate::ids::{ConnectionId, TaskKey};
use std::collections::BTreeMap;

/// The commands of one session for one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId {
    pub(crate) connection: ConnectionId,
    /// Index of the volume.
    pub(crate) volume: usize,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: LineId,
    /// Older commands have smaller numbers.
    number: u64,
}

/// What a command is ordered by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// It has the ORDERED task attribute.
    pub(crate) ordered: bool,
    /// Its place, if it is in a line.
    pub(crate) place: Option<Place>,
}

/// The commands that have not entered the pipeline, by their order of arrival.
#[derive(Debug, Default)]
struct Line {
    commands: BTreeMap<u64, Unbegun>,
    /// How many of them are ORDERED.
    ordered: usize,
}

#[derive(Clone, Copy, Debug)]
struct Unbegun {
    task: TaskKey,
    ordered: bool,
    /// It has all its data.
    complete: bool,
}

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct TaskOrder {
    lines: BTreeMap<LineId, Line>,
    /// ORDERED commands in all lines.
    ordered: usize,
    /// The number of the next command.
    next: u64,
    /// Lines from which a command was taken that may have held back others.
    due: Vec<LineId>,
}

impl TaskOrder {
    /// Whether a command that is in no line, and has its data, may enter the pipeline at once.
    pub(crate) fn passes(&self, line: LineId, ordered: bool) -> bool {
        if self.ordered == 0 && !ordered {
            return true;
        }
        self.lines.get(&line).is_none_or(|line| line.ordered == 0 && !ordered)
    }

    /// Puts the newest command at the end of a line.
    pub(crate) fn enter(
        &mut self,
        line: LineId,
        task: TaskKey,
        ordered: bool,
        complete: bool,
    ) -> Place {
        let number = self.next;
        self.next += 1;
        self.ordered += usize::from(ordered);
        let of = self.lines.entry(line).or_default();
        of.ordered += usize::from(ordered);
        of.commands.insert(number, Unbegun { task, ordered, complete });
        Place { line, number }
    }

    /// The data of a command is complete.
    pub(crate) fn complete(&mut self, Place { line, number }: Place) {
        let of = self.lines.get_mut(&line).expect("a place is in a line");
        of.commands.get_mut(&number).expect("a command keeps its place").complete = true;
    }

    /// Takes the oldest command that may enter the pipeline out of a line.
    pub(crate) fn next_of(&mut self, line: LineId) -> Option<TaskKey> {
        let commands = &self.lines.get(&line)?.commands;
        let mut first = true;
        let mut ready = None;
        for (&number, command) in commands {
            if command.complete && (first || !command.ordered) {
                ready = Some((number, command.task));
            }
            if ready.is_some() || command.ordered {
                break;
            }
            first = false;
        }
        let (number, task) = ready?;
        self.remove(Place { line, number });
        Some(task)
    }

    /// A command ends before it has entered the pipeline.
    pub(crate) fn leave(&mut self, place: Place) {
        let holds = self.lines.get(&place.line).is_some_and(|line| line.ordered > 0);
        self.remove(place);
        if holds && self.due.last() != Some(&place.line) {
            self.due.push(place.line);
        }
    }

    fn remove(&mut self, Place { line, number }: Place) {
        let of = self.lines.get_mut(&line).expect("a place is in a line");
        let command = of.commands.remove(&number).expect("a command leaves its line once");
        of.ordered -= usize::from(command.ordered);
        self.ordered -= usize::from(command.ordered);
        if of.commands.is_empty() {
            self.lines.remove(&line);
        }
    }

    /// The lines in which commands may have become ready by the end of another one.
    pub(crate) fn take_due(&mut self) -> Vec<LineId> {
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;
    use weir_flow::rng::Rng;

    /// Commands of one line by their keys, and what the rule says of them.
    struct Command {
        key: TaskKey,
        ordered: bool,
        complete: bool,
        begun: bool,
        place: Option<Place>,
    }

    /// Against the rule itself, in 2000 random lives of a line: what has its data begins as soon as no older command
    /// that it must not pass is left, and never before; at the end nothing is left.
    #[test]
    fn no_command_passes_an_ordered_one() {
        let mut keys = SlotMap::with_key();
        let connection = ConnectionId { index: 0, serial: 1 };
        let line = LineId { connection, volume: 0 };
        for seed in 0..2000 {
            let mut rng = Rng::stream(seed, "order");
            let mut order = TaskOrder::default();
            let mut commands: Vec<Command> = Vec::new();
            let mut coming = 1 + rng.below(20);
            while coming > 0 || commands.iter().any(|command| !command.begun) {
                let open: Vec<usize> = (0..commands.len())
                    .filter(|&at| !commands[at].begun && !commands[at].complete)
                    .collect();
                let mut ended = Vec::new();
                if coming > 0 && (open.is_empty() || rng.below(2) == 0) {
                    coming -= 1;
                    let (key, ordered) = (keys.insert(()), rng.below(4) == 0);
                    let complete = rng.below(2) == 0;
                    let at_once = complete && order.passes(line, ordered);
                    let place = (!at_once).then(|| order.enter(line, key, ordered, complete));
                    if at_once {
                        ended.push(key);
                    }
                    commands.push(Command { key, ordered, complete, begun: false, place });
                } else if rng.below(4) == 0 {
                    // Aborted: as if it had never been.
                    let at = open[rng.below(open.len() as u64) as usize];
                    order.leave(commands.remove(at).place.expect("it stands in the line"));
                    for due in order.take_due() {
                        ended.extend(std::iter::from_fn(|| order.next_of(due)));
                    }
                } else {
                    let at = open[rng.below(open.len() as u64) as usize];
                    commands[at].complete = true;
                    order.complete(commands[at].place.expect("it stands in the line"));
                    ended.extend(std::iter::from_fn(|| order.next_of(line)));
                }
                for key in ended {
                    let at = commands.iter().position(|command| command.key == key);
                    commands[at.expect("it is not aborted")].begun = true;
                }
                // The rule: an older command is in the way if either of the two is ORDERED.
                for at in 0..commands.len() {
                    let (before, command) = (&commands[..at], &commands[at]);
                    let free = before.iter().all(|o| o.begun || !o.ordered && !command.ordered);
                    assert_eq!(command.begun, command.complete && free, "seed {seed}, {at}");
                }
            }
            assert!(order.lines.is_empty() && order.ordered == 0, "seed {seed}");
        }
    }

    /// The commands of another session, or for another volume, are in another line.
    #[test]
    fn lines_are_apart() {
        let mut keys: SlotMap<TaskKey, ()> = SlotMap::with_key();
        let mut order = TaskOrder::default();
        let connection = ConnectionId { index: 0, serial: 1 };
        let line = LineId { connection, volume: 0 };
        order.enter(line, keys.insert(()), true, false);
        assert!(!order.passes(line, false));
        assert!(order.passes(LineId { volume: 1, ..line }, true));
        let connection = ConnectionId { index: 0, serial: 2 };
        assert!(order.passes(LineId { connection, ..line }, true));
    }
}
