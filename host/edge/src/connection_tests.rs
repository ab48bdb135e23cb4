//! The ends of connections whose calls are refused, on HTTP/1.1 and HTTP/2.

use bytes::Bytes;
use futures::future::BoxFuture;
use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::sharing::tenancy::Tenancy;
use http_body_util::Full;
use hyper::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::activity::REFUSED_MAX;
use crate::addresses::{AddressBound, Addresses, AllBound};
use crate::connection_shares::ConnectionShares;

/// Answers each path with its status. All calls but those of `/key` have no valid key; the key is
/// revoked when `/livez` is called.
#[derive(Clone)]
struct Paths;

impl Answerer for Paths {
    type Body = Full<Bytes>;

    fn client(&self, peer: PeerAddress, _: &mut HeaderMap) -> PeerAddress {
        peer
    }

    fn answer(
        self,
        request: Request<RequestBody>,
        origin: Arc<CallOrigin>,
    ) -> BoxFuture<'static, Response<Self::Body>> {
        let path = request.uri().path();
        let status = match path {
            "/key" => {
                let (owner, key) = (OwnerId::new("a").unwrap(), KeyId::new("k").unwrap());
                origin.record_key(&owner, &key).unwrap();
                200
            }
            "/revoked" => {
                origin.record_no_key();
                401
            }
            "/livez" => 200,
            "/many" => 429,
            other => panic!("{other}"),
        };
        origin.end_of_call(|_| path != "/livez");
        async move { empty(StatusCode::from_u16(status).unwrap()) }.boxed()
    }

    async fn over_budget(_: &str, answer: Response<Self::Body>) -> Response<Self::Body> {
        answer
    }
}

/// A connection that is served, and its client.
fn served() -> DuplexStream {
    let (client, stream) = duplex(64 << 10);
    let of_address = AddressBound { connections_max: 9, is_for_loopback: true };
    let addresses =
        Addresses::new(of_address, AllBound { connections_max: 16, bytes_max: 1 << 20 });
    let peer = PeerAddress([192, 0, 2, 1].into());
    let (account, auth) = (addresses.admit(peer), ConnectionShares::new(16).connection());
    let budget = Arc::new(ResponseBudget::new(Tenancy::default()));
    let server = Server::new(Paths, Duration::from_secs(75), budget, CancellationToken::new());
    tokio::spawn(async move { server.serve(stream, peer, auth, account).await });
    client
}

/// The head of the next answer; `None` when the connection is closed instead.
async fn head(client: &mut DuplexStream) -> Option<String> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Calls the paths in turn on HTTP/1.1, until an answer announces the end of the connection, and
/// returns how many there were. At most `calls`.
async fn answers_of_http1(paths: &[&str], calls: usize) -> usize {
    let mut client = served();
    for (number, path) in paths.iter().cycle().take(calls).enumerate() {
        let call = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        client.write_all(call.as_bytes()).await.unwrap();
        let head = head(&mut client).await.expect("an answer");
        if head.contains("connection: close\r\n") {
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is closed after that");
            return number + 1;
        }
    }
    calls
}

/// The same on HTTP/2, where the client asks on and on, until the host cuts it off.
async fn answers_of_http2(paths: &[&str], calls: usize) -> usize {
    let mut client = served();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    for (number, path) in paths.iter().cycle().take(calls).enumerate() {
        // The fields are `:method: GET`, `:scheme: http`, `:authority: x` and `:path`.
        let mut fields = b"\x82\x86\x41\x01x\x44".to_vec();
        fields.push(u8::try_from(path.len()).unwrap());
        fields.extend(path.as_bytes());
        let mut frame = vec![0, 0, u8::try_from(fields.len()).unwrap(), 1, 5];
        frame.extend((2 * u32::try_from(number).unwrap() + 1).to_be_bytes());
        frame.extend(fields);
        if client.write_all(&frame).await.is_err() || !is_answered(&mut client).await {
            return number;
        }
    }
    calls
}

/// Reads frames up to the head of an answer. Returns whether there is one.
async fn is_answered(client: &mut DuplexStream) -> bool {
    loop {
        let mut start = [0; 9];
        if client.read_exact(&mut start).await.is_err() {
            return false;
        }
        let length = u32::from_be_bytes([0, start[0], start[1], start[2]]);
        let mut rest = vec![0; length as usize];
        if client.read_exact(&mut rest).await.is_err() {
            return false;
        }
        if start[3] == 1 {
            return true;
        }
    }
}

#[tokio::test]
async fn a_connection_ends_after_refusals_unless_a_valid_key_comes_between_them() {
    const CALLS: usize = 100;
    let cases: [(&[&str], usize, usize); 5] = [
        (&["/many"], REFUSED_MAX, 2 * REFUSED_MAX),
        (&["/livez"], CALLS, CALLS),
        (&["/key"], CALLS, CALLS),
        (&["/many", "/many", "/many", "/key"], CALLS, CALLS),
        (&["/revoked"], CALLS, CALLS),
    ];
    for (paths, on_http1, on_http2) in cases {
        // Never had a key: the rate of an address bounds 401s.
        let answers = timeout(Duration::from_secs(60), answers_of_http1(paths, CALLS)).await;
        assert_eq!(answers, Ok(on_http1), "HTTP/1.1, {paths:?}");
        let answers = timeout(Duration::from_secs(60), answers_of_http2(paths, CALLS)).await;
        assert_eq!(answers, Ok(on_http2), "HTTP/2, {paths:?}");
    }
}

#[tokio::test]
async fn a_client_of_http_2_that_has_lost_its_key_and_goes_on_is_cut_off() {
    for path in ["/revoked", "/livez", "/many"] {
        let mut paths = vec!["/key"];
        paths.extend([path; 200]);
        let answers = timeout(Duration::from_secs(60), answers_of_http2(&paths, 201)).await;
        assert_eq!(answers, Ok(1 + 2 * REFUSED_MAX), "{path}");
    }
}
