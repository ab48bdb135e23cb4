//! The host as a registry, driven by a third-party client and, where that is not enough, by hand.

use data_encoding::HEXLOWER;
use gristmill_tests::{Answer, Client, TestHost, eventually, guests, shared_host};
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client as OciClient, Reference};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::handlers::echo;

const LAYER: &str = "application/wasm";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A client that pushes blobs whole or in pieces.
pub(crate) fn oci_client(use_monolithic_push: bool) -> OciClient {
    let protocol = ClientProtocol::Http;
    OciClient::new(ClientConfig { protocol, use_monolithic_push, ..ClientConfig::default() })
}

pub(crate) fn reference(registry: &str, image: &str) -> Reference {
    format!("{registry}/{image}").parse().unwrap()
}

fn login(key: &str) -> RegistryAuth {
    RegistryAuth::Basic("anybody".into(), key.into())
}

/// Pushes a component like `wkg`; returns the registry's name for it.
pub(crate) async fn push(
    client: &OciClient,
    image: &Reference,
    auth: &RegistryAuth,
    component: Vec<u8>,
) -> Result<String, String> {
    let layers = [ImageLayer::new(component, LAYER.into(), None)];
    let config = Config::new(b"{\"architecture\":\"wasm\"}".to_vec(), CONFIG.into(), None);
    let pushed = client.push(image, &layers, config, auth, None).await;
    pushed.map(|pushed| pushed.manifest_url).map_err(|error| error.to_string())
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// The OCI error that a call was refused with.
pub(crate) fn refused(answer: &Answer, status: u16, code: &str) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    let error = &answer.json()["errors"][0];
    assert_eq!(error["code"], code, "{answer:?}");
    error["message"].as_str().unwrap().to_owned()
}

/// A call of the registry's paths.
pub(crate) fn call(host: &TestHost, method: Method, path: &str) -> RequestBuilder {
    let path = if path.starts_with("/v2") { path.to_owned() } else { format!("/v2/{path}") };
    host.client().request(method, &path)
}

pub(crate) async fn send(host: &TestHost, request: RequestBuilder) -> Answer {
    host.client().send(request).await
}

/// Begins an upload; returns its location.
pub(crate) async fn begin(host: &TestHost, name: &str) -> String {
    let begun = send(host, call(host, Method::POST, &format!("{name}/blobs/uploads/"))).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    begun.header("location").unwrap().to_owned()
}

/// Pushes a blob in one call.
pub(crate) async fn push_blob(host: &TestHost, name: &str, bytes: &[u8]) -> String {
    let digest = digest(bytes);
    let path = format!("{name}/blobs/uploads/?digest={digest}");
    let pushed = send(host, call(host, Method::POST, &path).body(bytes.to_vec())).await;
    assert_eq!((pushed.status, pushed.header("docker-content-digest")), (201, Some(&*digest)));
    digest
}

pub(crate) fn manifest(config: (&str, usize), layer: (&str, usize)) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": config.0, "size": config.1 },
        "layers": [{ "mediaType": LAYER, "digest": layer.0, "size": layer.1 }],
    })
}

pub(crate) async fn push_manifest(
    host: &TestHost,
    name: &str,
    tag: &str,
    manifest: &Value,
) -> Answer {
    let request = call(host, Method::PUT, &format!("{name}/manifests/{tag}"));
    send(host, request.header("content-type", MANIFEST).body(manifest.to_string())).await
}

pub(crate) fn staged(host: &TestHost) -> usize {
    let files = std::fs::read_dir(host.data_dir().join("components")).unwrap();
    files
        .filter(|file| file.as_ref().unwrap().file_name().as_encoded_bytes().ends_with(b".tmp"))
        .count()
}

