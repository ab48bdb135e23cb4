//! Exchanges over TLS with a real server: the end of a connection, and certificates.

use gristmill_core::id::{EndpointId, OwnerId};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ALL_VERSIONS, RootCertStore, ServerConfig};

use super::*;
use crate::{AddressPolicy, AddressScope, Clients, Destination};

const BODY_BYTES: usize = 16 << 20;

/// A server with TLS that answers the head of its only request, reads no body, and returns the head
/// and the bytes that come once the receiver reads: it does so when `reads` is cancelled.
async fn deaf_server(
    reads: CancellationToken,
) -> (u16, CertificateDer<'static>, JoinHandle<Option<(String, usize)>>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = cert.der().clone();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(ALL_VERSIONS)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        // A client that does not trust the certificate leaves here.
        let mut tls = TlsAcceptor::from(Arc::new(config)).accept(tcp).await.ok()?;
        let mut got = Vec::new();
        while !got.windows(4).any(|end| end == b"\r\n\r\n") {
            tls.read_buf(&mut got).await.unwrap();
        }
        tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        reads.cancelled().await;
        let (mut rest, mut buffer) = (0, vec![0; 64 << 10]);
        while let Ok(bytes @ 1..) = tls.read(&mut buffer).await {
            rest += bytes;
        }
        Some((String::from_utf8_lossy(&got).into_owned(), rest))
    });
    (port, certificate, serving)
}

#[tokio::test]
async fn a_connection_with_tls_ends_with_its_call() {
    let reads = CancellationToken::new();
    let (port, certificate, serving) = deaf_server(reads.clone()).await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(ALL_VERSIONS)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let request = Request::post(format!("https://localhost:{port}/x?y"))
        .body(reqwest::Body::from(vec![b'x'; BODY_BYTES]))
        .unwrap();
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let until = Some(Instant::now() + Duration::from_secs(10));
    let answer = exchange(request, [address].into(), Some(Arc::new(tls)), until).await.unwrap();
    let answer = reqwest::Response::from(answer.map(reqwest::Body::wrap));
    assert_eq!(answer.text().await.unwrap(), "ok");
    reads.cancel();
    let served = timeout(Duration::from_secs(10), serving).await;
    let (head, rest) = served.expect("the connection is open").unwrap().unwrap();
    assert!(head.starts_with("POST /x?y HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: localhost:{port}\r\n")), "{head}");
    assert!(head.contains(&format!("content-length: {BODY_BYTES}\r\n")), "{head}");
    assert!(head.contains("accept: */*\r\n"), "{head}");
    assert!(rest < BODY_BYTES - (64 << 10), "{rest} bytes came after the call");
}

#[tokio::test]
async fn a_certificate_that_the_system_does_not_trust_is_refused() {
    let (port, _, serving) = deaf_server(CancellationToken::new()).await;
    let clients =
        Clients::with_names(AddressPolicy::default(), |_| Ok(vec!["127.0.0.1:0".parse().unwrap()]));
    let scope = AddressScope::AnyAddress;
    let building = clients.get(scope).unwrap().get(format!("https://localhost:{port}/"));
    let request = building.build().unwrap();
    let destination = Destination::of(request.url()).unwrap();
    let (owner, endpoint) = (OwnerId::new("o").unwrap(), EndpointId::new("e").unwrap());
    let found = clients.look_up(&destination, &owner, &endpoint).await.unwrap();
    let refused = clients.send(request, &found, scope).await.unwrap_err();
    assert!(
        matches!(&refused, SendError::NotConnected(reason) if reason.contains("certificate")),
        "{refused:?}"
    );
    assert_eq!(serving.await.unwrap(), None);
}
