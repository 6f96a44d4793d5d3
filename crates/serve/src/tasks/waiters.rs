//! Task management functions and commands that are answered when other tasks have ended.
//!
//! Invariant: a waiter counts the tasks that name it in `awaited_by`, and one more while tasks are being marked.

use crate::ids::{ConnectionId, ManagementKey, TaskKey};
use slotmap::SlotMap;
use weir_wire::iscsi::target_role::Itt;

/// What is answered when tasks have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    /// A task management function.
    Function {
        /// Its connection.
        connection: ConnectionId,
        /// Its name there.
        itt: Itt,
        /// The connection is closed when the function has been answered.
        closes: bool,
    },
    /// A command.
    Task(TaskKey),
}

/// The waiters, and how many tasks each of them waits for.
#[derive(Debug, Default)]
pub(crate) struct Waiters(SlotMap<ManagementKey, (Waiter, u32)>);

impl Waiters {
    /// A waiter whose tasks are about to be marked; one more [`one_less`](Self::one_less) than there are tasks
    /// ends it.
    pub(crate) fn add(&mut self, waiter: Waiter) -> ManagementKey {
        self.0.insert((waiter, 1))
    }

    /// Another task was marked.
    pub(crate) fn one_more(&mut self, key: ManagementKey) {
        self.0[key].1 += 1;
    }

    /// A task has ended, or the last one was marked. The waiter, if it waits for no other; `None` also if its
    /// connection is gone.
    pub(crate) fn one_less(&mut self, key: ManagementKey) -> Option<Waiter> {
        let (waiter, left) = self.0.get_mut(key)?;
        let waiter = *waiter;
        *left = left.checked_sub(1).expect("a waiter counts every task that it waits for");
        if *left > 0 {
            return None;
        }
        self.0.remove(key);
        Some(waiter)
    }

    /// Forgets the functions of a connection that is gone. Commands stay: their effects are done.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.0.retain(|_, (waiter, _)| match waiter {
            Waiter::Function { connection, .. } => *connection != id,
            Waiter::Task(_) => true,
        });
    }

    /// Whether nothing waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter is answered once, when all of its tasks have ended, and not while they are being marked.
    #[test]
    fn a_waiter_is_answered_once() {
        let mut waiters = Waiters::default();
        let task = TaskKey::default();
        let key = waiters.add(Waiter::Task(task));
        waiters.one_more(key);
        assert!(waiters.one_less(key).is_none(), "a task has ended while others are marked");
        assert!(matches!(waiters.one_less(key), Some(Waiter::Task(of)) if of == task));
        assert!(waiters.one_less(key).is_none(), "it was answered");
        let connection = ConnectionId { index: 0, serial: 1 };
        let itt = Itt(7);
        let key = waiters.add(Waiter::Function { connection, itt, closes: false });
        waiters.forget(connection);
        assert!(waiters.one_less(key).is_none() && waiters.is_empty());
    }
}
