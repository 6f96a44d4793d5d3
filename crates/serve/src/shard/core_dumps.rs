//! Keeps secrets out of core dumps.

use crate::config::Config;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tracing::warn;

/// If the configuration has a secret, the process writes no core dump from now on, whatever its limits and the kernel's
/// `core_pattern`, and other processes of its user cannot read its memory (`PR_SET_DUMPABLE`, prctl(2)).
///
/// Without secrets a core dump stays possible, for the analysis of a defect.
pub(crate) fn keep_secrets_out(config: &Config) {
    if has_secrets(config)
        && let Err(problem) = set_dumpable_behavior(DumpableBehavior::NotDumpable)
    {
        warn!(%problem, "a core dump of this process would have its secrets");
    }
}

/// CHAP secrets, or a private key, or tokens that clients send.
fn has_secrets(config: &Config) -> bool {
    let proves = config.upstreams.iter().any(|one| one.account.is_some() || one.mutual.is_some());
    let http = config.http.as_ref().is_some_and(|one| one.tls.is_some() || !one.users.is_empty());
    proves || http || !config.accounts.is_empty() || config.nbd.tls.is_some()
}
