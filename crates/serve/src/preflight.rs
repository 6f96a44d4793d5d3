//! Checks, without serving, whether this machine has what a configuration needs.

use crate::ServeError;
use crate::config::{Config, HttpListen, Volume};
use crate::folder::{can_make, folder};
use crate::frontend::tls::{self, Certificates};
use crate::frontend::unix_socket;
use crate::operator::http::guard::Guard;
use crate::storage::file::backing::Backing;
use crate::storage::log_device::log;
use crate::storage::state_file;
use std::net::TcpListener;

/// Everything that would keep a gateway with this configuration from serving on this machine now: addresses,
/// sockets, certificates, files and the folders that they are in.
///
/// Nothing is made or changed, and upstreams are not contacted. While a gateway with this configuration runs,
/// its own addresses and files are in use.
pub fn preflight(config: &Config) -> Vec<ServeError> {
    let mut problems = Vec::new();
    let mut note = |result: Result<(), ServeError>| problems.extend(result.err());
    for &address in config.listen.iter().chain(&config.nbd.listen).chain(&config.nvme.listen) {
        let bound = TcpListener::bind(address).map(drop);
        note(bound.map_err(|source| ServeError::Listen { address, source }));
    }
    for path in &config.nbd.unix {
        let taken = unix_socket::check(path);
        note(taken.map_err(|source| ServeError::ListenUnix { path: path.clone(), source }));
    }
    if let Some(path) = &config.control {
        let folder = folder(path);
        // A gateway makes the folder if only its last part is missing.
        let taken = if folder.exists() { unix_socket::check(path) } else { can_make(folder) };
        note(taken.map_err(|source| ServeError::Control { path: path.clone(), source }));
    }
    if let Some(http) = &config.http {
        let taken = match &http.listen {
            HttpListen::Tcp(address) => TcpListener::bind(address).map(drop),
            HttpListen::Unix(path) => unix_socket::check(path),
        };
        note(taken.map_err(|source| ServeError::Http { listen: http.listen.clone(), source }));
        note(Guard::new(http).map(drop).map_err(ServeError::from));
    }
    if let Some(tls) = &config.nbd.tls {
        note(tls::server_config(tls, Certificates::Required).map(drop).map_err(ServeError::from));
    }
    for volume in &config.volumes {
        for store in volume.files() {
            note(Backing::check(volume, store).map(drop).map_err(ServeError::from));
        }
        note(state_of(volume));
        note(
            volume
                .log
                .as_ref()
                .map_or(Ok(()), |log| log::check(volume, log))
                .map_err(ServeError::from),
        );
    }
    if let Some(path) = &config.savings {
        note(state_file::check(path).map_err(ServeError::Savings));
    }
    if let Some(path) = &config.record {
        note(can_make(path).map_err(|source| ServeError::Record { path: path.clone(), source }));
    }
    problems
}

fn state_of(volume: &Volume) -> Result<(), ServeError> {
    let checked = volume.state.as_deref().map_or(Ok(()), state_file::check);
    checked.map_err(|source| ServeError::State { volume: volume.name.clone(), source })
}
