use super::*;

fn settings(states: u64, bug: Option<Bug>) -> Settings {
    Settings { seed: 1, states, bug, told: false }
}

/// Whatever is lost at whatever moment, no law is broken; every kind of loss is among what was tried, and
/// a third of the logs had something that was not upstream.
#[test]
fn no_crash_breaks_a_law() {
    let report = run(settings(110_000, None), &|_| ());
    assert!(report.violation.is_none(), "{:#?}", report.violation);
    assert!(report.states >= 110_000 && report.checked >= report.states, "{report:?}");
    // Updates wait until the log is upstream.
    assert!(report.dirty > report.checked / 3, "{report:?}");
    assert!(report.lives > report.workloads && report.rotten > 100, "{report:?}");
    for kind in &report.kinds {
        assert!(kind.log > 100 && kind.upstream > 100, "{kind:?}");
    }
    let seldom = SELDOM.map(Event::name);
    for event in report.events.iter().filter(|event| !seldom.contains(&event.event)) {
        assert!(event.count > 0, "this class is not generated: {event:?}");
    }
    let sum = |of: fn(&Kind) -> u64| report.kinds.iter().map(of).sum::<u64>();
    assert_eq!((sum(|kind| kind.log), sum(|kind| kind.upstream)), (report.states, report.states));
}

/// Plays a workload, in which no law is broken.
fn holds(plan: &Plan) -> End {
    let end = play(plan, None, false);
    assert!(end.fault.is_none(), "{}: {}", plan.seed, end.fault.unwrap().broken);
    end
}

/// What happens in less than one of a hundred workloads.
const SELDOM: [Event; 3] = [Event::LargeLogCopy, Event::LateWriteCleaned, Event::TakeOverCleaned];

/// A log is cleaned in batches of many copies, beside writes of a dead gateway that come late, and when another gateway has
/// taken the unit over; no law is broken.
#[test]
fn cleaning_meets_what_is_seldom() {
    let mut events = Events::default();
    for seed in [11, 26, 36, 68, 90, 106, 126, 195] {
        let end = holds(&Plan::with_cleaning(seed));
        events += end.events;
    }
    for event in SELDOM.into_iter().chain([Event::Tear, Event::Settings]) {
        assert!(events[event] > 0, "this does not happen: {}", event.name());
    }
}

/// Workloads in which small mistakes show: an answer that data is upstream before the log device knows (27, 168, 287), a
/// log that has failed and is closed with what only memory has (1886), a log that is passed by while what waited for it
/// stays behind (848, 2186, 3356). With each of them, made on purpose, these were seen to fail. In 8536 the judge held a
/// read of the first sectors of a recovered write against the loss of its last ones, which no host had seen.
#[test]
fn what_was_found_stays_mended() {
    for seed in [27, 168, 287, 848, 1886, 2186, 3356, 8536] {
        holds(&Plan::plain(seed));
    }
}

/// Workloads in which laws were broken once. Defects of the log: a segment header that is in the place of another one, too,
/// hid the batches behind the right one (192); a crash that kept only later batches of a segment let damage before them look
/// like the torn end of the log (252); a write that failed in a log without another place was never answered (13107). In the
/// others the judge was too strict.
#[test]
fn what_enumeration_found_stays_mended() {
    for seed in [192, 227, 252, 341, 972, 3711, 4682, 6192, 9163, 11250, 12293, 13107] {
        // As they were drawn when there were no such resets and losses.
        let plan = Plan { unit_resets: 0, deferred: 0, ..Plan::crossing(seed) };
        holds(&plan);
    }
}

/// Workloads with updates in which laws were broken once. A write that was partly in the log when one of its records was
/// given up took that out of the quarantine (8). A rotten header brought older records back over an update (22, 80).
#[test]
fn what_updates_found_stays_mended() {
    for seed in [8, 22, 80] {
        let mut plan = Plan::crossing(seed);
        plan.updating();
        if seed == 8 {
            plan.decays(3);
        }
        holds(&plan);
    }
}

/// Workloads in which copies, torn sectors and several stores met a broken law. A write past the log that the unit had done
/// before it was reset, and whose answer came on another path after the report of the reset, was lost, and acknowledged
/// (1004). In the others the judge took the order in which two stores begin for that of the log (2070), and a part of a copy
/// that was answered, and lost with the cache of the unit, for one that is still to come (645).
#[test]
fn what_copies_tears_and_stores_found_stays_mended() {
    for seed in [645, 1004, 2070] {
        holds(&Plan::without_cleaning(seed));
    }
}

