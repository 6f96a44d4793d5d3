//! `weir serve`: serves volumes to hosts.

use super::config::{source, warn};
use crate::config;
use crate::config::gateway::address;
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;
use weir_flow::units::ByteCount;
use weir_serve::config::Config;
use weir_serve::{Ready, ServeError, serve};

/// Serve volumes to hosts over iSCSI
///
/// Without CONFIG it makes one sparse disk of 1 GiB, `weir/disk0.img` in `$XDG_STATE_HOME` or
/// `~/.local/state`, and serves it on 127.0.0.1:3260, to this machine only. Once hosts can connect
/// it prints how. `weir config show` prints the configuration in use, `weir config show --defaults`
/// everything that one may say.
///
/// SIGTERM or Ctrl-C ends it: what is in flight is finished and every volume is made durable. A
/// second one does not wait for what is in flight.
///
/// The log goes to standard error; `WEIR_LOG` selects what is in it, as in `WEIR_LOG=debug`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Serve {
    /// The configuration, a TOML file; without it `WEIR_CONFIG`, or what is built in
    config: Option<PathBuf>,
    /// Listen here instead; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// Record every input of the data path, for `weir replay`. No data is recorded
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print one JSON object on one line when hosts can connect
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        start_log(color)?;
        let source = source(self.config.as_deref())?;
        let loaded =
            config::gateway(&source).map_err(|faults| Failure::invalid(faults, source.clone()))?;
        warn(&loaded.warnings, &source, color);
        let mut config = loaded.checked;
        if !self.listen.is_empty() {
            config.listen = self.listen;
        }
        config.record = self.record;
        if source.is_built_in() {
            for volume in &config.volumes {
                make_folder(&volume.path)?;
            }
        }
        let json = self.json;
        let ready = |ready: &Ready| {
            // Hosts are served all the same if nobody reads this.
            let _ = if json {
                print_json(&event(&config, ready))
            } else {
                print(&welcome(&config, ready))
            };
        };
        serve(&config, ready).map_err(|error| failure(&error))?;
        Ok(Exit::Success)
    }
}

fn start_log(color: Color) -> Result<(), Failure> {
    let wanted = std::env::var("WEIR_LOG").unwrap_or_default();
    let wanted = if wanted.is_empty() { "info" } else { &wanted };
    let filter = EnvFilter::builder().parse(wanted).map_err(|error| {
        let message = format!("WEIR_LOG is not a filter: {error}");
        Failure::new(Exit::Usage, message, "set it to error, warn, info, debug or trace")
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(color.on_stderr())
        .with_target(false)
        .log_internal_errors(false);
    log.try_init().map_err(|error| Failure::unexpected(format!("cannot start the log: {error}")))
}

fn make_folder(file: &Path) -> Result<(), Failure> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|error| {
        let message = format!("cannot make `{}` for the default disk: {error}", folder.display());
        let help = "set XDG_STATE_HOME to a folder, or name a configuration: weir serve CONFIG";
        Failure::new(Exit::Unavailable, message, help)
    })
}

fn failure(error: &ServeError) -> Failure {
    let exit = if error.is_unavailable() { Exit::Unavailable } else { Exit::Unexpected };
    let help = match error {
        ServeError::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => {
                "another program listens there: stop it, or take a free port with \
                 `--listen 127.0.0.1:0`"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine does not have the address: `ip addr` lists those it has"
            }
            ErrorKind::PermissionDenied => "ports below 1024 need privileges: take a higher one",
            _ => "listen elsewhere with `--listen ADDRESS`",
        },
        _ if error.is_unavailable() => "change the volume in the configuration, or its file",
        _ => return Failure::unexpected(error.to_string()),
    };
    Failure::new(exit, error.to_string(), help)
}

/// Where a host that knows no better reaches the gateway: the first advertised portal, or the first
/// listener, and this machine's own address for one that listens on all.
fn portal(config: &Config, ready: &Ready) -> String {
    if let Some(advertised) = config.advertise.first() {
        return advertised.clone();
    }
    let Some(mut address) = ready.portals.first().copied() else { return String::new() };
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address.to_string()
}

fn event(config: &Config, ready: &Ready) -> Value {
    let portal = portal(config, ready);
    let targets: Vec<_> = config
        .targets
        .iter()
        .map(|target| {
            let luns: Vec<_> = target
                .luns
                .iter()
                .filter_map(|&(lun, index)| {
                    let volume = ready.volumes.get(index)?;
                    Some(json!({
                        "lun": lun,
                        "volume": volume.name,
                        "url": format!("iscsi://{portal}/{}/{lun}", target.name),
                        "path": volume.path.display().to_string(),
                        "bytes": volume.capacity,
                        "io": if volume.direct { "direct" } else { "buffered" },
                        "read_only": config.volumes[index].read_only,
                        "created": volume.created,
                    }))
                })
                .collect();
            json!({ "name": target.name, "luns": luns })
        })
        .collect();
    let portals: Vec<_> = ready.portals.iter().map(SocketAddr::to_string).collect();
    json!({
        "version": 1,
        "event": "ready",
        "portals": portals,
        "driver": ready.driver,
        "targets": targets,
    })
}

fn welcome(config: &Config, ready: &Ready) -> String {
    let portal = portal(config, ready);
    let portals: Vec<_> = ready.portals.iter().map(SocketAddr::to_string).collect();
    let mut text = format!("weir serves iSCSI on {}\n", portals.join(", "));
    for target in &config.targets {
        let _ = writeln!(text, "\n  {}", target.name);
        for &(lun, index) in &target.luns {
            let Some(volume) = ready.volumes.get(index) else { continue };
            let _ = writeln!(
                text,
                "    LUN {lun}: {}, {}{}, {} I/O, in {}{}",
                volume.name,
                ByteCount(volume.capacity),
                if config.volumes[index].read_only { ", read only" } else { "" },
                if volume.direct { "direct" } else { "buffered" },
                volume.path.display(),
                if volume.created { " (made just now)" } else { "" },
            );
        }
    }
    let Some(target) = config.targets.first() else { return text };
    let Some(&(lun, index)) = target.luns.first() else { return text };
    let name = &target.name;
    let read_only = if config.volumes[index].read_only { "-r " } else { "" };
    let _ = write!(
        text,
        "\nto connect\n\
         \x20 libiscsi  iscsi-ls -s iscsi://{portal}\n\
         \x20 QEMU      qemu-io {read_only}-f raw -c 'read 0 4k' iscsi://{portal}/{name}/{lun}\n\
         \x20 Linux     iscsiadm -m discovery -t sendtargets -p {portal}\n\
         \x20           iscsiadm -m node -T {name} -p {portal} --login\n\
         \nCtrl-C stops it; every volume is made durable first\n"
    );
    text
}
