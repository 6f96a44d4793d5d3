//! The hosts behind links: log lines and answers about a request name its host as the log lines of its session do.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;
use weir_flow::clock::Instant;
use weir_flow::request::LinkId;

/// The latest host of each link, by its index. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkHosts(Rc<RefCell<Vec<Option<Rc<Host>>>>>);

/// A host that has logged in.
#[derive(Debug)]
pub(crate) struct Host {
    /// Its address, as log lines have it.
    pub(crate) peer: String,
    /// Its name; NBD has none.
    pub(crate) name: Option<String>,
    since: Instant,
}

impl LinkHosts {
    /// A host has logged in over a link.
    pub(crate) fn enter(&self, now: Instant, link: LinkId, peer: impl Display, name: Option<&str>) {
        let mut hosts = self.0.borrow_mut();
        if hosts.len() <= link.index() {
            hosts.resize(link.index() + 1, None);
        }
        let (peer, name) = (peer.to_string(), name.map(str::to_owned));
        hosts[link.index()] = Some(Rc::new(Host { peer, name, since: now }));
    }

    /// The host that a request came from; `None` if another one has the link since then.
    pub(crate) fn of(&self, link: LinkId, arrived: Instant) -> Option<Rc<Host>> {
        let hosts = self.0.borrow();
        hosts.get(link.index())?.clone().filter(|host| host.since <= arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request has the host that sent it, not one that has the link after it.
    #[test]
    fn a_link_that_is_used_again_has_another_host() {
        let hosts = LinkHosts::default();
        let (link, at) = (LinkId::new(2), Instant::from_nanos);
        let peer = "unix:/run/nbd";
        assert!(hosts.of(link, at(5)).is_none());
        hosts.enter(at(5), link, peer, Some("first"));
        let name = |arrived| hosts.of(link, at(arrived)).and_then(|host| host.name.clone());
        assert_eq!(name(5).as_deref(), Some("first"));
        assert_eq!(hosts.of(link, at(5)).unwrap().peer, "unix:/run/nbd");
        hosts.clone().enter(at(9), link, peer, None);
        assert!(hosts.of(link, at(8)).is_none(), "that was the first one's");
        assert!(hosts.of(link, at(9)).is_some_and(|host| host.name.is_none()));
        assert!(hosts.of(LinkId::new(1), at(9)).is_none());
    }
}