#[tokio::test]
async fn a_pushed_image_is_a_handler_and_is_pulled_unchanged() {
    let host = shared_host();
    let auth = login(host.admin_key());
    for (tag, is_whole) in [("whole", true), ("pieces", false)] {
        let component = echo(tag);
        let image = reference(host.address(), &format!("pushed:{tag}"));
        let client = oci_client(is_whole);
        push(&client, &image, &auth, component.clone()).await.unwrap();
        let handler = host.client.get(&format!("/v1/handlers/pushed:{tag}")).await.ok();
        assert_eq!(format!("sha256:{}", handler["sha256"].as_str().unwrap()), digest(&component));
        let name = format!("pushed:{tag}");
        let endpoint = host.deploy_image(&name, &format!("p-{tag}"), json!({})).await;
        let document = host.client.finish(&endpoint, json!({ "grain": tag })).await;
        assert_eq!(document["output"], json!({ "grain": tag }));

        let fetched = client.pull(&image, &auth, vec![LAYER]).await.unwrap();
        assert_eq!(fetched.layers[0].data, component);
        let named = fetched.digest.unwrap();
        let by_digest = reference(host.address(), &format!("pushed@{named}"));
        let (text, again) = client.pull_manifest_raw(&by_digest, &auth, &[MANIFEST]).await.unwrap();
        assert_eq!((digest(&text), &again), (named.clone(), &named));
        let head = client.fetch_manifest_digest(&image, &auth).await.unwrap();
        assert_eq!(head, named);
    }
    let tags = client_tags(&host, "pushed").await;
    assert_eq!(tags, ["pieces", "whole"]);
}

async fn client_tags(host: &TestHost, name: &str) -> Vec<String> {
    let image = reference(host.address(), name);
    let auth = login(host.admin_key());
    oci_client(false).list_tags(&image, &auth, None, None).await.unwrap().tags
}

#[tokio::test]
async fn an_uploaded_handler_can_be_pulled() {
    let host = shared_host();
    let component = echo("uploaded");
    host.upload("fetched:1", component.clone()).await.ok();
    host.upload("fetched:2", component.clone()).await.ok();
    let auth = login(host.admin_key());
    let image = reference(host.address(), "fetched:1");
    let fetched = oci_client(false).pull(&image, &auth, vec![LAYER]).await.unwrap();
    assert_eq!(fetched.layers[0].data, component);
    let config: Value = serde_json::from_slice(&fetched.config.data).unwrap();
    assert_eq!(config["layerDigests"][0], digest(&component), "{config}");
    let page = send(&host, call(&host, Method::GET, "fetched/tags/list?n=1")).await;
    assert_eq!(page.ok()["tags"], json!(["1"]));
    let next = page.header("link").unwrap();
    assert_eq!(next, "</v2/fetched/tags/list?n=1&last=1>; rel=\"next\"");
    let page = send(&host, call(&host, Method::GET, "fetched/tags/list?n=1&last=1")).await;
    assert_eq!((page.ok()["tags"].clone(), page.header("link")), (json!(["2"]), None));
}

#[tokio::test]
async fn a_component_that_cannot_run_here_is_refused_and_says_why() {
    let host = shared_host();
    let image = reference(host.address(), "refused:1");
    let component = wat::parse_str("(component)").unwrap();
    let auth = login(host.admin_key());
    let error = push(&oci_client(false), &image, &auth, component).await.unwrap_err();
    assert!(error.contains("not a handler"), "{error}");
    let missing = send(&host, call(&host, Method::GET, "refused/manifests/1")).await;
    refused(&missing, 404, "MANIFEST_UNKNOWN");
    host.client.get("/v1/handlers/refused:1").await.refused(404);
}

