//! `movable`: what a volume needs so that it can be moved between gateways.

use super::reach::Offered;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind};
use crate::config::tree::{Context, Document};
use weir_serve::config::{Fence, Upstream, Volume, Where};

/// Whether a volume can be moved.
pub(super) const MOVABLE: Key = Key {
    name: "movable",
    kind: Kind::Flag,
    default: Default::Is("false"),
    effect: "`weir volume move` may give it to another gateway, whose file has the same volume and upstream. If another \
             gateway owns its upstream at the start, this one waits for a move. Needs a `log`, an `identity`, and a target \
             with this volume alone",
};

/// Checks that each movable volume can be moved.
pub(super) fn check(
    context: &mut Context,
    document: &Document<'_>,
    offered: Offered<'_>,
    (volumes, upstreams): (&[Volume], &[Upstream]),
) {
    for (index, volume) in volumes.iter().enumerate().filter(|(_, volume)| volume.movable) {
        for (fault, help) in faults(index, volume, offered, upstreams) {
            let message = format!("volume `{}` cannot be moved: {fault}", volume.name);
            let span = document.locate("volume", index, &["movable"]);
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "needs it");
            context.report(diagnostic.help(format!("{help}, or remove `movable`")));
        }
    }
}

fn faults(
    index: usize,
    volume: &Volume,
    Offered { targets, nbd, nvme }: Offered<'_>,
    upstreams: &[Upstream],
) -> Vec<(&'static str, &'static str)> {
    let mut faults = Vec::new();
    let fenced =
        |upstream: &usize| upstreams.get(*upstream).is_none_or(|one| one.fence != Fence::Off);
    match volume.stores.as_slice() {
        [Where::Upstream { index, .. }] if fenced(index) => {}
        [Where::Upstream { .. }] => faults.push((
            "its upstream is not reserved, and only the reservation tells which gateway owns it",
            "remove `fence = \"off\"` of the upstream",
        )),
        _ => faults.push(("it is not on one upstream", "put it on one `upstream`")),
    }
    if volume.log.is_none() {
        faults.push(("it has no log, whose identity is a part of the gateway's key", "add `log`"));
    }
    if volume.identity.is_none() {
        faults.push((
            "hosts would see another disk at the other gateway",
            "add `identity`, the same text in the files of both gateways",
        ));
    }
    let mut offering = targets.iter().filter(|target| target.luns.iter().any(|lun| lun.1 == index));
    let alone =
        offering.next().is_some_and(|target| target.luns.len() == 1 && target.redirect.is_none());
    if !alone || offering.next().is_some() {
        faults.push((
            "a target moves as a whole, and hosts find it at one gateway at a time",
            "offer it in one `[[target]]` that has no other volume and no `redirect`",
        ));
    }
    let exported = nbd.exports.iter().any(|export| export.volume == index);
    let mut namespaces = nvme.subsystems.iter().flat_map(|one| &one.namespaces);
    if exported || namespaces.any(|namespace| namespace.1 == index) {
        faults.push((
            "clients of NBD and hosts of NVMe cannot be sent to another gateway",
            "take it out of `exports` and `namespaces`",
        ));
    }
    faults
}
