//! HTTPS: the served protocols and certificates.

use std::fs;
use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_tests::{PATIENCE, TestHost, command, eventually, guests};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::authority::Authority;
use gristmill_tests::http2::Http2;

fn start(authority: &Authority) -> TestHost {
    let (cert, key) = authority.files();
    TestHost::start_with_tls(&authority.pem, &cert, &key, &[])
}

/// A connection on which the client offers these protocols.
async fn connect(
    host: &TestHost,
    authority: &Authority,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// The certificate of a new connection.
async fn shown(host: &TestHost, authority: &Authority) -> CertificateDer<'static> {
    let stream = connect(host, authority, &[]).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn hang_up(host: &TestHost) {
    let pid = i32::try_from(host.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

#[tokio::test]
async fn both_versions_of_http_are_served() {
    let authority = Authority::new();
    authority.write(&authority.sign());
    let host = start(&authority);
    assert!(host.url().starts_with("https://127.0.0.1:"), "{}", host.ready());
    let endpoint = host.deploy(&guests::echo(), "tls", json!({})).await;
    let answer = host.client().run_sync(&endpoint, "", json!({ "grain": 1 })).await.ok();
    assert_eq!(answer["output"], json!({ "grain": 1 }));

    let stream = connect(&host, &authority, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = Http2::begin(stream).await;
    http2.get(1, "/openapi.json", &[]).await;
    assert_eq!(http2.status_of(1).await, 200);

    let mut stream = connect(&host, &authority, &["http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(b"GET /openapi.json HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_drops_no_call() {
    let authority = Authority::new();
    let first = authority.sign();
    authority.write(&first);
    let host = start(&authority);
    let endpoint = host.deploy(&guests::playground(), "tls-reload", json!({})).await;
    assert_eq!(shown(&host, &authority).await, first.der);

    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            // Each has its own connections, which stay open.
            let (client, stop, endpoint) = (host.client(), stop.clone(), endpoint.clone());
            tokio::spawn(async move {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    let input = json!({ "op": "sleep", "ms": 20 });
                    let document = client.run_sync(&endpoint, "", input).await.ok();
                    assert_eq!(document["status"], "COMPLETED", "{document}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let (client, slow) = (host.client(), endpoint.clone());
    let slow = tokio::spawn(async move {
        client.run_sync(&slow, "", json!({ "op": "sleep", "ms": 3_000 })).await.ok()
    });
    for _ in 0..5 {
        let next = authority.sign();
        authority.write(&next);
        hang_up(&host);
        eventually("the new certificate", async || {
            (shown(&host, &authority).await == next.der).then_some(())
        })
        .await;
    }
    assert_eq!(slow.await.unwrap()["status"], "COMPLETED");
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
}

/// The metric has the end of the certificate that the host uses, whatever is in the file.
#[tokio::test]
async fn the_metric_of_the_expiry_follows_the_certificate() {
    let authority = Authority::new();
    authority.write(&authority.sign_until(2_030));
    let host = start(&authority);
    let expiry = async || {
        let text = host.client().get("/metrics").await.text;
        let name = "gristmill_certificate_expiry_timestamp_seconds ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap()
    };
    assert_eq!(expiry().await, 1_893_456_000);
    let next = authority.sign_until(2_031);
    authority.write(&next);
    hang_up(&host);
    eventually("the new certificate", async || (expiry().await == 1_924_992_000).then_some(()))
        .await;
    let (cert, _) = authority.files();
    fs::write(cert, "no certificate").unwrap();
    hang_up(&host);
    eventually("the error in the log", async || {
        host.log().contains("the new TLS certificate cannot be used").then_some(())
    })
    .await;
    assert_eq!(expiry().await, 1_924_992_000, "the previous one stays");
    let without = TestHost::start();
    let text = without.client().get("/metrics").await.text;
    assert!(text.contains("gristmill_certificate_expiry_timestamp_seconds 0\n"), "{text}");
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_one_before() {
    let authority = Authority::new();
    let (first, second) = (authority.sign(), authority.sign());
    authority.write(&first);
    let host = start(&authority);
    let (cert, key) = authority.files();
    let complaints = || host.log().matches("the previous one stays").count();
    // The certificate without its key, an empty file, a missing file.
    let breaks: [&dyn Fn(); 3] = [
        &|| fs::write(&cert, &second.cert).unwrap(),
        &|| fs::write(&cert, "grain").unwrap(),
        &|| fs::remove_file(&cert).unwrap(),
    ];
    for broken in breaks {
        let before = complaints();
        broken();
        hang_up(&host);
        eventually("a complaint", async || (complaints() > before).then_some(())).await;
        assert_eq!(shown(&host, &authority).await, first.der);
    }
    let log = host.log();
    for words in ["does not belong to the certificate", "holds no certificate", "cannot read the"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    // A usable certificate is found without a signal.
    fs::write(&key, &second.key).unwrap();
    fs::write(&cert, &second.cert).unwrap();
    eventually("the new certificate", async || {
        (shown(&host, &authority).await == second.der).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_client_without_tls_gets_an_explanation() {
    let authority = Authority::new();
    authority.write(&authority.sign());
    let host = start(&authority);
    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    stream.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with(r#"{"error":"this port speaks HTTPS","code":"bad_request"}"#));
    host.client().get("/openapi.json").await.ok();
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up() {
    let authority = Authority::new();
    authority.write(&authority.sign());
    let host = start(&authority);
    let mut silent = TcpStream::connect(host.address()).await.unwrap();
    let mut half = TcpStream::connect(host.address()).await.unwrap();
    // The beginning of a record that announces more bytes.
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    for stream in [&mut silent, &mut half] {
        let read = timeout(PATIENCE, stream.read(&mut [0; 64])).await.expect("it is closed");
        let is_closed = read
            .as_ref()
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |count| *count == 0);
        assert!(is_closed, "{read:?}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let (signed, other) = (authority.sign(), authority.sign());
    let file = |name: &str, text: &str| {
        let path = authority.dir().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cert, key) = (file("a.pem", &signed.cert), file("a.key", &signed.key));
    let (text, wrong) = (file("text", "grain"), file("b.key", &other.key));
    let missing = authority.dir().join("missing").to_str().unwrap().to_owned();
    let cases = [
        ((&missing, &key), vec!["cannot read the TLS certificate", &missing, "No such file"]),
        ((&cert, &missing), vec!["cannot read the TLS key", &missing]),
        ((&text, &key), vec![&text, "holds no certificate"]),
        ((&cert, &text), vec![&text, "holds no private key"]),
        ((&cert, &wrong), vec![&wrong, "does not belong to the certificate in", &cert]),
    ];
    for ((cert, key), words) in cases {
        let output = command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(authority.dir().join("data"))
            .args(["--tls-cert", cert, "--tls-key", key])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    }
    let output = command().args(["serve", "--tls-cert", &cert]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tls-key"));
}

#[tokio::test]
async fn commands_trust_the_given_authority() {
    let authority = Authority::new();
    authority.write(&authority.sign());
    let host = start(&authority);
    let endpoint = host.deploy(&guests::echo(), "tls-cli", json!({})).await;
    let run = |authority: Option<&str>| {
        let mut command = command();
        command.args(["submit", &endpoint, "--input", "{\"grain\":1}", "--wait"]);
        command.env("GRISTMILL_URL", host.url()).env("GRISTMILL_API_KEY", host.admin_key());
        if let Some(authority) = authority {
            command.args(["--ca-cert", authority]);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let file = authority.pem_file();
    let (code, out, said) = run(file.to_str());
    assert_eq!((code, out.as_str()), (0, "{\"grain\":1}"), "{said}");
    let (code, _, said) = run(None);
    assert_eq!(code, 1);
    assert!(said.contains("that this machine trusts; name its authority with --ca-cert"), "{said}");
    let other = Authority::new().pem_file();
    let (code, _, said) = run(other.to_str());
    assert!(code == 1 && said.contains("cannot read"), "its directory is removed: {said}");
}

/// A service manager sends the signal to every host, and its default would end the process.
#[tokio::test]
async fn a_request_to_reload_does_not_end_a_host_without_tls() {
    let host = TestHost::start();
    hang_up(&host);
    eventually("the line of the log", async || {
        host.log().contains("SIGHUP changes nothing").then_some(())
    })
    .await;
    assert_eq!(host.client().get("/livez").await.status, 200);
}
