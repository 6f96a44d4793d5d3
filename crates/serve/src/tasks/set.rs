//! The commands of hosts that have not ended, and what they share: memory, quotas, sessions, messages.
//!
//! Invariant: a task is in `tasks` until [`TaskSet::finish`], which gives back all that was counted for
//! it: its buffers, its payload memory and its place in its tenant's quota.

use crate::ids::{ConnectionId, JobKey, ManagementKey, TaskKey};
use crate::link_hosts::LinkHosts;
use crate::peer_log::PeerLog;
use crate::tasks::ConnectionAction;
use crate::tasks::memory::{Held, PayloadMemory};
use crate::tasks::order::TaskOrder;
use crate::tasks::quota::TenantQuotas;
use crate::tasks::sessions::Sessions;
use crate::tasks::table::{Answer, Charge, End, Phase, Retries, Task, TaskKind, Tasks};
use crate::tasks::waiters::{Waiter, Waiters};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, TenantId};

/// The commands that have not ended, and what they share.
pub(crate) struct TaskSet {
    pub(crate) tasks: Tasks,
    /// Those that must not pass each other, until they enter the pipeline.
    pub(crate) order: TaskOrder,
    /// What is answered when several tasks have ended.
    pub(crate) waiters: Waiters,
    pub(crate) memory: PayloadMemory,
    /// How much of its bounds each tenant uses.
    pub(crate) quotas: TenantQuotas,
    pub(crate) sessions: Sessions,
    /// Messages to the pipeline, in order.
    pub(crate) inputs: VecDeque<Input>,
    /// Messages to the front ends, in order.
    pub(crate) actions: VecDeque<ConnectionAction>,
    /// Commands that were decided, by the time of their answers.
    pub(crate) delayed: BTreeSet<(Instant, TaskKey)>,
    /// Requests of NBD clients that were refused for want of room, to be tried again when a task ends.
    pub(crate) again: VecDeque<TaskKey>,
    /// A task has ended since room was looked for last.
    pub(crate) ended: bool,
    /// A store was given an operation since this was looked at last.
    pub(crate) submitted: bool,
    /// The time of the event that is handled.
    pub(crate) now: Instant,
    /// Log lines that hosts can cause.
    pub(crate) log: PeerLog,
    /// Whose the links are.
    pub(crate) hosts: LinkHosts,
    /// Requests that the pipeline takes at a time.
    pub(crate) max_requests: usize,
    /// The largest command window of a session.
    pub(crate) window_max: u32,
}

/// Where a command comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) connection: ConnectionId,
    /// The tenant that claims the host by its name.
    pub(crate) claim: Option<TenantId>,
    /// The connection's name for the command.
    pub(crate) name: u32,
    /// What is done if it finds no room.
    pub(crate) retries: Retries,
}

/// What the end of a request means for its command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// Other requests of it have not ended.
    Running,
    /// It was the last one. The command has more to do, or has failed.
    Last,
    /// It was the last one, and the command is done; the job that it is a step of.
    Over(Option<JobKey>),
}

impl TaskSet {
    /// No command yet.
    pub(crate) fn new(
        memory: PayloadMemory,
        quotas: TenantQuotas,
        max_requests: usize,
        window_max: u32,
    ) -> Self {
        Self {
            tasks: Tasks::with_key(),
            order: TaskOrder::default(),
            waiters: Waiters::default(),
            memory,
            quotas,
            sessions: Sessions::default(),
            inputs: VecDeque::new(),
            actions: VecDeque::new(),
            delayed: BTreeSet::new(),
            again: VecDeque::new(),
            ended: false,
            submitted: false,
            now: Instant::ZERO,
            log: PeerLog::default(),
            hosts: LinkHosts::default(),
            max_requests,
            window_max,
        }
    }

    /// Whether a connection may hold `more` bytes of payload memory.
    pub(crate) fn may_hold(&self, owner: u64, more: u64) -> bool {
        self.memory.may_hold(owner, more, self.sessions.count())
    }

