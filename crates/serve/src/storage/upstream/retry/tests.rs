//! When paths connect again.

use super::super::Upstreams;
use super::super::network::Tcp;
use super::super::path::Link;
use super::super::session::SessionEvent;
use super::super::testing::{upstream, upstreams};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// When the next attempt of a path is, or when a session must be usable.
fn due(upstreams: &Upstreams<Tcp>, path: usize) -> Instant {
    match upstreams.all[0].paths[path].link {
        Link::Down(at) => at,
        Link::Up(_, by) => by,
    }
}

/// Fails a path until its waits grow no more; the time until its next attempt.
fn worn(upstreams: &mut Upstreams<Tcp>, path: usize) -> Duration {
    let now = upstreams.context.now;
    for _ in 0..20 {
        upstreams.all[0].paths[path].attempts.started = now;
        upstreams.all[0].paths.connect_later(&mut upstreams.context, path, &Loss::LoggedOut);
    }
    due(upstreams, path).since(now)
}

/// The wait doubles up to its bound, is never longer, and is spread by jitter.
#[test]
fn tries_are_spread() {
    let mut config = upstream(1, "192.0.2.1:3260".parse().unwrap());
    let most = Duration::from_secs(2);
    config.reconnect_interval_max = most;
    let pace = Pace::new(&config, true);
    let mut jitter = Rng::stream(1, "tries");
    let mut attempts = Attempts { failed: 0, ..Attempts::new() };
    assert_eq!(attempts.wait(pace, &mut jitter), Duration::ZERO);
    attempts.failed = 3;
    let waits: Vec<_> = (0..100).map(|_| attempts.wait(pace, &mut jitter).as_nanos()).collect();
    let (least, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!((150_000_000..170_000_000).contains(least), "{least}");
    assert!((230_000_000..=250_000_000).contains(longest), "{longest}");
    attempts.failed = u32::MAX;
    let waits: Vec<_> = (0..100).map(|_| attempts.wait(pace, &mut jitter)).collect();
    assert!(waits.iter().all(|&wait| wait * 2 > most && wait <= most));
    assert!(waits.iter().filter(|&&wait| wait * 10 > most * 9).count() < 50, "no crowd");
}

/// While no path of an upstream works each is tried every second, and not all at once; while one works, the
/// others are tried less often; when it is lost as well, they are tried every second again.
#[test]
fn without_a_path_each_is_tried_every_second() {
    let (_portal, mut upstreams) = upstreams(2);
    let waits: Vec<_> = (0..100).map(|_| worn(&mut upstreams, 0)).collect();
    assert!(waits.iter().all(|&wait| wait <= SECOND && wait * 2 > SECOND), "{waits:?}");
    assert!(waits.iter().max() > waits.iter().min(), "jitter spreads them");
    upstreams.all[0].paths[1].reported_up = true;
    let wait = worn(&mut upstreams, 0);
    assert!(wait > SECOND * 2, "{wait}");
    upstreams.all[0].paths.report_down(&mut upstreams.context, 1);
    let wait = due(&upstreams, 0).since(upstreams.context.now);
    assert!(wait <= SECOND, "{wait}");
}

/// An upstream with many paths is not tried more often for that.
#[test]
fn many_paths_are_no_storm() {
    let (_portal, mut upstreams) = upstreams(64);
    let waits: Vec<_> = (0..64).map(|path| worn(&mut upstreams, path)).collect();
    let second = |wait: &Duration| wait.as_nanos() as f64 / 1e9;
    let tries: f64 = waits.iter().map(|wait| 1.0 / second(wait)).sum();
    assert!(tries < 18.0, "{tries} tries a second");
}

/// A connection that is not accepted is given up after a second while no path works, and the next attempt follows
/// at once; one that is established has the whole time of a login.
#[test]
fn an_untaken_connection_is_one_try() {
    let (_portal, mut upstreams) = upstreams(2);
    worn(&mut upstreams, 0);
    let began = due(&upstreams, 0);
    let Upstreams { all, context, .. } = &mut upstreams;
    context.now = began;
    all[0].begin(context, 0);
    assert_eq!(due(&upstreams, 0), began + SECOND);
    let Upstreams { all, context, .. } = &mut upstreams;
    context.now = began + SECOND;
    all[0].tick_path(context, 0);
    assert!(matches!(all[0].paths[0].link, Link::Down(at) if at == context.now));
    all[0].begin(context, 0);
    all[0].session_event(context, 0, SessionEvent::Connected).expect("the session stays");
    let now = context.now;
    assert_eq!(due(&upstreams, 0), now + SECOND * 3);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].paths[1].reported_up = true;
    all[0].begin(context, 0);
    assert_eq!(due(&upstreams, 0), now + SECOND * 3);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].paths.report_down(context, 1);
    assert_eq!(due(&upstreams, 0), now + SECOND);
}