/// Among what is tried are all that a log goes through, and all that may befall it.
#[test]
fn everything_happens() {
    let stories: Vec<_> =
        (1..=120).flat_map(|seed| play(&Plan::new(seed), None, true).story).collect();
    for what in [
        "Through(Asked)",
        "Through(Failed)",
        "Resumed",
        "LogFailed",
        "it is remembered that the log is void",
        "the gateway has stopped",
        "path 0 to the upstream is gone",
        "path 2 to the upstream is back",
        "the upstream executes a write of a lost session",
        "another portal ends the lost session of path 1",
        "the unit is reset over path 1",
        "the unit is claimed, which ends the writes of earlier lives",
        "another gateway takes the unit over and writes",
        "the upstream answers RESERVATION CONFLICT",
        "the gateway finds that another one owns the unit",
        "has no space",
        "a read is abandoned",
        "the upstream loses its cache",
        "the unit is reset, and all sessions stay",
        "the unit has lost a write that it had acknowledged",
        "is answered: Err(Medium)",
        "recovery finds the first",
        "recovery finds what a disk may have",
        "is answered: Err(Busy)",
        "upstream Read of",
        "upstream WriteZeroes of",
        "upstream Discard of",
    ] {
        let count = stories.iter().filter(|line| line.contains(what)).count();
        assert!(count > 0, "{what}: {count}");
    }
}

/// Each mistake has a name, and is found by it. `weir crash --bugs` shows that each is noticed.
#[test]
fn mistakes_have_names() {
    for bug in Bug::ALL {
        assert_eq!(Bug::named(bug.name()), Some(bug));
    }
}

/// A mistake against another gateway is noticed by the law that is about it, and one about rot by that.
#[test]
fn laws_notice_what_they_are_about() {
    for (bug, law) in [
        (Bug::PreemptWithoutAbort, "owner"),
        (Bug::RegisteredAgain, "owner"),
        (Bug::StaleLogTakesOver, "owner"),
        (Bug::ReleasedUnitTakenBack, "owner"),
        (Bug::DamageCutOff, "rot"),
        (Bug::RottenPayloadServed, "rot"),
        (Bug::HeldWritesForgotten, "progress"),
        (Bug::AtomicRecordForgotten, "atomic"),
        (Bug::ForgottenUnitTaken, "owner"),
        (Bug::CopyForwards, "copy"),
        (Bug::CopyFailureHidden, "copy"),
        (Bug::SupersAtOnce, "recovery"),
        (Bug::CopiesForgotten, "prefix"),
        (Bug::CopyTakenForWrite, "prefix"),
    ] {
        let report = run(settings(1_000_000, Some(bug)), &|_| ());
        assert_eq!(report.violation.map(|violation| violation.law), Some(law), "{}", bug.name());
    }
}

/// The same seed makes the same crashes, another one others.
#[test]
fn runs_repeat() {
    let told = |seed| format!("{:?}", run(Settings { seed, ..settings(2_000, None) }, &|_| ()));
    let first = told(1);
    assert_eq!(first, told(1));
    assert_ne!(first, told(100));
}

/// A violation is reported with few requests, and the seed in the report reproduces it.
#[test]
fn stories_are_short_and_repeat() {
    let told = Settings { told: true, ..settings(100_000, Some(Bug::FuaIgnored)) };
    let violation = run(told, &|_| ()).violation.unwrap();
    assert!(
        violation.requests.1 < violation.requests.0 && violation.requests.1 <= 8,
        "{violation:?}"
    );
    assert!(violation.crash.is_some() && !violation.what.is_empty());
    let requests = violation.story.iter().filter(|line| line.contains(" of host "));
    assert!((1..=violation.requests.1).contains(&requests.count()), "{violation:?}");
    let again = run(Settings { seed: violation.seed, ..told }, &|_| ());
    assert_eq!(again.workloads, 1);
    assert_eq!(again.violation.unwrap().story, violation.story);
}

/// Workloads with cleaning in which laws were broken once. A segment was given up when what had superseded its data was
/// written and not durable (114). The judge took what is rotten in part for rotten in whole (99).
#[test]
fn what_cleaning_found_stays_mended() {
    for seed in [99, 114] {
        // As they were drawn when the class had no torn sectors and no other settings.
        let plan = Plan { tears: false, changes: false, ..Plan::new(seed) };
        holds(&plan);
    }
}

/// Workloads of long runs in which laws were broken, each by the model or the judge. A step of an update was executed after
/// another gateway had taken the unit over (20060). What an OR leaves was told from what its host had seen, although the
/// upstream had lost that since (60114). A host was one that writes when it had asked for a copy and written nothing (80218).
#[test]
fn what_long_runs_found_stays_mended() {
    for seed in [20060, 60114, 80218] {
        holds(&Plan::new(seed));
    }
}

/// Workloads of long runs in which the log was wrong. After a crash that had kept a batch of the first segment and not its
/// header, a super block named a segment that had never been begun, and the next start refused the log as damaged (734).
#[test]
fn what_long_runs_found_in_the_log_stays_mended() {
    holds(&Plan::new(734));
}
