//! Tests of asynchronous events: raised if wanted, one of each kind, masked until their page is read.

use super::controller::{Gateway, failed, value};
use crate::nvme::controller::Action;
use crate::nvme::{Status, discovery};

const NAMESPACES: u32 = 1 << 8;
const ANA: u32 = 1 << 11;
const DISCOVERY: u32 = 1 << 31;

impl Gateway {
    fn want(&mut self, events: u32) {
        assert_eq!(self.admin(0x09, 0, &[0x0b, events], 0), value(0));
    }

    /// Sends one request, in slot 3.
    fn request(&mut self) -> Action {
        self.admin(0x0c, 0, &[], 0)
    }

    fn read_page(&mut self, id: u32, retain: bool) {
        let id = id | u32::from(retain) << 15 | 1 << 16;
        self.data(0x02, 0xffff_ffff, &[id], 8);
    }
}

/// An event takes the oldest request, names its log page, and is masked until the page is read without "retain".
#[test]
fn events_are_reported_once() {
    let mut gateway = Gateway::enabled();
    gateway.want(NAMESPACES | ANA);
    assert_eq!(gateway.request(), Action::Hold);
    assert_eq!(gateway.controller.take_event(), None);
    gateway.controller.namespace_changed(2);
    gateway.controller.namespace_changed(9);
    gateway.controller.ana_changed();
    assert_eq!(gateway.controller.take_event(), Some((3, 0x0004_0002)));
    assert_eq!(gateway.controller.take_event(), None, "there is no second request");
    gateway.request();
    assert_eq!(gateway.controller.take_event(), Some((3, 0x000c_0302)), "the other one was kept");
    gateway.request();
    gateway.controller.namespace_changed(1);
    assert_eq!(gateway.controller.take_event(), None, "masked");
    gateway.read_page(0x04, true);
    gateway.controller.namespace_changed(1);
    assert_eq!(gateway.controller.take_event(), None, "retained");
    gateway.read_page(0x04, false);
    assert_eq!(gateway.controller.take_event(), None);
    gateway.controller.namespace_changed(1);
    assert_eq!(gateway.controller.take_event(), Some((3, 0x0004_0002)));
}

/// What the host does not want is not raised, and not kept until it does; what it wants no more is dropped.
#[test]
fn unwanted_events_are_not_raised() {
    let mut gateway = Gateway::enabled();
    gateway.request();
    gateway.controller.namespace_changed(2);
    gateway.controller.discovery_changed();
    gateway.want(NAMESPACES | ANA);
    assert_eq!(gateway.controller.take_event(), None);
    assert_eq!(gateway.data(0x02, 0, &[4 | 1 << 16], 8), [2, 0, 0, 0, 0, 0, 0, 0], "but listed");
    assert!(gateway.controller.withdraw(3));
    gateway.controller.ana_changed();
    gateway.want(NAMESPACES);
    gateway.request();
    assert_eq!(gateway.controller.take_event(), None);
    for wrong in [1 << 9, DISCOVERY] {
        assert_eq!(gateway.admin(0x09, 0, &[0x0b, wrong], 0), failed(Status::INVALID_FIELD));
    }
    gateway.want(0xff);
    assert_eq!(gateway.feature(0x0b), 0xff);
}

/// Four requests are held, the fifth is refused; one that was aborted makes room.
#[test]
fn requests_are_bounded() {
    let mut gateway = Gateway::enabled();
    for _ in 0..4 {
        assert_eq!(gateway.request(), Action::Hold);
    }
    assert_eq!(gateway.request(), failed(Status::EVENT_REQUEST_LIMIT));
    assert!(gateway.controller.withdraw(3));
    assert!(!gateway.controller.withdraw(8));
    assert_eq!(gateway.request(), Action::Hold);
}

/// A discovery controller reports that its page has changed, and nothing else.
#[test]
fn discovery_changes_are_events() {
    let mut gateway = Gateway::discovery();
    gateway.page = Some(discovery::page(&discovery::Generation::default(), &[]));
    assert_eq!(gateway.admin(0x09, 0, &[0x0b, NAMESPACES], 0), failed(Status::INVALID_FIELD));
    gateway.want(DISCOVERY);
    gateway.request();
    gateway.controller.namespace_changed(1);
    gateway.controller.ana_changed();
    assert_eq!(gateway.controller.take_event(), None);
    gateway.controller.discovery_changed();
    assert_eq!(gateway.controller.take_event(), Some((3, 0x0070_f002)));
    gateway.request();
    gateway.read_page(0x70, false);
    gateway.controller.discovery_changed();
    assert!(gateway.controller.take_event().is_some());
}
