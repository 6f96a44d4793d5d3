//! Whether hosts can reach targets, volumes, exports and subsystems: checks across all tables.

use super::initiators::meet;
use super::tenant::Claims;
use crate::config::backend::Backend;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::tree::{Context, Document};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_flow::units::ByteCount;
use weir_serve::config::{Nbd, Nvme, Subsystem, Target, Upstream, Volume};

/// What hosts are offered.
#[derive(Clone, Copy)]
pub(super) struct Offered<'a> {
    pub(super) targets: &'a [Target],
    pub(super) nbd: &'a Nbd,
    pub(super) nvme: &'a Nvme,
}

impl Offered<'_> {
    /// Whether another protocol than iSCSI has a listener.
    fn has_other_listeners(&self) -> bool {
        let Self { nbd, nvme, .. } = self;
        !nbd.listen.is_empty() || !nbd.unix.is_empty() || !nvme.listen.is_empty()
    }

    /// A gateway that offers nothing is a mistake.
    pub(super) fn something(&self, context: &mut Context, document: &Document<'_>) {
        let Self { targets, nbd, nvme } = self;
        let connects = self.has_other_listeners();
        // A front end that offers nothing has been noted as such.
        let others = !nbd.exports.is_empty() || !nvme.subsystems.is_empty();
        if targets.is_empty() && !others && !connects {
            let diagnostic = Diagnostic::new(Code::MissingKey, "there is no `[[target]]`");
            let span = document.locate("target", 0, &[]);
            let help = "add at least one: a name that hosts log in to; or `[nbd]` with `exports`, or `[nvme]` and `[[subsystem]]`";
            context.report(diagnostic.at(span, "the file ends here").help(help));
        }
    }

    /// Somewhere there must be a listener, and iSCSI is to have one if and only if it has targets.
    pub(super) fn listeners(
        &self,
        context: &mut Context,
        document: &Document<'_>,
        iscsi: &[SocketAddr],
    ) {
        let Self { targets, nbd, nvme } = self;
        let span = document.locate("iscsi", 0, &["listen"]);
        if iscsi.is_empty() && !self.has_other_listeners() {
            let diagnostic =
                Diagnostic::new(Code::OutOfRange, "there is nowhere for hosts to connect");
            let help = "write an address, such as `listen = [\"127.0.0.1:3260\"]`, or add `[nbd]` or `[nvme]`";
            context.report(diagnostic.at(span, "an empty list").help(help));
        } else if iscsi.is_empty() && !targets.is_empty() {
            let message = "no host can log in to a target: `[iscsi]` has no listener";
            let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "an empty list");
            let help =
                "write an address, such as `listen = [\"127.0.0.1:3260\"]`, or remove the targets";
            context.report(diagnostic.help(help));
        } else if !iscsi.is_empty()
            && targets.is_empty()
            && (!nbd.exports.is_empty() || !nvme.subsystems.is_empty())
        {
            let message = "iSCSI is listened for, and there is no `[[target]]`";
            let label = if document.has("iscsi") { "here" } else { "the file ends here" };
            let diagnostic = Diagnostic::new(Code::Unused, message).at(span, label);
            context.report(diagnostic.help("without iSCSI set `listen = []` in `[iscsi]`"));
        }
    }

    /// Warns of volumes that no host can find, and of LUNs that no initiator may see.
    pub(super) fn volumes(
        &self,
        context: &mut Context,
        document: &Document<'_>,
        volumes: &[Volume],
    ) {
        let Self { targets, nbd, nvme } = self;
        let luns = targets.iter().flat_map(|target| &target.luns).map(|&(_, volume)| volume);
        let exports = nbd.exports.iter().map(|export| export.volume);
        let namespaces = nvme.subsystems.iter().flat_map(|one| &one.namespaces);
        let namespaces = namespaces.map(|&(_, volume)| volume);
        let used: BTreeSet<usize> = luns.chain(exports).chain(namespaces).collect();
        for (index, volume) in volumes.iter().enumerate() {
            if !used.contains(&index) {
                let message =
                    format!("no target, export or subsystem offers volume `{}`", volume.name);
                let span = document.locate("volume", index, &["name"]);
                let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "this volume");
                let help = "add it to the `luns` of a target, the `exports` of `[nbd]` or the `namespaces` of a \
                            subsystem, or remove it";
                context.report(diagnostic.help(help));
            }
        }
        for (index, target) in targets.iter().enumerate() {
            for &(lun, volume) in &target.luns {
                let Some(volume_table) = volumes.get(volume) else { continue };
                if !meet(&target.initiators, &volume_table.initiators) {
                    let name = &volume_table.name;
                    let message =
                        format!("no initiator sees volume `{name}` as LUN {lun} of this target");
                    let span = document.locate("target", index, &["initiators"]);
                    let see = document.locate("volume", volume, &["initiators"]);
                    let diagnostic = Diagnostic::new(Code::Unused, message)
                        .at(span, "these may log in")
                        .see(Some(&see), "none of them is among these");
                    let help = "name an initiator in both lists, or remove the LUN";
                    context.report(diagnostic.help(help));
                }
            }
        }
    }

    /// Warns of tenants whose hosts see nothing.
    pub(super) fn tenants(
        &self,
        context: &mut Context,
        document: &Document<'_>,
        claims: &Claims,
        volumes: &[Volume],
    ) {
        let Self { targets, nvme, .. } = self;
        let all = volumes;
        for (&index, initiators) in claims {
            let sees = |target: &Target| {
                let mut luns = target.luns.iter().filter_map(|&(_, volume)| volumes.get(volume));
                meet(initiators, &target.initiators)
                    && luns.any(|volume| meet(initiators, &volume.initiators))
            };
            let finds = |subsystem: &Subsystem| {
                let volumes = subsystem.namespaces.iter();
                let mut volumes = volumes.filter_map(|&(_, volume)| all.get(volume));
                meet(initiators, &subsystem.hosts)
                    && volumes.any(|volume| meet(initiators, &volume.initiators))
            };
            if !targets.iter().any(sees) && !nvme.subsystems.iter().any(finds) {
                let message = "none of these initiators sees a volume";
                let span = document.locate("tenant", index, &["initiators"]);
                let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "this tenant's");
                context
                    .report(diagnostic.help(
                        "let them see a target or a subsystem, and a volume, or remove them",
                    ));
            }
        }
    }
}

