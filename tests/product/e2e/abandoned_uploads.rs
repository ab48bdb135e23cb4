//! Uploads and pushes whose client closes the connection before the answer: each is completed as a
//! whole, or leaves no files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use gristmill_tests::{TestHost, eventually};
use reqwest::Method;
use serde_json::Value;

use crate::handlers::echo;
use crate::registry::{begin, call, digest, manifest, push_blob, refused, send, staged};

const CONFIG: &[u8] = b"{\"architecture\":\"wasm\"}";

/// Components that differ.
fn component(number: u32) -> Vec<u8> {
    echo(&format!("abandoned {number}"))
}

/// Sends the head of a call with a body of this length, and a part of the body.
fn send_part(host: &TestHost, call: &str, part: &[u8], length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(host.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = format!(
        "{call} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n",
        host.admin_key(),
    );
    stream.write_all(&[head.as_bytes(), part].concat()).unwrap();
    stream
}

/// Sends a whole `PUT`, and closes the connection after this time.
fn abandon_put(host: &TestHost, path: &str, body: &[u8], later: Duration) {
    let _stream = send_part(host, &format!("PUT {path}"), body, body.len());
    // The subject: the time at which the client leaves.
    std::thread::sleep(later);
}

/// The files below a directory with this ending: `wasm`, `cwasm`.
fn files(directory: &Path, ending: &str) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted = |path: &Path| path.extension().is_some_and(|found| found == ending);
    let counts = entries.map(|path| match path.is_dir() {
        true => files(&path, ending),
        false => usize::from(is_wanted(&path)),
    });
    counts.sum()
}

/// Waits until the files of this many components exist, and returns the handlers' names.
async fn names_with_files(host: &TestHost) -> Vec<String> {
    let client = host.client();
    eventually("files of handlers, and no others", async || {
        let listed = client.get("/v1/handlers").await.ok();
        let listed = listed.as_array().unwrap();
        let names: Vec<_> = listed.iter().map(image).collect();
        // Two names of the same bytes share the files.
        let digests: BTreeSet<_> =
            listed.iter().map(|handler| handler["sha256"].as_str()).collect();
        let counts = [("components", "wasm"), ("artifacts", "cwasm")]
            .map(|(below, ending)| files(&host.data_dir().join(below), ending));
        (counts == [digests.len(); 2]).then_some(names)
    })
    .await
}

/// Uploads a component once there is room for it: abandoned uploads may still wait for their turn
/// to be compiled.
async fn upload(host: &TestHost, name: &str, component: &[u8]) {
    let client = host.client();
    eventually("room for another upload", async || {
        let answer = client.upload(name, component).await;
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        (answer.status == 200).then_some(())
    })
    .await;
}

/// Uploads another component, which waits for its turn behind abandoned uploads, and looks at the
/// files again.
async fn names_with_files_after_all(host: &TestHost) -> Vec<String> {
    upload(host, "marker", &component(100)).await;
    let names = names_with_files(host).await;
    assert!(names.contains(&"marker:latest".to_owned()), "{names:?}");
    names
}

fn image(handler: &Value) -> String {
    handler["image"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_its_client_abandons_leaves_no_file_without_a_name() {
    let host = TestHost::start();
    for number in 0..12 {
        let later = Duration::from_millis(15) * number;
        abandon_put(&host, &format!("/v1/handlers/a{number}"), &component(number), later);
    }
    let names = names_with_files(&host).await;
    println!("{} of 12 uploads were taken before their client left", names.len());
    // Bytes whose upload was abandoned can be uploaded again, and run.
    upload(&host, "again", &component(0)).await;
    let names = names_with_files_after_all(&host).await;
    assert!(names.contains(&"again:latest".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_its_client_abandons_is_completed_or_leaves_nothing() {
    let host = TestHost::start();
    for number in 0..12 {
        let bytes = component(number);
        let config = push_blob(&host, "pushed", CONFIG).await;
        let layer = push_blob(&host, "pushed", &bytes).await;
        let manifest = manifest((&config, CONFIG.len()), (&layer, bytes.len())).to_string();
        let path = format!("/v2/pushed/manifests/t{number}");
        let later = Duration::from_millis(15) * number;
        abandon_put(&host, &path, manifest.as_bytes(), later);
    }
    let names = names_with_files(&host).await;
    println!("{} of 12 pushes were taken before their client left", names.len());
    names_with_files_after_all(&host).await;
}

/// Its client sends all bytes again, since it knows no upload that it could continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_blob_that_its_client_abandons_leaves_nothing() {
    let host = TestHost::start();
    let named = digest(b"grain");
    let is_begun = async |is_begun: bool| {
        eventually("an upload to begin or end", async || {
            (staged(&host) == usize::from(is_begun)).then_some(())
        })
        .await;
    };
    let in_one_call = format!("POST /v2/pushed/blobs/uploads/?digest={named}");
    let stream = send_part(&host, &in_one_call, b"gra", 5);
    is_begun(true).await;
    drop(stream);
    is_begun(false).await;

    let upload = begin(&host, "pushed").await;
    let put = format!("{upload}?digest={named}");
    drop(send_part(&host, &format!("PUT {put}"), b"gra", 5));
    is_begun(false).await;
    let again = send(&host, call(&host, Method::PUT, &put).body("grain")).await;
    refused(&again, 404, "BLOB_UPLOAD_UNKNOWN");
}