    /// Takes a command in if there is memory for its payload. `tenant` is the one whose quota counts it.
    pub(crate) fn take_in(
        &mut self,
        origin: Origin,
        tenant: usize,
        held: Held,
        mut task: Task,
    ) -> Option<TaskKey> {
        let owner = origin.connection.serial;
        let bytes = held.payload();
        if !self.memory.try_charge(owner, bytes, self.sessions.count()) {
            return None;
        }
        let Some((data, medium)) = self.memory.take_both(held) else {
            self.memory.release(owner, bytes);
            return None;
        };
        task.connection = Some(origin.connection);
        task.claim = origin.claim;
        task.retries = origin.retries;
        task.name = origin.name;
        task.charge = Charge { owner, bytes, quota: None };
        (task.data, task.data_length, task.medium) = (data, held.data, medium);
        if matches!(task.kind, TaskKind::Media(_)) {
            task.charge.quota = Some((tenant, bytes));
            if self.quotas.enter(tenant, bytes) {
                self.actions.push_back(ConnectionAction::Share);
            }
        }
        Some(self.tasks.insert(task))
    }

    /// Counts more payload memory for a command that was taken in.
    pub(crate) fn charge(&mut self, key: TaskKey, bytes: u64) {
        let task = &mut self.tasks[key];
        task.charge.bytes += bytes;
        self.memory.charge(task.charge.owner, bytes);
    }

    /// Copies write data to its place; what lies past the end of the command is not wanted.
    pub(crate) fn keep(&mut self, key: TaskKey, offset: usize, bytes: &[u8]) {
        let task = &mut self.tasks[key];
        let length = (task.data_length as usize).saturating_sub(offset).min(bytes.len());
        if let Some(buffer) = &mut task.data {
            let memory = Rc::get_mut(buffer).expect("it has one owner until it is complete");
            if length > 0 {
                memory.bytes_mut()[offset..offset + length].copy_from_slice(&bytes[..length]);
            }
        }
    }

    /// Decides how a blocked command is answered.
    pub(crate) fn decide(&mut self, key: TaskKey, answer: Answer) {
        self.block(key, answer);
        self.actions.push_back(ConnectionAction::Answer(key));
    }

    /// Decides how a command is answered at a later time.
    pub(crate) fn decide_at(&mut self, at: Instant, key: TaskKey, answer: Answer) {
        self.block(key, answer);
        self.delayed.insert((at, key));
    }

    fn block(&mut self, key: TaskKey, answer: Answer) {
        let task = &mut self.tasks[key];
        task.phase = Phase::Blocked;
        task.answer = Some(answer);
    }

    /// When the next delayed answer leaves.
    pub(crate) fn next_answer(&self) -> Option<Instant> {
        self.delayed.first().map(|&(at, _)| at)
    }

    /// Has the delayed answers sent whose time has come.
    pub(crate) fn send_delayed(&mut self, now: Instant) {
        while self.next_answer().is_some_and(|at| at <= now)
            && let Some((_, key)) = self.delayed.pop_first()
        {
            self.actions.push_back(ConnectionAction::Answer(key));
        }
    }

    /// Forgets a command and counts it down at its waiters. Its buffers must not be in an outbox.
    pub(crate) fn finish(&mut self, key: TaskKey) {
        let task = self.tasks.remove(key).expect("a command ends once");
        let Charge { owner, bytes, quota } = task.charge;
        if let Some((tenant, payload)) = quota
            && let Some(id) = self.quotas.leave(tenant, payload)
        {
            self.actions.push_back(ConnectionAction::Feed(id));
        }
        self.memory.release(owner, bytes);
        assert!(!self.tasks.is_empty() || self.memory.is_unused(), "memory is held for tasks only");
        for buffer in [task.data, task.medium].into_iter().flatten() {
            self.memory.give(buffer);
        }
        if let Some(place) = task.order.place {
            self.order.leave(place);
        }
        for waiting in task.awaited_by {
            self.one_less(waiting);
        }
        self.ended = true;
        self.feed_next();
    }

