//! `weir serve`: serves volumes to hosts.

mod event_log;
mod ready;
mod reload;
#[cfg(test)]
mod testing;

use super::config::{source, warn};
use crate::config;
use crate::config::events;
use crate::config::gateway::{address, log_format};
use crate::config::source::Source;
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use clap::Args;
use reload::Rereader;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use weir_serve::config::{Config, Fence, Link, LogFormat};
use weir_serve::{Denied, Ready, ServeError, Unowned, serve};

/// Serve volumes to hosts over iSCSI, NBD and NVMe/TCP
///
/// Without CONFIG it creates one sparse disk of 1 GiB, `weir/disk0.img` in `$XDG_STATE_HOME` or `~/.local/state`, and
/// serves it on 127.0.0.1:3260, to this machine only. When it accepts connections, it prints the commands to connect.
/// `weir config show` prints the configuration in use, `weir config show --defaults` all keys with their defaults.
///
/// SIGTERM or Ctrl-C stops it: it completes requests in flight and flushes every volume. A second signal stops it
/// without waiting. SIGHUP reloads the configuration; an invalid one changes nothing, and its errors are logged.
/// SIGUSR1 logs the state of tenants with a contract, the rules that held them, and outstanding requests. `weir
/// status`, `weir path` and `weir volume` need a `[control]` table in CONFIG; without CONFIG they work.
///
/// The log goes to standard error; `WEIR_LOG` sets its level, as in `WEIR_LOG=debug`. With `format = "json"` in `[log]` of
/// CONFIG each line is a JSON object.
#[derive(Debug, Default, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Serve {
    /// The configuration, a TOML file [default: `WEIR_CONFIG`, else the built-in configuration]
    config: Option<PathBuf>,
    /// iSCSI portal, instead of those of CONFIG; port 0 is any free port; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// Record every input of the data path, without data, for `weir replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Take over the storage of a volume from the gateway that reserved it with this key; may be given several times
    ///
    /// The error of a refused start names the key. 0 is for storage without a reservation.
    #[arg(long, value_name = "VOLUME=KEY", value_parser = take_over)]
    take_over: Vec<(String, u64)>,
    /// Print one line of JSON when hosts can connect
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        let source = source(self.config.as_deref())?;
        let format = log_format(&source);
        event_log::start(color, format)?;
        let result = self.serve(&source, format, color);
        if format == LogFormat::Json { result.map_err(Failure::logged) } else { result }
    }

    fn serve(self, source: &Source, format: LogFormat, color: Color) -> Result<Exit, Failure> {
        let loaded = config::gateway(source)
            .map_err(|diagnostics| Failure::invalid(diagnostics, source.clone()))?;
        match format {
            LogFormat::Text => warn(&loaded.warnings, source, color),
            LogFormat::Json => {
                for diagnostic in &loaded.warnings {
                    events::log(diagnostic, source);
                }
            }
        }
        self.links(&loaded.checked)?;
        let mut config = self.adjust(loaded.checked);
        self.take_over(&mut config)?;
        if source.is_built_in() {
            for volume in &config.volumes {
                for file in volume.files() {
                    make_folder(&file.path)?;
                }
            }
        }
        let ready = |ready: &Ready| {
            // A closed standard output does not stop the gateway.
            let _ = if self.json {
                print_json(&ready::event(&config, ready))
            } else {
                print(&ready::welcome(&config, ready))
            };
        };
        let mut reader = Rereader::new(&self, source);
        serve(&config, ready, &mut reader).map_err(|error| failure(&error))?;
        Ok(Exit::Success)
    }

    /// A configuration as the command line changes it.
    fn adjust(&self, mut config: Config) -> Config {
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        config.record.clone_from(&self.record);
        config
    }

    /// A link refers to listen addresses.
    fn links(&self, config: &Config) -> Result<(), Failure> {
        if self.listen.is_empty() {
            return Ok(());
        }
        let others = [&config.nbd.listen, &config.nvme.listen];
        let known = |one: &SocketAddr| {
            self.listen.contains(one) || others.iter().any(|listen| listen.contains(one))
        };
        let lost = |link: &&Link| !link.listen.iter().all(known);
        let Some(link) = config.links.iter().find(lost) else { return Ok(()) };
        let message = format!("--listen: link `{}` is for other addresses", link.name);
        let help = "change `listen` in the file, or there in its `[[link]]` as well";
        Err(Failure::new(Exit::Usage, message, help))
    }

    /// The take-overs of the command line.
    fn take_over(&self, config: &mut Config) -> Result<(), Failure> {
        for (name, key) in &self.take_over {
            let Some(volume) = config.volumes.iter().position(|volume| volume.name == *name) else {
                let message = format!("--take-over: there is no volume `{name}`");
                return Err(Failure::new(Exit::Usage, message, "name one of the configuration"));
            };
            let fenced = config.upstreams.iter().enumerate().any(|(index, upstream)| {
                let volume = &config.volumes[volume];
                volume.is_on(index)
                    && match upstream.fence {
                        Fence::Auto => volume.log.is_some(),
                        Fence::On => true,
                        Fence::Off => false,
                    }
            });
            if !fenced {
                let message = format!("--take-over: no upstream of volume `{name}` is fenced");
                let help = "only a volume with a `log` on an [[upstream]], or one whose upstream has \
                            `fence = \"on\"`, has an owner";
                return Err(Failure::new(Exit::Usage, message, help));
            }
            config.take_over.push((volume, *key));
        }
        Ok(())
    }
}

