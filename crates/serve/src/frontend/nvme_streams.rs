//! What stream a queue is a part of: itself, or its host.

use crate::config::{Nvme, Whose};
use crate::frontend::nvme_queue::Queue;
use std::collections::BTreeMap;
use weir_flow::dispatch::{HostNumber, Member};
use weir_flow::pipeline::Input;
use weir_flow::request::LinkId;

/// The hosts that are streams, each with a number as long as it has queues. A host is one for each subsystem.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<u32, Host>);

#[derive(Debug)]
struct Host {
    subsystem: String,
    name: String,
    queues: usize,
}

impl Hosts {
    /// A queue of a host begins.
    fn enter(&mut self, subsystem: &str, name: &str) -> HostNumber {
        let same = |host: &Host| host.subsystem == subsystem && host.name == name;
        if let Some((&number, host)) = self.0.iter_mut().find(|(_, host)| same(host)) {
            host.queues += 1;
            return HostNumber(number);
        }
        let used = self.0.keys().zip(0..).find(|&(&used, number)| used != number);
        let number = used.map_or(self.0.len() as u32, |(_, number)| number);
        let host = Host { subsystem: subsystem.to_owned(), name: name.to_owned(), queues: 1 };
        self.0.insert(number, host);
        HostNumber(number)
    }

    /// A queue ends that was a part of this stream. Returns what the pipeline must know of that.
    pub(super) fn leave(&mut self, member: Member) -> Input {
        if let Member::Host(_, HostNumber(number)) = member {
            let host = self.0.get_mut(&number).expect("its queue has entered");
            host.queues -= 1;
            if host.queues == 0 {
                self.0.remove(&number);
            }
        }
        Input::Substream(member, None)
    }

    /// Finds out what stream a connected queue is a part of now. Returns what the pipeline must know of that.
    pub(super) fn assign(
        &mut self,
        nvme: &Nvme,
        link: LinkId,
        queue: &mut Queue,
    ) -> impl Iterator<Item = Input> + use<> {
        let number = queue.wire.queue().filter(|&number| number > 0);
        let wanted = number.and_then(|number| nvme.stream(&queue.subsystem, number, &queue.host));
        let before = queue.stream;
        let stream = wanted.map(|(whose, weight)| {
            let member = match (whose, before) {
                (Whose::Queue, _) => Member::Link(link),
                (Whose::Host, Some((member @ Member::Host(..), _))) => member,
                (Whose::Host, _) => Member::Host(link, self.enter(&queue.subsystem, &queue.host)),
            };
            (member, weight)
        });
        queue.stream = stream;
        let left = before.map(|(member, _)| member);
        let left = left.filter(|&left| stream.is_none_or(|(member, _)| member != left));
        let begun = stream.filter(|_| stream != before);
        let begun = begun.map(|(member, weight)| Input::Substream(member, Some(weight)));
        left.map(|left| self.leave(left)).into_iter().chain(begun)
    }
}