    /// One of the tasks that a waiter waits for has ended.
    pub(crate) fn one_less(&mut self, key: ManagementKey) {
        match self.waiters.one_less(key) {
            None => {}
            Some(Waiter::Task(task)) => self.actions.push_back(ConnectionAction::Answer(task)),
            Some(Waiter::Function { connection, itt, closes }) => {
                self.actions.push_back(ConnectionAction::Managed(connection, itt));
                if closes {
                    self.actions.push_back(ConnectionAction::Close(connection, RESET));
                }
            }
        }
    }

    /// What the pipeline takes, shared equally by all sessions: no command window is larger.
    fn window(&self) -> u32 {
        let share = self.max_requests / self.sessions.count().max(1);
        self.window_max.min(share.max(1) as u32)
    }

    /// The command window of a session that sends commands for these tenants, if there were `more` sessions than are
    /// counted: its share of the requests that the pipeline takes, and of the quota of each of its tenants, so that
    /// a host meets its window before it meets a full task set.
    pub(crate) fn window_of(&self, tenants: impl Iterator<Item = usize>, more: u32) -> u32 {
        let share = tenants.map(|tenant| self.quotas.share(tenant, more)).min();
        self.window().min(share.unwrap_or(u32::MAX))
    }

    /// There may be memory for the connection that has waited longest for it.
    pub(crate) fn feed_next(&mut self) {
        if let Some(id) = self.memory.next_waiting() {
            self.actions.push_back(ConnectionAction::Feed(id));
        }
    }

    /// Forgets the commands that have not begun for want of data: nothing of them was promised or done.
    pub(crate) fn drop_gathering(&mut self) {
        let gathering: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.phase == Phase::Gathering)
            .map(|(key, _)| key)
            .collect();
        for key in gathering {
            self.finish(key);
        }
    }

    /// Whether one of these commands has waited longer than `limit` for its data.
    pub(crate) fn waits_in_vain(
        &self,
        mut keys: impl Iterator<Item = TaskKey>,
        limit: Duration,
    ) -> bool {
        keys.any(|key| {
            self.tasks.get(key).is_some_and(|task| {
                task.phase == Phase::Gathering && self.now.saturating_since(task.came) >= limit
            })
        })
    }

    /// The task of a connection by its key, unless it was aborted.
    pub(crate) fn live(&self, key: TaskKey, connection: ConnectionId) -> Option<TaskKey> {
        let task = self.tasks.get(key)?;
        (task.connection == Some(connection)).then_some(key)
    }

    /// The link of a command's connection, or the gateway's own.
    pub(crate) fn link(&self, key: TaskKey) -> LinkId {
        let connection = self.tasks.get(key).and_then(|task| task.connection);
        LinkId::new(connection.map_or(0, |id| id.index as u32))
    }

    /// A request of a command has ended.
    pub(crate) fn count_down(&mut self, key: TaskKey, how: End) -> Counted {
        let task = &mut self.tasks[key];
        let Phase::InPipeline { left, end } = &mut task.phase else {
            unreachable!("a command without requests has none that end")
        };
        *left = left.checked_sub(1).expect("a request ends once");
        *end = end.and(how);
        match (*left, *end) {
            (0, End::Good) if task.steps.rest.length == 0 => Counted::Over(task.job),
            (0, _) => Counted::Last,
            _ => Counted::Running,
        }
    }

    /// A connection is gone, with these commands. What they have in the pipeline runs to its end, without
    /// a reply.
    pub(crate) fn disconnected(&mut self, keys: impl Iterator<Item = TaskKey>) {
        for key in keys {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            match task.phase {
                Phase::Gathering => self.finish(key),
                Phase::InPipeline { .. } | Phase::Blocked => task.connection = None,
                Phase::Replying(request) => {
                    // The parts of the reply that were to leave never do.
                    let parts = task.reply.leaving.into_iter().chain(task.reply.behind.drain(..));
                    self.inputs.extend(parts.map(|bytes| Input::Sent { key: request, bytes }));
                    self.finish(key);
                }
            }
        }
    }
}

/// Why sessions end by a cold reset.
pub(super) const RESET: &str = "the target was reset";