/// A volume, and the key of its reservation.
fn take_over(text: &str) -> Result<(String, u64), String> {
    let form = "write VOLUME=KEY, with the key of the error: 0x and 16 digits, or 0 for storage without a reservation";
    let (volume, key) = text.split_once('=').ok_or(form)?;
    let key = match key.strip_prefix("0x") {
        Some(digits) if digits.len() <= 16 => u64::from_str_radix(digits, 16).ok(),
        None if key == "0" => Some(0),
        _ => None,
    };
    Ok((volume.to_owned(), key.ok_or(form)?))
}

fn make_folder(file: &Path) -> Result<(), Failure> {
    let Some(folder) = file.parent() else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let message = format!("cannot create `{}` for the default disk: {error}", folder.display());
        let help = "set XDG_STATE_HOME to a folder, or name a configuration: weir serve CONFIG";
        Failure::new(Exit::Unavailable, message, help)
    })
}

pub(super) fn failure(error: &ServeError) -> Failure {
    let exit = if error.is_unavailable() {
        Exit::Unavailable
    } else if error.is_damage() {
        Exit::Damaged
    } else {
        Exit::Unexpected
    };
    let help = match error {
        ServeError::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => {
                "another program listens there: stop it, or use any free port with \
                 `--listen 127.0.0.1:0`"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine does not have the address: `ip addr` lists its addresses"
            }
            ErrorKind::PermissionDenied => "ports below 1024 need privileges: use a higher one",
            _ => "listen elsewhere with `--listen ADDRESS`",
        },
        ServeError::ListenUnix { .. } => {
            "stop the process that listens there, or name another path in `unix` of [nbd]"
        }
        ServeError::Control { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => {
                "another gateway listens there: stop it, or name another path in `socket` of [control]"
            }
            ErrorKind::AlreadyExists => {
                "move the file away, or name another path in `socket` of [control]"
            }
            _ => "name a usable path in `socket` of [control], or remove that table",
        },
        ServeError::Http { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => {
                "another program listens there: stop it, or name another place in `listen` of [http]"
            }
            _ => "name a usable place in `listen` of [http], or remove that table",
        },
        ServeError::Upstream(_) => {
            "check the target and the network; `connect_timeout` of the upstream sets the time-out"
        }
        ServeError::Owned(unowned) => return owned(exit, error, unowned, &unowned.why),
        ServeError::Tls(_) => "change `certificate`, `key` or `client_ca` of [nbd]",
        ServeError::State { .. } | ServeError::Reservations { .. } => {
            "the data of the volume is intact: `state` of the volume names the file"
        }
        ServeError::Journal { .. } => {
            "the journal stands beside the volume's `state` file; set `atomic = false` to do without"
        }
        ServeError::Log(_) => {
            "nothing was changed; the gateway does not start before this is resolved"
        }
        _ if error.is_unavailable() => "change the volume in the configuration, or its file",
        _ => return Failure::unexpected(error.to_string()),
    };
    Failure::new(exit, error.to_string(), help)
}

/// The help for storage that another gateway or host has reserved.
fn owned(
    exit: Exit,
    error: &ServeError,
    Unowned { volume, .. }: &Unowned,
    why: &Denied,
) -> Failure {
    let help = match why {
        Denied::Held { key: 0, .. } => String::from(
            "a host other than a Weir gateway reserved it: release the reservation there, or by hand with sg_persist",
        ),
        Denied::Held { key, .. } => format!(
            "stop the other gateway, which releases it when its log is empty; or, if that gateway is gone for good, run \
             `weir serve --take-over {volume}={key:#018x}`. Writes that are only in its log are then lost"
        ),
        Denied::Dirty { .. } => String::from(
            "inspect the log with `weir log`, salvage its data if needed, and move it away with the `.log` file beside \
             `state`; then take over",
        ),
        Denied::Gone { .. } => format!(
            "if the storage was not written since, run `weir serve --take-over {volume}=0`; otherwise inspect the log with \
             `weir log`, and move it away with the `.log` file beside `state`"
        ),
        Denied::Different(_) => String::from(
            "give the volume the unit back that the log is for; if it is that unit and only its name has changed, \
             remove the `.units` file beside `state`; otherwise salvage the log with `weir log`, and move it away with \
             the `.log` and `.units` files",
        ),
        Denied::Unsupported(_) => String::from(
            "without reservations a second gateway could write there: set `fence = \"off\"` in [[upstream]] only if \
             there is none",
        ),
        _ => String::from(
            "check the target; `fence` of [[upstream]] sets whether its unit is reserved",
        ),
    };
    Failure::new(exit, error.to_string(), help)
}