/// A modelled device with addresses must have room for the volumes on it, as far as their sizes are written;
/// what is found in files is looked at when they are opened.
pub(super) fn devices(
    context: &mut Context,
    document: &Document<'_>,
    backends: &[Backend],
    volumes: &[Volume],
) {
    for (index, Backend { name, model, .. }) in backends.iter().enumerate() {
        let files = volumes.iter().flat_map(Volume::files);
        let on = files.filter(|file| file.backend == Some(index));
        let (_, wanted) = model.regions(on.filter_map(|file| file.size));
        if let Some(found) = model.capacity().filter(|&capacity| wanted > capacity) {
            let (found, wanted) = (ByteCount(found), ByteCount(wanted));
            let message = format!("the volumes on `{name}` have {wanted}, the device {found}");
            let span = document.locate("backend", index, &["capacity", "blocks", "model"]);
            let diagnostic = Diagnostic::new(Code::OutOfRange, message).at(span, "this device");
            context.report(diagnostic.help("give it more `capacity`, or the volumes less `size`"));
        }
    }
}

/// Warns of upstreams that no volume is on, which are not connected.
pub(super) fn upstreams(
    context: &mut Context,
    document: &Document<'_>,
    upstreams: &[Upstream],
    volumes: &[Volume],
) {
    for (index, upstream) in upstreams.iter().enumerate() {
        if !volumes.iter().any(|volume| volume.is_on(index)) {
            let message =
                format!("no volume is on upstream `{}`: it is not connected", upstream.name);
            let span = document.locate("upstream", index, &["name"]);
            let diagnostic = Diagnostic::new(Code::Unused, message).at(span, "this upstream");
            context.report(
                diagnostic.help("name it in `upstream` of a volume or store, or remove it"),
            );
        }
    }
}
