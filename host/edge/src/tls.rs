//! TLS: a certificate and its key from files, read again when they change. If a new certificate
//! cannot be used, the previous one stays.
//!
//! A connection keeps its first certificate, so a change drops no call. Handshakes are computed in
//! [turns](crate::handshake_turns) of addresses.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::RwLock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tracing::{error, info};

use crate::call_origin::PeerAddress;
use crate::handshake_turns::HandshakeTurns;
use crate::linger::Linger;

/// A client must complete the handshake within this time, or is disconnected.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Interval at which the files are checked. SIGHUP checks them at once.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The first byte of a TLS connection. HTTP begins with a letter.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The answer for a client that speaks HTTP without TLS.
const SPEAK_TLS: &str = "{\"error\":\"this port speaks HTTPS\",\"code\":\"bad_request\"}";

/// The files of the certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of the authorities up to the root; PEM.
    pub cert: PathBuf,
    /// Its private key; PEM.
    pub key: PathBuf,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl TlsFiles {
    fn read(&self) -> anyhow::Result<Content> {
        let read = |what: &str, path: &Path| {
            fs::read(path).with_context(|| format!("cannot read the {what} {}", path.display()))
        };
        Ok(Content { cert: read("TLS certificate", &self.cert)?, key: read("TLS key", &self.key)? })
    }

    fn usable(&self, content: &Content) -> anyhow::Result<Usable> {
        let (cert, key) = (self.cert.display(), self.key.display());
        let chain = CertificateDer::pem_slice_iter(&content.cert)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{cert} is not PEM"))?;
        let Some(first) = chain.first() else { bail!("{cert} holds no certificate") };
        let expires_at_s = expires_at_s(first).unwrap_or(0);
        let private = PrivateKeyDer::from_pem_slice(&content.key)
            .with_context(|| format!("{key} holds no private key"))?;
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => {
                    anyhow::anyhow!("the key in {key} does not belong to the certificate in {cert}")
                }
                error => anyhow::anyhow!("cannot use {cert} with {key}: {error}"),
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Usable { config, expires_at_s })
    }
}

/// The outcome of the last time that the files were read.
struct LastRead {
    /// The last content that could be read.
    content: Content,
    /// The files could not be read; this is logged once.
    has_failed: bool,
}

impl LastRead {
    /// The files were read again: the content to use, or the error to log. `None` when nothing is
    /// new, unless the operator `is_asking`.
    fn next(
        &mut self,
        found: anyhow::Result<Content>,
        is_asking: bool,
    ) -> Option<anyhow::Result<&Content>> {
        let had_failed = std::mem::replace(&mut self.has_failed, found.is_err());
        match found {
            Ok(found) if found == self.content && !is_asking => None,
            Ok(found) => {
                self.content = found;
                Some(Ok(&self.content))
            }
            Err(_) if had_failed && !is_asking => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// The TLS side of a listener.
pub struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    expiry: CertificateExpiry,
    turns: HandshakeTurns,
}

/// When the TLS certificate that the host uses expires. The listener sets it with each certificate.
#[derive(Debug, Clone, Default)]
pub struct CertificateExpiry(Arc<AtomicU64>);

impl CertificateExpiry {
    /// Seconds since 1970; 0 without TLS, and for a certificate whose time cannot be read.
    pub fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set_seconds(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

/// A usable certificate with its key.
struct Usable {
    config: ServerConfig,
    /// When the certificate expires, in seconds since 1970; 0 if that cannot be read.
    expires_at_s: u64,
}

/// The end of a certificate's validity, in seconds since 1970. The library shows it only to a
/// verifier to which the certificate has expired, so it is verified for a time after all
/// certificates.
fn expires_at_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::from(u32::MAX) * 100));
    let (roots, algorithms) = (RootCertStore::empty(), aws_lc_rs::default_provider());
    let algorithms = algorithms.signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], late, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        Ok(()) | Err(_) => None,
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files, and continues to check them.
    ///
    /// # Errors
    /// When one of them cannot be read or used.
    pub fn start(files: TlsFiles) -> anyhow::Result<Arc<Self>> {
        let content = files.read()?;
        let Usable { config, expires_at_s } = files.usable(&content)?;
        let (config, expiry) = (RwLock::new(Arc::new(config)), CertificateExpiry::default());
        expiry.set_seconds(expires_at_s);
        let hang_ups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        let tls = Arc::new(Self { files, config, expiry, turns: HandshakeTurns::default() });
        tokio::spawn(tls.clone().follow(content, hang_ups));
        Ok(tls)
    }

    /// When the certificate in use expires.
    pub fn expiry(&self) -> &CertificateExpiry {
        &self.expiry
    }

    /// Uses the content of the files whenever it has changed.
    async fn follow(self: Arc<Self>, content: Content, mut hang_ups: tokio::signal::unix::Signal) {
        let mut looks = interval(CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = LastRead { content, has_failed: false };
        loop {
            let is_asked = tokio::select! {
                _ = hang_ups.recv() => true,
                _ = looks.tick() => false,
            };
            let used = match last.next(self.files.read(), is_asked) {
                None => continue,
                Some(Ok(content)) => self.files.usable(content),
                Some(Err(error)) => Err(error),
            };
            match used {
                Ok(Usable { config, expires_at_s }) => {
                    *self.config.write() = Arc::new(config);
                    self.expiry.set_seconds(expires_at_s);
                    info!("the TLS certificate was read from {}", self.files.cert.display());
                }
                Err(error) => error!(
                    "the new TLS certificate cannot be used, the previous one stays: {error:#}"
                ),
            }
        }
    }

    /// Carries out the handshake with a client.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        peer: PeerAddress,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = self.config.read().clone();
        timeout(HANDSHAKE_WAIT, async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first != [HANDSHAKE_RECORD] {
                return refuse_plaintext(stream).await;
            }
            let handshake = TlsAcceptor::from(config).accept(stream);
            self.turns.run(peer.known_as(), handshake).await
        })
        .await?
    }
}

/// Answers a client that speaks HTTP with an error in HTTP.
async fn refuse_plaintext<T>(mut stream: TcpStream) -> io::Result<T> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{SPEAK_TLS}",
        SPEAK_TLS.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    // The client may still be sending its call.
    let mut linger = Linger::begin(true);
    poll_fn(|context| linger.poll(&mut stream, context)).await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outage_of_the_files_is_reported_once() {
        let found = |text: &str| Ok(Content { cert: text.into(), key: vec![] });
        let missing = || Err(anyhow::anyhow!("missing"));
        let mut last = LastRead { content: found("1").unwrap(), has_failed: false };
        for (read, is_asking, expected) in [
            (found("1"), false, None),
            (missing(), false, Some(false)),
            (missing(), false, None),
            (missing(), true, Some(false)),
            (found("1"), false, None),
            (missing(), false, Some(false)),
            (found("2"), false, Some(true)),
            (found("2"), false, None),
            (found("2"), true, Some(true)),
            (missing(), false, Some(false)),
        ] {
            let next = last.next(read, is_asking).map(|used| used.is_ok());
            assert_eq!(next, expected);
        }
        assert_eq!(last.content.cert, b"2");
    }
}
