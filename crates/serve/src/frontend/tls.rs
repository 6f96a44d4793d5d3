//! Reads certificates and keys for TLS.

use crate::config;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why TLS cannot be offered.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The operating system refused.
    #[error("TLS: cannot read the {what} {}: {source}", .path.display())]
    Read {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file has no certificate or key.
    #[error(
        "TLS: {} holds no {what}; it must be in PEM, as text that starts with -----BEGIN",
        .path.display()
    )]
    Missing {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The file is cut off or changed.
    #[error("TLS: the {what} {} is not valid PEM: {source}; make it anew", .path.display())]
    Pem {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The certificate and the key are read, but cannot be used together.
    #[error(
        "TLS: the certificate {} and the key {} cannot be used: {source}; the key must be the one \
         that the first certificate of the file was made for",
        .certificate.display(), .key.display()
    )]
    Pair {
        /// The file with the certificates.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// What is wrong with them.
        source: rustls::Error,
    },
    /// A client authority is read, but cannot be used.
    #[error(
        "TLS: a certificate in {} cannot be used to check clients by: {source}; it must be that of \
         a certificate authority",
        .path.display()
    )]
    Authority {
        /// The file with the certificates.
        path: PathBuf,
        /// What is wrong with one of them.
        source: rustls::Error,
    },
    /// The client authorities cannot be used together.
    #[error("TLS: clients cannot be checked by {}: {source}", .path.display())]
    Verifier {
        /// The file with the certificates.
        path: PathBuf,
        /// What is wrong with them.
        source: VerifierBuilderError,
    },
}

/// Whether a client that shows no certificate is served where `client_ca` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// It is refused.
    Required,
    /// It may prove who it is in another way.
    Optional,
}

/// The configuration of a server for TLS 1.2 and 1.3. With `client_ca`, certificates of clients are checked.
pub(crate) fn server_config(
    tls: &config::Tls,
    clients: Certificates,
) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates("certificate", &tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|source| unreadable("private key", &tls.key, source))?;
    let provider = Arc::new(default_provider());
    let pair = |source| TlsError::Pair {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("certificate of a client authority", path)? {
                roots
                    .add(certificate)
                    .map_err(|source| TlsError::Authority { path: path.clone(), source })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = match clients {
                Certificates::Required => verifier,
                Certificates::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier
                .build()
                .map_err(|source| TlsError::Verifier { path: path.clone(), source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder.with_single_cert(chain, key).map(Arc::new).map_err(pair)
}

/// All certificates in a file; at least one.
fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| unreadable(what, path, source))?;
    if found.is_empty() {
        return Err(unreadable(what, path, pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn unreadable(what: &'static str, path: &Path, problem: pem::Error) -> TlsError {
    let path = path.to_path_buf();
    match problem {
        pem::Error::Io(source) => TlsError::Read { what, path, source },
        pem::Error::NoItemsFound => TlsError::Missing { what, path },
        source => TlsError::Pem { what, path, source },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::storage::state_file::tests::Folder;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use std::fs;

    /// A certificate authority that lives as long as a test.
    pub(crate) struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pub(crate) pem: String,
    }

    impl Authority {
        pub(crate) fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("the system gives randomness");
            let pem = params.self_signed(&key).expect("a valid request").pem();
            Self { issuer: Issuer::new(params, key), pem }
        }

        /// A certificate for `localhost` and its key, in PEM.
        pub(crate) fn issue(&self) -> (String, String) {
            let names = vec![String::from("localhost")];
            let params = CertificateParams::new(names).expect("a valid name");
            let key = KeyPair::generate().expect("the system gives randomness");
            let certificate = params.signed_by(&key, &self.issuer).expect("a valid request");
            (certificate.pem(), key.serialize_pem())
        }
    }

    /// A server's configuration with a certificate of the authority, which checks clients by it on
    /// demand.
    pub(crate) fn served_by(authority: &Authority, name: &str, clients: bool) -> Arc<ServerConfig> {
        let folder = Folder::new(name);
        let tls = written(&folder, authority, clients);
        server_config(&tls, Certificates::Required).expect("all files are there")
    }

    fn written(folder: &Folder, authority: &Authority, clients: bool) -> config::Tls {
        let (certificate, key) = authority.issue();
        fs::write(folder.file("cert.pem"), certificate).expect("writable");
        fs::write(folder.file("key.pem"), key).expect("writable");
        fs::write(folder.file("ca.pem"), &authority.pem).expect("writable");
        config::Tls {
            certificate: folder.file("cert.pem"),
            key: folder.file("key.pem"),
            client_ca: clients.then(|| folder.file("ca.pem")),
            required: true,
        }
    }

    /// The message and the error after `change` was done to the files.
    fn problem(change: impl Fn(&config::Tls)) -> (TlsError, String) {
        let folder = Folder::new("tls-problem");
        let tls = written(&folder, &Authority::new(), true);
        change(&tls);
        let error = server_config(&tls, Certificates::Required).expect_err("it cannot be used");
        let message = error.to_string();
        (error, message)
    }

    /// Each error of the files names the file and what to do.
    #[test]
    fn problems_name_the_file() {
        let (error, message) = problem(|tls| fs::remove_file(&tls.certificate).unwrap());
        assert!(matches!(error, TlsError::Read { what: "certificate", .. }));
        assert!(message.contains("cert.pem") && message.contains("No such file"), "{message}");

        let (error, message) = problem(|tls| fs::remove_file(&tls.key).unwrap());
        assert!(matches!(error, TlsError::Read { what: "private key", .. }), "{message}");

        let (error, message) = problem(|tls| fs::write(&tls.certificate, b"\x30\x82").unwrap());
        assert!(matches!(error, TlsError::Missing { what: "certificate", .. }));
        assert!(message.contains("cert.pem holds no certificate"), "{message}");

        // The certificate where the key should be.
        let (error, message) = problem(|tls| {
            fs::copy(&tls.certificate, &tls.key).unwrap();
        });
        assert!(matches!(error, TlsError::Missing { what: "private key", .. }), "{message}");

        let (error, message) = problem(|tls| {
            let text = fs::read_to_string(&tls.certificate).unwrap();
            fs::write(&tls.certificate, &text[..text.len() / 2]).unwrap();
        });
        assert!(matches!(error, TlsError::Pem { .. }));
        assert!(message.contains("cert.pem is not valid PEM"), "{message}");

        let (error, message) = problem(|tls| {
            fs::write(&tls.key, Authority::new().issue().1).unwrap();
        });
        assert!(matches!(error, TlsError::Pair { .. }));
        assert!(message.contains("cert.pem") && message.contains("key.pem"), "{message}");

        let authority = |tls: &config::Tls| tls.client_ca.clone().unwrap();
        let (error, message) = problem(|tls| fs::write(authority(tls), b"").unwrap());
        assert!(matches!(error, TlsError::Missing { .. }));
        assert!(message.contains("ca.pem holds no certificate of a client authority"), "{message}");

        let (error, message) = problem(|tls| {
            let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
            fs::write(authority(tls), nonsense).unwrap();
        });
        assert!(matches!(error, TlsError::Authority { .. }));
        assert!(message.contains("ca.pem"), "{message}");
    }

    /// Valid files are accepted, with and without a check of clients.
    #[test]
    fn good_files_are_taken() {
        let authority = Authority::new();
        served_by(&authority, "tls-good", false);
        served_by(&authority, "tls-good-clients", true);
    }
}