#[tokio::test]
async fn an_unauthenticated_call_gets_a_challenge_and_nothing_else() {
    let host = shared_host();
    let unauthenticated = host.client.with_authorization(None);
    for (method, path) in [
        (Method::GET, "/v2/"),
        (Method::GET, "/v2/echo/manifests/latest"),
        (Method::GET, "/v2/echo/tags/list"),
        (Method::GET, &*format!("/v2/echo/blobs/{}", digest(b""))),
        (Method::POST, "/v2/echo/blobs/uploads/"),
        (Method::PUT, "/v2/echo/manifests/latest"),
        (Method::PATCH, "/v2/echo/blobs/uploads/0"),
    ] {
        let answer = unauthenticated.send(unauthenticated.request(method, path)).await;
        refused(&answer, 401, "UNAUTHORIZED");
        assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"gristmill\""));
    }
    let made = json!({ "name": "reader", "scopes": ["submit"] });
    let key = host.client.post("/v1/keys", &made).await.ok()["key"].as_str().unwrap().to_owned();
    let image = reference(host.address(), "nobody:1");
    for wrong in ["", "wrong", &*key] {
        let pushed = push(&oci_client(false), &image, &login(wrong), echo("no")).await;
        assert!(pushed.is_err(), "{wrong}");
    }
    let basic = |value: &str| host.client.with_authorization(Some(value));
    for value in ["Basic", "Basic !", "Basic Z206", "Digest x", "Basic Z20="] {
        let client: Client = basic(value);
        refused(&client.get("/v2/").await, 401, "UNAUTHORIZED");
    }
    let known = host.client.get("/v2/").await;
    assert_eq!((known.status, &*known.text), (200, "{}"));
    assert_eq!(known.header("docker-distribution-api-version"), Some("registry/2.0"));
}

#[tokio::test]
async fn pieces_come_in_order_and_their_digest_is_checked() {
    let host = TestHost::start();
    let upload = begin(&host, "mill").await;
    let add = async |range: &str, bytes: &'static str| {
        let request = call(&host, Method::PATCH, &upload).header("content-range", range);
        send(&host, request.body(bytes)).await
    };
    let added = add("0-2", "abc").await;
    assert_eq!((added.status, added.header("range")), (202, Some("0-2")), "{added:?}");
    for range in ["2-4", "4-6", "x", "-3"] {
        refused(&add(range, "def").await, 416, "BLOB_UPLOAD_INVALID");
    }
    let told = send(&host, call(&host, Method::GET, &upload)).await;
    assert_eq!((told.status, told.header("range")), (204, Some("0-2")));
    assert_eq!(add("3-5", "def").await.status, 202);
    assert_eq!(staged(&host), 1);
    let finish = async |digest: &str| {
        send(&host, call(&host, Method::PUT, &format!("{upload}?digest={digest}"))).await
    };
    refused(&send(&host, call(&host, Method::PUT, &upload)).await, 400, "DIGEST_INVALID");
    let sentence = refused(&finish(&digest(b"other")).await, 400, "DIGEST_INVALID");
    assert!(sentence.contains(&digest(b"abcdef")), "{sentence}");
    refused(&finish(&digest(b"abcdef")).await, 404, "BLOB_UPLOAD_UNKNOWN");
    assert_eq!(staged(&host), 0, "an upload with a wrong digest goes");

    let upload = begin(&host, "mill").await;
    let path = format!("{upload}?digest=sha512:{}", "0".repeat(128));
    let unsupported = send(&host, call(&host, Method::PUT, &path).body("abc")).await;
    refused(&unsupported, 400, "DIGEST_INVALID");
    assert_eq!(staged(&host), 0, "nor does one with a digest that is not supported stay");

    let upload = begin(&host, "mill").await;
    assert_eq!(send(&host, call(&host, Method::DELETE, &upload)).await.status, 204);
    refused(&send(&host, call(&host, Method::GET, &upload)).await, 404, "BLOB_UPLOAD_UNKNOWN");
    assert_eq!(staged(&host), 0);
}

