//! A receiver that answers before it reads, and the URLs that a sender permits or refuses.

use bytes::Bytes;
use gristmill_core::id::{EndpointId, OwnerId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// The receiver takes the kernel's buffers only, so most of the body waits in the host.
#[tokio::test]
async fn a_connection_ends_with_its_call_whatever_the_receiver_does() {
    const BODY_BYTES: usize = 16 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 16]).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        socket
    });
    let allowed = vec![address.to_string().parse().unwrap()];
    let sender = HttpSender::new(allowed, AddressPolicy::default());
    let call = WebhookCall {
        owner: OwnerId::new("o").unwrap(),
        endpoint: EndpointId::new("e").unwrap(),
        url: format!("http://{address}/"),
        id: "id".to_owned(),
        timestamp_s: 1,
        signature: "v1,x".to_owned(),
        trace: None,
        body: Bytes::from(vec![b'x'; BODY_BYTES]),
    };
    assert_eq!(sender.send(call).await, CallEnd::Answered(200));
    let mut socket = receiver.await.unwrap();
    let (mut rest, mut buffer) = (0, vec![0; 64 << 10]);
    let reading = async {
        while let Ok(bytes @ 1..) = socket.read(&mut buffer).await {
            rest += bytes;
        }
    };
    let ended = tokio::time::timeout(CALL_TIMEOUT, reading).await;
    assert!(ended.is_ok(), "the connection is open");
    assert!(rest < BODY_BYTES - (64 << 10), "{rest} bytes came after the call");
}

#[test]
fn only_what_the_operator_names_may_be_inside() {
    let allowed = ["127.0.0.1:9000", "hooks.lan"].map(|host| host.parse().unwrap());
    let sender = HttpSender::new(allowed.into(), AddressPolicy::default());
    let scope = |url: &str| sender.check(url).map(|(_, _, scope)| scope);
    assert_eq!(scope("http://127.0.0.1:9000/x"), Ok(AddressScope::AnyAddress));
    assert_eq!(scope("https://hooks.lan/"), Ok(AddressScope::AnyAddress));
    assert_eq!(scope("https://example.com/"), Ok(AddressScope::PublicAddresses));
    assert_eq!(
        scope("http://hooks.internal/"),
        Ok(AddressScope::PublicAddresses),
        "seen when resolved"
    );
    for (url, option) in [
        ("http://[::1]/", "`serve --webhook-allow [::1]:80`"),
        ("http://localhost:9000/x", "`serve --webhook-allow localhost:9000`"),
    ] {
        let refused = scope(url).unwrap_err().to_string();
        assert!(refused.contains("not public") && refused.contains(option), "{refused}");
    }
    let allowed = vec!["[::1]:80".parse().unwrap()];
    let permitting = HttpSender::new(allowed, AddressPolicy::default());
    assert!(permitting.check("http://[::1]/").is_ok(), "the option is as it is written");
    for refused in [
        "http://127.0.0.1:9001/",
        "http://169.254.169.254/latest",
        "http://[::1]/",
        "http://2130706433/",
        "http://localhost/",
        "https://a.localhost/",
        "http://user@example.com/",
        "http://:word@127.0.0.1:9000/",
        "ftp://example.com/",
        "nonsense",
    ] {
        assert!(scope(refused).is_err(), "{refused}");
    }
}
