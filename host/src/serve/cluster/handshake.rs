//! The beginning of a connection between two hosts of one database: TLS 1.3, in which each shows
//! the other that it has a key of the hosts, and that both mean the same session.
//!
//! Each key and the number of the session make an Ed25519 key, so that all hosts can make the same
//! ones. Each side presents the one of its first key as a raw public key (RFC 7250), and accepts
//! those of all keys that it has, and nothing else: there are no names, no dates and no authority.
//! So a host that has lost its session, or a program that listens at its old address, receives no
//! call, and nobody between two hosts reads or changes a byte. With several keys in the file, hosts
//! whose first keys differ accept each other, so that the key can be replaced one host after the
//! other.
//!
//! The [`Purpose`] is the protocol that both agree on (ALPN). HTTP/2 follows: the caller is its
//! client for calls that it forwards, and its server for attempts that it runs.
//!
//! **Bounds.** TLS 1.3 only, without resumption. **Cost.** Two signatures and an exchange of keys
//! for a connection, some 0.3 ms; connections last.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::link::HostStream;

/// Longest time to connect, with the handshake.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// What precedes the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A key that the hosts of a database share.
pub(crate) type HostKey = [u8; 32];

/// The session between whose host and a caller a connection is made, with the keys of the
/// database's hosts.
#[derive(Clone)]
pub(crate) struct Membership {
    session: u64,
    caller: Arc<ClientConfig>,
    active: Arc<ServerConfig>,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Membership(session {})", self.session)
    }
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The caller forwards calls of clients.
    Calls,
    /// The caller runs attempts for the active host.
    Attempts,
}

impl Purpose {
    const ALL: [Self; 2] = [Self::Calls, Self::Attempts];

    fn protocol(self) -> &'static [u8] {
        match self {
            Self::Calls => b"gristmill-calls-1",
            Self::Attempts => b"gristmill-attempts-1",
        }
    }
}

impl Membership {
    /// A member with these keys, of which there is at least one. It shows the first, and accepts
    /// all.
    pub(crate) fn new(keys: &[HostKey], session: u64) -> Self {
        let pairs: Vec<_> = keys.iter().map(|key| key_pair(key, session)).collect();
        let public = pairs.iter().filter_map(|pair| pair.key.public_key());
        let accepted = public.map(|key| key.as_ref().to_vec()).collect();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let members = Arc::new(Members { accepted, algorithms });
        let own = pairs.into_iter().next().expect("the hosts have a key");
        let (caller, active) = configs(&provider, &members, own).expect("the provider has TLS 1.3");
        Self { session, caller: Arc::new(caller), active: Arc::new(active) }
    }

    /// Connects to the active host.
    ///
    /// # Errors
    /// As [`Self::call`], and of kind [`TimedOut`](io::ErrorKind::TimedOut) after
    /// [`CONNECT_TIME_MAX`].
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        purpose: Purpose,
    ) -> io::Result<client::TlsStream<HostStream>> {
        let connect = async {
            let stream = HostStream::new(TcpStream::connect(address).await?)?;
            self.call(stream, purpose).await
        };
        timeout(CONNECT_TIME_MAX, connect).await?
    }

    /// The side of a host that stands by.
    ///
    /// # Errors
    /// Those of the connection, and of kind [`InvalidData`](io::ErrorKind::InvalidData) when the
    /// other side does not own the session. Whether that side accepts this one is seen later: by
    /// the end of the connection.
    pub(crate) async fn call<IO>(
        &self,
        stream: IO,
        purpose: Purpose,
    ) -> io::Result<client::TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut config = ClientConfig::clone(&self.caller);
        config.alpn_protocols = vec![purpose.protocol().to_vec()];
        // No part of the handshake.
        let name = ServerName::try_from("gristmill").map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(agreed) if agreed == purpose.protocol() => Ok(stream),
            _ => Err(denied("it is no host of this version")),
        }
    }

    /// The side of the active host.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn accept<IO>(
        &self,
        stream: IO,
    ) -> io::Result<(server::TlsStream<IO>, Purpose)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.active.clone()).accept(stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        let purpose = Purpose::ALL.into_iter().find(|of| agreed == Some(of.protocol()));
        let purpose = purpose.ok_or_else(|| denied("it is no host of this version"))?;
        Ok((stream, purpose))
    }
}

fn denied(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The settings of a caller, and of the active host.
fn configs(
    provider: &Arc<CryptoProvider>,
    members: &Arc<Members>,
    own: CertifiedKey,
) -> Result<(ClientConfig, ServerConfig), Error> {
    let own = Arc::new(own);
    let mut caller = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(members.clone())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.clone())));
    caller.resumption = Resumption::disabled();
    caller.enable_sni = false;
    let mut active = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(members.clone())
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    active.session_storage = Arc::new(NoServerSessionStorage {});
    active.send_tls13_tickets = 0;
    active.alpn_protocols = Purpose::ALL.map(|purpose| purpose.protocol().to_vec()).into();
    Ok((caller, active))
}

/// The key of a member in this session.
fn key_pair(key: &HostKey, session: u64) -> CertifiedKey {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC has keys of any length");
    let seed = mac.chain_update(b"tls").chain_update(session.to_be_bytes()).finalize().into_bytes();
    let private = PrivatePkcs8KeyDer::from([&PKCS8_HEAD[..], &seed].concat());
    let private = aws_lc_rs::sign::any_eddsa_type(&private).expect("32 bytes are an Ed25519 key");
    let public = private.public_key().map(|key| CertificateDer::from(key.to_vec()));
    CertifiedKey::new(public.into_iter().collect(), private)
}

/// Accepts the hosts of a session.
#[derive(Debug)]
struct Members {
    /// Their public keys.
    accepted: Vec<Vec<u8>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Members {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match self.accepted.iter().any(|key| key[..] == shown[..]) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let shown = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &shown, signature, &self.algorithms)
    }
}

fn no_tls12() -> Error {
    PeerIncompatible::ServerDoesNotSupportTls12Or13.into()
}

impl ServerCertVerifier for Members {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
