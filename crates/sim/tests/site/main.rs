//! Enumerates the planned move of a volume: two gateways with the machine that `weir serve` runs, in every order of
//! their steps, with orders and grants that are lost, late, repeated and out of order, and kills at every step.
//!
//! | law | from `site.md` |
//! |---|---|
//! | at most one gateway starts requests | R5, P2 |
//! | where requests start, a read sees everything that was acknowledged | R3, P1, P3 |
//! | an owner is not deprived of the volume, and no log is superseded: neither is a part of a planned move | P5 |
//! | from everywhere a gateway can become the owner again | P7 |
//!
//! Each planted bug must break one of them. There is one block, whose content is the number of the write.

mod bugs;
mod world;

use bugs::{Broken, Bug};
use std::collections::{BTreeMap, VecDeque};
use world::World;

/// What an enumeration has found.
#[derive(Debug)]
struct Found {
    states: usize,
    broken: Option<Broken>,
    /// The shortest order that leads to it.
    order: Vec<String>,
}

/// Visits every state that can be reached, and stops at the first that breaks a law.
fn enumerate(bug: Option<Bug>) -> Found {
    let first = World::new(bug);
    let mut known = BTreeMap::from([(first.code(), 0)]);
    let mut queue = VecDeque::from([(0, first.clone())]);
    // By state: those before it, the first of them first; the step that led here; whether there is an owner.
    let (mut before, mut lasts, mut alive) = (vec![Vec::new()], vec![first.last], vec![false]);
    let order = |mut at: usize, before: &[Vec<usize>], lasts: &[(usize, &str)]| {
        let mut order = Vec::new();
        while let Some(&earlier) = before[at].first() {
            order.push(format!("{} {}", lasts[at].0, lasts[at].1));
            at = earlier;
        }
        order.reverse();
        order
    };
    while let Some((index, world)) = queue.pop_front() {
        alive[index] = world.has_owner() || world.is_at_the_limit();
        for next in world.steps() {
            if let Err(broken) = next.check() {
                let mut order = order(index, &before, &lasts);
                order.push(format!("{} {}", next.last.0, next.last.1));
                return Found { states: known.len(), broken: Some(broken), order };
            }
            let fresh = known.len();
            let place = *known.entry(next.code()).or_insert(fresh);
            if place == fresh {
                before.push(vec![index]);
                lasts.push(next.last);
                alive.push(false);
                queue.push_back((place, next));
            } else if place > 0 {
                before[place].push(index);
            }
        }
    }
    let mut reached: Vec<usize> = (0..alive.len()).filter(|&index| alive[index]).collect();
    while let Some(index) = reached.pop() {
        for &from in &before[index] {
            if !std::mem::replace(&mut alive[from], true) {
                reached.push(from);
            }
        }
    }
    let dead = alive.iter().position(|&alive| !alive);
    let order = dead.map_or_else(Vec::new, |at| order(at, &before, &lasts));
    Found { states: known.len(), broken: dead.map(|_| Broken::NoOwnerAgain), order }
}

/// No law is broken in any order.
#[test]
fn a_planned_move_keeps_the_laws() {
    let found = enumerate(None);
    assert_eq!(found.broken, None, "{}", found.order.join(", "));
    // The enumeration reaches what it is for; fewer states would mean that something cannot happen any more.
    assert!(found.states > 20_000, "{found:?}");
}

/// Every planted bug breaks a law.
#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = enumerate(Some(bug));
        assert!(found.broken.is_some(), "{bug:?} breaks no law in {} states", found.states);
    }
}