#[tokio::test]
async fn a_manifest_names_what_was_pushed_under_its_name() {
    let host = TestHost::start();
    let component = echo("manifest");
    let layer = push_blob(&host, "mill", &component).await;
    let config = push_blob(&host, "mill", b"{}").await;
    let known = send(&host, call(&host, Method::HEAD, &format!("mill/blobs/{layer}"))).await;
    assert_eq!(known.status, 200);
    assert_eq!(known.header("content-length"), Some(&*component.len().to_string()));
    for path in [format!("other/blobs/{layer}"), format!("mill/blobs/{}", digest(b"x"))] {
        assert_eq!(send(&host, call(&host, Method::HEAD, &path)).await.status, 404, "{path}");
    }
    let right = manifest((&config, 2), (&layer, component.len()));
    let elsewhere = push_manifest(&host, "other", "1", &right).await;
    refused(&elsewhere, 404, "MANIFEST_BLOB_UNKNOWN");
    let wrong_size = manifest((&config, 3), (&layer, component.len()));
    refused(&push_manifest(&host, "mill", "1", &wrong_size).await, 404, "MANIFEST_BLOB_UNKNOWN");
    for (wrong, word) in [
        (json!({}), "schemaVersion"),
        (manifest((&config, 2), (&layer, 1 << 40)), "limit"),
        (manifest(("sha512:00", 2), (&layer, 9)), "sha512"),
        (json!({ "schemaVersion": 2, "manifests": [] }), "index"),
        (json!({ "schemaVersion": 2, "config": right["config"], "layers": [] }), "0 layers"),
    ] {
        let answer = push_manifest(&host, "mill", "1", &wrong).await;
        let sentence = refused(&answer, 400, "MANIFEST_INVALID");
        assert!(sentence.contains(word), "{sentence}");
    }
    // The blobs of a refused manifest are dropped.
    assert_eq!(staged(&host), 0);
    push_blob(&host, "mill", &component).await;
    push_blob(&host, "mill", b"{}").await;
    let huge = json!({ "padding": "x".repeat(70_000) });
    refused(&push_manifest(&host, "mill", "1", &huge).await, 413, "SIZE_INVALID");
    let pushed = push_manifest(&host, "mill", "1", &right).await;
    assert_eq!(pushed.status, 201, "{pushed:?}");
    let named = digest(right.to_string().as_bytes());
    assert_eq!(pushed.header("docker-content-digest"), Some(&*named));
    assert_eq!(pushed.header("location"), Some(&*format!("/v2/mill/manifests/{named}")));
    // A second tag needs no second push of the blobs.
    assert_eq!(push_manifest(&host, "mill", "2", &right).await.status, 201);
    assert_eq!(staged(&host), 0);
    let by_digest = push_manifest(&host, "mill", &named, &right).await;
    refused(&by_digest, 400, "UNSUPPORTED");
    let answer = send(&host, call(&host, Method::GET, &format!("mill/manifests/{named}"))).await;
    assert_eq!((answer.status, answer.text), (200, right.to_string()));
}

#[tokio::test]
async fn uploads_are_bounded_in_size_and_number() {
    let host = TestHost::start();
    let upload = begin(&host, "mill").await;
    let piece = vec![7_u8; 24 << 20];
    for status in [202, 202, 413] {
        let request = call(&host, Method::PATCH, &upload).body(piece.clone());
        let answer = host.client().try_send(request).await;
        // A client that is still sending may see the connection close instead.
        let seen = answer.map_or(413, |answer| answer.status);
        assert_eq!(seen, status);
    }
    let told = send(&host, call(&host, Method::GET, &upload)).await;
    let sent = format!("0-{}", (48 << 20) - 1);
    assert_eq!(told.header("range"), Some(&*sent), "what was refused is not there");
    for _ in 1..16 {
        begin(&host, "mill").await;
    }
    let more = send(&host, call(&host, Method::POST, "other/blobs/uploads/")).await;
    refused(&more, 429, "TOOMANYREQUESTS");
    let seconds: u64 = more.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&seconds), "{more:?}");
    assert_eq!(staged(&host), 16);
    assert_eq!(send(&host, call(&host, Method::DELETE, &upload)).await.status, 204);
    begin(&host, "other").await;
    // Uploads do not outlive the process.
    let mut host = host;
    host.start_again();
    assert_eq!(staged(&host), 0);
}

/// An upload whose client disconnects in the middle can be continued.
#[tokio::test]
async fn an_interrupted_upload_can_be_resumed() {
    let host = TestHost::start();
    let upload = begin(&host, "mill").await;
    let pieces = futures::stream::iter([
        Ok(b"first".to_vec()),
        Err(std::io::Error::other("the client goes away")),
    ]);
    let body = reqwest::Body::wrap_stream(pieces);
    let request = call(&host, Method::PATCH, &upload).body(body);
    assert!(host.client().try_send(request).await.is_err());
    let range = eventually("the upload to be free again", async || {
        let told = send(&host, call(&host, Method::GET, &upload)).await;
        (told.status == 204).then(|| told.header("range").unwrap().to_owned())
    });
    let there: usize = range.await.split_once('-').unwrap().1.parse().unwrap();
    // All of it arrived, or nothing.
    let rest = if there == 4 { "" } else { "first" };
    let path = format!("{upload}?digest={}", digest(b"firstlast"));
    let finished = send(&host, call(&host, Method::PUT, &path).body(format!("{rest}last"))).await;
    assert_eq!(finished.status, 201, "{finished:?}");
}

