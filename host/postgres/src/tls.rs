//! TLS to the database, with the provider of cryptography that the host has already.
//!
//! The modes are those of PostgreSQL's own programs. `prefer`, the default, and `require` encrypt,
//! and protect from readers of the network only: they accept any certificate. `require` with a file
//! of certificates, and `verify-ca`, accept certificates of these authorities; `verify-full` also
//! compares the name of the server. A certificate that is in the file itself is accepted as if an
//! authority had signed it.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::{TlsConnector, client};

/// What the certificate of the server must prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// Makes encrypted connections.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Connections to servers whose certificates prove this, by the authorities in the file.
    ///
    /// # Errors
    /// A sentence about the file.
    pub(crate) fn new(proof: Proof, authorities: Option<&Path>) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = match authorities {
            None => Vec::new(),
            Some(file) => {
                read(file).map_err(|error| format!("sslrootcert `{}`: {error}", file.display()))?
            }
        };
        let mut store = RootCertStore::empty();
        // A certificate of no authority is accepted as it is.
        store.add_parsable_certificates(roots.iter().cloned());
        let chain = match store.is_empty() {
            true => None,
            false => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone());
                Some(builder.build().map_err(|error| error.to_string())?)
            }
        };
        let verifier = Verifier { proof, roots, chain, provider: provider.clone() };
        let builder = ClientConfig::builder_with_provider(provider);
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        Ok(Self(Arc::new(builder.with_no_client_auth())))
    }
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("it has no certificate in PEM".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Decides about certificates by the mode.
#[derive(Debug)]
struct Verifier {
    proof: Proof,
    roots: Vec<CertificateDer<'static>>,
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let accepted = ServerCertVerified::assertion();
        if self.proof == Proof::Nothing {
            return Ok(accepted);
        }
        if self.roots.iter().any(|root| root == end_entity) {
            if self.proof == Proof::AuthorityAndName {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(accepted);
        }
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let chain = self.chain.as_ref().ok_or_else(unknown)?;
        let verified =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is compared last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.proof == Proof::Authority => Ok(accepted),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection to the server with this name, before its handshake.
pub(crate) struct Handshake {
    connector: TlsConnector,
    server: String,
}

/// An encrypted connection.
pub(crate) struct Encrypted<S>(client::TlsStream<S>);

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    /// Also called for a Unix socket, without a name, where no handshake follows.
    fn make_tls_connect(&mut self, server: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: self.0.clone().into(), server: server.to_owned() })
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let server = ServerName::try_from(self.server).map_err(io::Error::other)?;
            self.connector.connect(server, stream).await.map(Encrypted)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
