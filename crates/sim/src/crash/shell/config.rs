//! The configuration of the pipeline of a life, and the settings that reach its log.

use super::super::bug::Bug;
use super::super::content::SECTOR;
use super::super::plan::Plan;
use super::FRAMES;
use weir_flow::accept::{Cap, Layout, Volume};
use weir_flow::cache::writeback::{self, Mode, Order, Sync};
use weir_flow::cache::{evict, prefetch};
use weir_flow::clock::Duration;
use weir_flow::control;
use weir_flow::path;
use weir_flow::pipeline::{Backend, Config, Limits, Policies};
use weir_flow::policy::Choice;
use weir_flow::request::BackendId;

pub(super) fn config(plan: &Plan, bug: Option<Bug>) -> Config {
    let line = plan.line * SECTOR as u32;
    let volume = |layout| Volume {
        capacity: u64::from(plan.sectors) * SECTOR as u64,
        layout,
        max_transfer: u64::MAX,
        cap: Cap::default(),
    };
    let mut volumes = vec![volume(plan.stores.layout())];
    let mut backends = vec![Backend::alike(plan.paths); plan.stores.count() as usize];
    let mut logs = vec![Some(log_settings(plan, bug))];
    if plan.copies > 0 {
        volumes.push(volume(Layout::One(BackendId::new(backends.len() as u32))));
        backends.push(Backend::alike(1));
        logs.push(None);
    }
    Config {
        volumes,
        backends,
        promises: control::Promises::default(),
        shares: weir_flow::dispatch::Shares::default(),
        // However long the link is gone: the answers to hosts then are not tested here.
        limits: Limits { no_path_timeout: Duration::from_secs(30 * 86_400), ..Limits::default() },
        paths: path::Settings::default(),
        cache: weir_flow::cache::Settings {
            size: u64::from(FRAMES * line),
            line,
            owners: Vec::new(),
            logs,
        },
        policies: Policies {
            cache: named(evict::POLICIES, plan.evict),
            prefetch: named(prefetch::POLICIES, plan.prefetch),
            control: named(control::POLICIES, "open"),
            path: named(path::POLICIES, plan.selector),
            ..Policies::default()
        },
    }
}

/// The settings that reach the log.
fn log_settings(plan: &Plan, bug: Option<Bug>) -> writeback::Settings {
    let settings = plan.settings;
    let before = plan.before.unwrap_or(settings);
    match bug {
        Some(Bug::SyncNotPassed) => writeback::Settings { sync: Sync::Local, ..settings },
        Some(Bug::ModeNotPassed) => writeback::Settings { mode: Mode::Ram, ..settings },
        Some(Bug::OrderNotPassed) => writeback::Settings { order: Order::Flush, ..settings },
        Some(Bug::CacheTakenForOff) => writeback::Settings { upstream_flush: false, ..settings },
        Some(Bug::OldModeKept) => {
            writeback::Settings { mode: before.mode, sync: before.sync, ..settings }
        }
        Some(Bug::OldOrderKept) => writeback::Settings { order: before.order, ..settings },
        _ => settings,
    }
}

fn named<B>(policies: &'static [weir_flow::policy::Policy<B>], name: &str) -> Choice<B> {
    Choice::named(policies, name).expect("it is among the policies")
}