/// The client of a whole upload repeats all of its bytes after a failure, so no part of them may
/// stay.
#[tokio::test]
async fn a_whole_upload_that_was_refused_in_the_middle_begins_again() {
    let host = TestHost::start();
    let put = async |upload: &str, range: &str| {
        let path = format!("{upload}?digest={}", digest(b"firstlast"));
        let pieces = ["first", "last"].map(|piece| Ok::<_, std::io::Error>(piece.to_owned()));
        let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
        let request = call(&host, Method::PUT, &path).header("content-range", range);
        send(&host, request.body(body)).await
    };
    let upload = begin(&host, "mill").await;
    refused(&put(&upload, "0-99").await, 400, "SIZE_INVALID");
    assert_eq!(staged(&host), 0);
    refused(&put(&upload, "0-8").await, 404, "BLOB_UPLOAD_UNKNOWN");
    assert_eq!(put(&begin(&host, "mill").await, "0-8").await.status, 201);
    // After an earlier piece, a client can ask where to continue.
    let upload = begin(&host, "mill").await;
    let first = call(&host, Method::PATCH, &upload).body("x");
    assert_eq!(send(&host, first).await.status, 202);
    refused(&put(&upload, "1-99").await, 400, "SIZE_INVALID");
    let told = send(&host, call(&host, Method::GET, &upload)).await;
    assert_eq!((told.status, told.header("range")), (204, Some("0-9")));
}

#[tokio::test]
async fn names_lead_to_handlers_and_nowhere_else() {
    let host = shared_host();
    let encoded = ["%2e%2e", "..%2f..", "a%2fb", "a%00b", "%ff", "sp%20ace"];
    for name in encoded {
        let begun = send(&host, call(&host, Method::POST, &format!("{name}/blobs/uploads/"))).await;
        // Two dots are an ordinary name, since no file is named like a handler.
        let expected = if name == "%2e%2e" { 202 } else { 400 };
        assert!([expected, 404].contains(&begun.status), "{name}: {begun:?}");
        let put = call(&host, Method::PUT, &format!("{name}/manifests/1")).body("{}");
        assert!([400, 404].contains(&send(&host, put).await.status), "{name}");
    }
    for tag in ["-x", "%2e%2e", "a%2fb", "a%20b"] {
        let path = format!("mill/manifests/{tag}");
        let put = send(&host, call(&host, Method::PUT, &path).body("{}")).await;
        assert!([400, 404].contains(&put.status), "{tag}: {put:?}");
    }
    let parts = send(&host, call(&host, Method::POST, "team/mill/blobs/uploads/")).await;
    refused(&parts, 404, "NAME_INVALID");
    for digest in ["sha256:../../secrets.key", "sha512:00", "x"] {
        let path = format!("mill/blobs/{}", digest.replace('/', "%2f"));
        refused(&send(&host, call(&host, Method::GET, &path)).await, 400, "DIGEST_INVALID");
    }
    let wrong_method = send(&host, call(&host, Method::PATCH, "mill/manifests/1")).await;
    refused(&wrong_method, 405, "UNSUPPORTED");
    assert!(wrong_method.header("allow").is_some(), "{wrong_method:?}");
    refused(&send(&host, call(&host, Method::GET, "none/tags/list")).await, 404, "NAME_UNKNOWN");
    // An endpoint may have the name of a pushed image.
    let endpoint = host.deploy(&guests::echo(), "blobs", json!({})).await;
    assert_eq!(host.client.finish(&endpoint, json!({})).await["status"], "COMPLETED");
}
