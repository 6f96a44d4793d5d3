//! Slows down guesses of secrets: decides whether the credentials of a login may be checked now.
//!
//! A guess is a login whose credentials were checked and found wrong. Three counts:
//!
//! | count of | free guesses | then | for |
//! | --- | --- | --- | --- |
//! | a host: account, source and initiator name that have proved the account before | 5 | 1 s, doubled to 60 s | that host |
//! | account and source, of all other hosts | 5 | 1 s, doubled to 60 s | other hosts at that source |
//! | account, of all other hosts from all sources | 64 | 1 s for each guess | other hosts |
//!
//! A [`Source`] is an IPv4 address or an IPv6 network. A host that has logged in once is therefore not locked out by
//! guesses of others, neither from the same address (address translation, a hypervisor) nor from many, unless they know
//! its initiator name; and many addresses together get one guess a second at an account. Attempts that are turned away
//! are not checked and do not count. [`FORGIVEN_AFTER`] without a guess resets a count.
//!
//! Names of accounts are counted by a hash with [`BUCKETS`] values, whether or not the account exists: that bounds the
//! tables, and what is turned away does not reveal which accounts exist. Names of targets and initiators are no secrets
//! and are not counted.

use crate::aged::Aged;
use crate::source::Source;
use weir_flow::clock::{Duration, Instant};

/// Guesses by host, by account and source, and by account.
#[derive(Debug)]
pub(crate) struct LoginThrottle {
    /// Hosts that have proved an account.
    proven: Aged<Login, Guesses>,
    /// All other hosts, by bucket of the account and source.
    pairs: Aged<(u8, Source), Guesses>,
    /// The same by bucket of the account: when the guesses up to now would have been made at one a second.
    accounts: Vec<Instant>,
}

/// The source, the account and the initiator of a login, in a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Login {
    source: Source,
    account: u64,
    initiator: u64,
}

impl Login {
    /// A login from there with the CHAP name `account`.
    pub(crate) fn new(source: Source, account: &str, initiator: &str) -> Self {
        Self { source, account: hash(account), initiator: hash(initiator) }
    }

    const fn bucket(self) -> u8 {
        (self.account % BUCKETS) as u8
    }
}

/// Guesses in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Guesses(u32);

impl Guesses {
    /// How long after the last guess logins are turned away.
    fn penalty(self) -> Duration {
        match self.0.checked_sub(FREE_GUESSES + 1) {
            None => Duration::ZERO,
            Some(doublings) => (SHORTEST * (1 << doublings.min(32))).min(LONGEST),
        }
    }

    /// One more, after those of `old` if they are not forgiven.
    fn more(old: Option<(Instant, Self)>, now: Instant) -> Self {
        let count = old.filter(|(last, _)| now.saturating_since(*last) < FORGIVEN_AFTER);
        Self(count.map_or(0, |(_, Self(count))| count).saturating_add(1))
    }

    /// For how much longer logins are turned away.
    fn wait((last, guesses): (Instant, &Self), now: Instant) -> Duration {
        (last + guesses.penalty()).saturating_since(now)
    }
}

impl LoginThrottle {
    pub(crate) fn new() -> Self {
        Self {
            proven: Aged::new(PROVEN_MAX),
            pairs: Aged::new(PAIRS_MAX),
            accounts: vec![Instant::ZERO; BUCKETS as usize],
        }
    }

    /// For how much longer this login is turned away; zero if its credentials may be checked now.
    pub(crate) fn wait(&self, login: Login, now: Instant) -> Duration {
        if let Some(proven) = self.proven.get(&login) {
            return Guesses::wait(proven, now);
        }
        let pair = self.pairs.get(&(login.bucket(), login.source));
        let pair = pair.map_or(Duration::ZERO, |pair| Guesses::wait(pair, now));
        let spent = self.accounts[usize::from(login.bucket())];
        pair.max(spent.saturating_since(now + ACCOUNT_GUESSES))
    }

    /// Counts a guess, and returns for how long this login is turned away now.
    pub(crate) fn guessed(&mut self, login: Login, now: Instant) -> Duration {
        if self.proven.get(&login).is_some() {
            self.proven.update(login, now, |old| Guesses::more(old, now));
        } else {
            let pair = (login.bucket(), login.source);
            self.pairs.update(pair, now, |old| Guesses::more(old, now));
            let account = &mut self.accounts[usize::from(login.bucket())];
            *account = (*account).max(now) + ACCOUNT_INTERVAL;
        }
        self.wait(login, now)
    }

    /// A login has proved its account: guesses of others do not count against this host any more.
    pub(crate) fn proved(&mut self, login: Login, now: Instant) {
        self.proven.update(login, now, |_| Guesses::default());
        assert_eq!(self.wait(login, now), Duration::ZERO, "a host that has proved its account");
    }
}

/// FNV-1a, 64 bits. A host that finds two names with one hash gains nothing: it shares a count with itself.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Guesses in a row that cost nothing: people mistype secrets.
const FREE_GUESSES: u32 = 5;

/// How long logins are turned away after the first guess that counts.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long they are turned away at most.
const LONGEST: Duration = Duration::from_secs(60);

/// A count whose last guess is this long ago starts again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// Each guess at an account takes this long of the time of all other hosts.
const ACCOUNT_INTERVAL: Duration = Duration::from_secs(1);

/// They may be ahead by this much: 64 guesses.
const ACCOUNT_GUESSES: Duration = Duration::from_secs(64);

/// Values of the hash by which accounts are counted.
const BUCKETS: u64 = 256;

/// Hosts that are remembered; one more forgets the one of the oldest login or guess.
const PROVEN_MAX: usize = 4096;

/// Pairs of account and source that are remembered; one more forgets the one of the oldest guess. A guesser
/// with more addresses is slowed down by the count of the account.
const PAIRS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn source(n: u32) -> Source {
        Source::of(IpAddr::from(n.to_be_bytes()))
    }

    const HOST: &str = "192.0.2.7";

    fn login(address: &str, account: &str, initiator: &str) -> Login {
        Login::new(Source::of(address.parse().expect("an address")), account, initiator)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + secs(seconds)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Five guesses are free; from then on the time doubles from one second to a minute.
    #[test]
    fn penalties_double() {
        let mut throttle = LoginThrottle::new();
        let penalties: Vec<u64> = (0..80)
            .map(|n| {
                throttle.guessed(login(HOST, "alice", "host"), at(2 * n)).as_nanos() / 1_000_000_000
            })
            .collect();
        assert_eq!(penalties[..12], [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60]);
        assert!(penalties[12..].iter().all(|&penalty| penalty == 60));
    }

    /// An account is turned away at a source until its time is over; other accounts there and other sources are not.
    #[test]
    fn an_account_is_turned_away_at_a_source() {
        let mut throttle = LoginThrottle::new();
        let guess = login(HOST, "alice", "guesser");
        for _ in 0..5 {
            assert_eq!(throttle.guessed(guess, at(10)), secs(0));
        }
        assert_eq!(
            (throttle.guessed(guess, at(10)), throttle.guessed(guess, at(10))),
            (secs(1), secs(2))
        );
        assert_eq!(throttle.wait(login(HOST, "alice", "another name"), at(11)), secs(1));
        assert_eq!(throttle.wait(guess, at(12)), secs(0));
        assert_eq!(throttle.wait(login(HOST, "bob", "guesser"), at(11)), secs(0));
        assert_eq!(throttle.wait(login("192.0.2.8", "alice", "guesser"), at(11)), secs(0));
    }

    /// A host that has logged in is not locked out by guesses at its account, from its own address or from 2,000
    /// others; its own guesses count against it, until it logs in.
    #[test]
    fn the_right_host_is_not_locked_out() {
        let mut throttle = LoginThrottle::new();
        let host = login(HOST, "alice", "host");
        throttle.proved(host, at(0));
        for n in 0..2_000_u32 {
            throttle.guessed(login(HOST, "alice", &format!("guesser {n}")), at(1));
            throttle.guessed(Login::new(source(n), "alice", "host"), at(1));
        }
        assert_eq!(throttle.wait(host, at(1)), secs(0));
        assert!(throttle.wait(login(HOST, "alice", "new host"), at(1)) > secs(0));
        let own: Vec<_> = (0..7).map(|_| throttle.guessed(host, at(2))).collect();
        assert_eq!(own[4..], [secs(0), secs(1), secs(2)]);
        throttle.proved(host, at(4));
        assert_eq!(throttle.guessed(host, at(4)), secs(0));
    }

    /// However many addresses guess, an account is guessed at 64 times and then once a second.
    #[test]
    fn many_addresses_get_one_guess_a_second() {
        let mut throttle = LoginThrottle::new();
        let mut checked = 0;
        for millis in 0..100_000_u32 {
            let login = Login::new(source(millis), "alice", "guesser");
            let now = Instant::ZERO + Duration::from_millis(millis.into());
            if throttle.wait(login, now) == Duration::ZERO {
                checked += 1;
                throttle.guessed(login, now);
            }
        }
        assert!((64..=165).contains(&checked), "{checked} guesses in 100 s");
        assert_eq!(throttle.wait(login("192.0.2.9", "bob", "host"), at(100)), secs(0));
    }

    /// Ten minutes without a guess reset a count, and not a second less.
    #[test]
    fn guesses_are_forgiven() {
        let mut throttle = LoginThrottle::new();
        let guess = login(HOST, "alice", "host");
        for _ in 0..10 {
            throttle.guessed(guess, at(0));
        }
        assert_eq!(throttle.guessed(guess, at(599)), secs(32));
        assert_eq!(throttle.guessed(guess, at(599 + 600)), secs(0));
    }

    /// The tables do not grow, whatever names and addresses guesses have.
    #[test]
    fn the_tables_are_bounded() {
        let mut throttle = LoginThrottle::new();
        for n in 0..10_000_u32 {
            let login = Login::new(source(n), &format!("account {n}"), "host");
            throttle.guessed(login, at(1));
            throttle.proved(login, at(1));
        }
        assert_eq!(
            (throttle.pairs.iter().count(), throttle.proven.iter().count()),
            (PAIRS_MAX, PROVEN_MAX)
        );
    }
}
