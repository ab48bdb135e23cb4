//! Images that templates name in registries: another Gristmill host, and hostile registries.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use gristmill_tests::{Reply, ScriptedServer, TestHost, eventually, shared_host};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::handlers::echo;
use crate::registry::digest;

fn template(id: &str, image: &str, auth: &str) -> Value {
    json!({ "id": id, "name": id, "imageName": image, "containerRegistryAuthId": auth })
}

/// A host that may fetch from this registry without TLS.
fn host_that_allows(registry: &str) -> TestHost {
    TestHost::start_with(&["--registry-allow", &format!("http://{registry}")])
}

/// Stores credentials for a registry; returns their id.
async fn keep_auth(host: &TestHost, registry: &str, name: &str, password: &str) -> String {
    let new =
        json!({ "name": name, "registry": registry, "username": "mill", "password": password });
    let made = host.client().post("/v1/containerregistryauth", &new).await.ok();
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_template_runs_an_image_of_another_host() {
    let registry = shared_host();
    let component = echo("remote");
    registry.upload("remote:1", component.clone()).await.ok();
    let host = host_that_allows(registry.address());
    let client = host.client();
    let image = format!("{}/remote:1", registry.address());
    let create = async |id: &str, image: &str, auth: &str| {
        client.post("/v1/templates", &template(id, image, auth)).await
    };
    let refused = create("t", &image, "").await.refused(400);
    assert!(refused.contains("imageName") && refused.contains("containerRegistryAuthId"));
    let wrong = keep_auth(&host, registry.address(), "wrong", "gm_no_key").await;
    let refused = create("t", &image, &wrong).await.refused(400);
    assert!(refused.contains(&wrong) && !refused.contains("gm_no_key"), "{refused}");
    let auth = keep_auth(&host, registry.address(), "right", registry.admin_key()).await;
    let missing = format!("{}/remote:none", registry.address());
    assert!(create("t", &missing, &auth).await.refused(400).contains("no such image"));
    assert_eq!(create("t", &image, &auth).await.ok()["imageName"], image);
    client.post("/v1/endpoints", &json!({ "id": "e", "templateId": "t" })).await.ok();
    assert_eq!(client.finish("e", json!({ "a": 1 })).await["output"], json!({ "a": 1 }));

    // The tag is moved there; here it moves when the image is named again.
    let playground = std::fs::read(gristmill_tests::guests::playground()).unwrap();
    registry.upload("remote:1", playground).await.ok();
    client.patch("/v1/templates/t", &json!({ "readme": "x" })).await.ok();
    assert_eq!(client.finish("e", json!({ "a": 2 })).await["output"], json!({ "a": 2 }));
    client.patch("/v1/templates/t", &json!({ "imageName": image })).await.ok();
    let echoed = client.finish("e", json!({ "op": "echo", "value": 3 })).await;
    assert_eq!(echoed["output"], json!({ "echo": 3 }));

    // The digest is the manifest's, and the fetched one must match.
    let path = "/v2/remote/manifests/1";
    let manifest = registry.client.get(path).await.text;
    let by_digest = format!("{}/remote@{}", registry.address(), digest(manifest.as_bytes()));
    create("d", &by_digest, &auth).await.ok();
    // It survives a restart, and the end of the registry.
    let mut host = host;
    host.start_again();
    let echoed = host.client().finish("e", json!({ "op": "echo", "value": 4 })).await;
    assert_eq!(echoed["output"], json!({ "echo": 4 }));
    // Back to the first fetched component; stored components are not fetched again.
    let client = host.client();
    let back = client.post_empty("/v1/endpoints/e/rollback").await.ok();
    assert!(back["image"].as_str().unwrap().starts_with("remote@sha256:"), "{back}");
    assert_eq!(client.finish("e", json!({ "a": 5 })).await["output"], json!({ "a": 5 }));
    // Without its endpoint, and with a local image again, the fetched component is deleted.
    let stored = || std::fs::read_dir(host.data_dir().join("components")).unwrap().count();
    assert_eq!(stored(), 2);
    assert_eq!(client.delete("/v1/endpoints/e").await.status, 204);
    assert_eq!(client.delete("/v1/templates/d").await.status, 204);
    eventually("what was fetched to go", async || {
        // A worker may still use it; then it is deleted with the next change.
        client.patch("/v1/templates/t", &json!({ "imageName": "none:latest" })).await.ok();
        (stored() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn inner_registries_are_for_the_operator_to_allow() {
    let registry = shared_host();
    registry.upload("inner:1", echo("inner")).await.ok();
    let strict = TestHost::start();
    let port = registry.address().rsplit_once(':').unwrap().1;
    for name in ["127.0.0.1", "localhost", "[::1]"] {
        let image = format!("{name}:{port}/inner:1");
        let answer = strict.client().post("/v1/templates", &template("t", &image, "")).await;
        let sentence = answer.refused(400);
        assert!(sentence.contains("--registry-allow"), "{image}: {sentence}");
    }
    // Without `http://`, TLS is required.
    let secure = TestHost::start_with(&["--registry-allow", registry.address()]);
    let image = format!("{}/inner:1", registry.address());
    let answer = secure.client().post("/v1/templates", &template("t", &image, "")).await;
    assert!(answer.refused(400).contains("cannot fetch"), "{answer:?}");
    for image in ["127.0.0.1:1/..", "127.0.0.1:x/a", "a@127.0.0.1:1/a:1", "127.0.0.1:1/A"] {
        let answer = strict.client().post("/v1/templates", &template("t", image, "")).await;
        assert!(answer.refused(400).contains("imageName"), "{image}");
    }
}

/// A registry's image: a manifest under `v1`, and its component.
struct Image {
    manifest: String,
    component: Vec<u8>,
    blob: String,
}

impl Image {
    fn new(label: &str) -> Arc<Self> {
        let component = echo(label);
        let blob = digest(&component);
        let manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": "x", "digest": blob, "size": 2 },
            "layers": [{ "mediaType": "application/wasm", "digest": blob, "size": component.len() }],
        });
        Arc::new(Self { manifest: manifest.to_string(), component, blob })
    }

    fn reply(&self, head: &str) -> Reply {
        match path(head) {
            "/v2/mill/manifests/v1" => Reply::ok(self.manifest.clone()),
            found if found == format!("/v2/mill/blobs/{}", self.blob) => {
                Reply::ok(self.component.clone())
            }
            _ => Reply::with("404 Not Found", &[]),
        }
    }
}

fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

async fn create(host: &TestHost, registry: &ScriptedServer, auth: &str) -> gristmill_tests::Answer {
    let image = format!("{}/mill:v1", registry.host());
    host.client().post("/v1/templates", &template("t", &image, auth)).await
}

#[tokio::test]
async fn downloads_must_match_the_named_digests() {
    let image = Image::new("lies");
    type Answering = fn(&Image, &str) -> Option<Reply>;
    let cases: [(&str, Answering); 7] = [
        ("another component", |image, head| {
            let other = vec![0; image.component.len()];
            head.contains("/blobs/").then(|| Reply::ok(other))
        }),
        ("another component", |image, head| {
            let cut = &image.component[1..];
            head.contains("/blobs/").then(|| Reply::ok(cut))
        }),
        ("another component", |image, head| {
            let more = [&image.component[..], b"more"].concat();
            head.contains("/blobs/").then(|| Reply::ok(more))
        }),
        ("larger than 65536", |_, head| {
            head.contains("/manifests/").then(|| Reply::ok(vec![b' '; 70_000]))
        }),
        ("limit: 67108864", |image, head| {
            let huge = image
                .manifest
                .replace("\"size\":2", "\"size\":3")
                .replace(&format!("\"size\":{}", image.component.len()), "\"size\":99999999999");
            head.contains("/manifests/").then(|| Reply::ok(huge))
        }),
        ("status 500", |_, head| head.contains("/manifests/").then(|| Reply::with("500 Oh", &[]))),
        ("the manifest is invalid", |_, head| {
            head.contains("/manifests/").then(|| Reply::ok("hello"))
        }),
    ];
    for (word, lie) in cases {
        let image = image.clone();
        let registry = ScriptedServer::start(move |_, head| {
            lie(&image, head).unwrap_or_else(|| image.reply(head))
        })
        .await;
        let host = host_that_allows(&registry.host());
        let sentence = create(&host, &registry, "").await.refused(400);
        assert!(sentence.contains(word), "{word}: {sentence}");
        let stored = std::fs::read_dir(host.data_dir().join("components")).unwrap().count();
        assert_eq!(stored, 0, "{word}");
    }
    let registry = ScriptedServer::start(move |_, head| image.reply(head)).await;
    let host = host_that_allows(&registry.host());
    create(&host, &registry, "").await.ok();
    let wrong = format!("{}/mill:v1@{}", registry.host(), digest(b"x"));
    let answer = host.client().post("/v1/templates", &template("w", &wrong, "")).await;
    assert!(answer.refused(400).contains("no such image"), "{answer:?}");
}

#[tokio::test]
async fn allowed_redirects_are_followed_without_the_credentials() {
    let image = Image::new("redirects");
    let elsewhere = {
        let image = image.clone();
        ScriptedServer::start(move |_, head| match path(head) {
            "/the/blob" => Reply::ok(image.component.clone()),
            _ => Reply::with("404 Not Found", &[]),
        })
        .await
    };
    let store = elsewhere.host();
    let registry = ScriptedServer::start(move |_, head| {
        if !head.to_lowercase().contains("authorization: basic") {
            return Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]);
        }
        if head.contains("/blobs/") {
            let location = format!("Location: http://{store}/the/blob");
            return Reply::with("307 Temporary Redirect", &[&location]);
        }
        image.reply(head)
    })
    .await;
    let [first, second] = [&registry, &elsewhere].map(|server| format!("http://{}", server.host()));
    let host = TestHost::start_with(&["--registry-allow", &format!("{first},{second}")]);
    let auth = keep_auth(&host, &registry.host(), "a", "s3cret").await;
    create(&host, &registry, &auth).await.ok();
    let heads = elsewhere.heads();
    assert_eq!(heads.len(), 1);
    assert!(!heads[0].to_lowercase().contains("authorization"), "{heads:?}");

    // The same, if the operator has not named the second registry.
    let host = host_that_allows(&registry.host());
    let auth = keep_auth(&host, &registry.host(), "a", "s3cret").await;
    let refused = create(&host, &registry, &auth).await.refused(400);
    assert!(refused.contains("--registry-allow"), "{refused}");
    assert_eq!(elsewhere.heads().len(), 1, "nothing was connected to");
    // And a redirect loop.
    let circle = ScriptedServer::start(|_, head| {
        Reply::with("302 Found", &[&format!("Location: {}", path(head))])
    })
    .await;
    let host = host_that_allows(&circle.host());
    assert!(create(&host, &circle, "").await.refused(400).contains("redirects"));
    assert_eq!(circle.heads().len(), 6);
}

#[tokio::test]
async fn a_token_is_asked_for_where_the_registry_says_and_may_say() {
    let image = Image::new("tokens");
    let script = move |realm: Option<String>| {
        let image = image.clone();
        move |address: std::net::SocketAddr, head: &str| {
            if path(head).starts_with("/token?") {
                assert!(
                    head.contains("service=mills") && head.contains("repository%3Amill%3Apull")
                );
                return match head.to_lowercase().contains("authorization: basic") {
                    true => Reply::ok(r#"{"token":"t0ken"}"#),
                    false => Reply::with("401 Unauthorized", &[]),
                };
            }
            if head.contains("Bearer t0ken") {
                return image.reply(head);
            }
            let realm = realm.clone().unwrap_or_else(|| format!("http://{address}/token"));
            let challenge = format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"mills\"");
            Reply::with("401 Unauthorized", &[&challenge])
        }
    };
    let registry = ScriptedServer::start(script(None)).await;
    let host = host_that_allows(&registry.host());
    let refused = create(&host, &registry, "").await.refused(400);
    assert!(refused.contains("asks for credentials"), "{refused}");
    let auth = keep_auth(&host, &registry.host(), "a", "s3cret").await;
    create(&host, &registry, &auth).await.ok();
    let with_token = registry.heads().iter().filter(|head| head.contains("Bearer t0ken")).count();
    assert_eq!(with_token, 2, "one token is good for both calls");

    // An internal token service, which the operator has not named.
    let inside = ScriptedServer::start(|_, _| Reply::ok("{}")).await;
    let realms = [format!("http://{}/token", inside.host()), "https://169.254.169.254/".to_owned()];
    for realm in realms.into_iter().chain(["nonsense".to_owned()]) {
        let registry = ScriptedServer::start(script(Some(realm.clone()))).await;
        let host = host_that_allows(&registry.host());
        let auth = keep_auth(&host, &registry.host(), "a", "s3cret").await;
        create(&host, &registry, &auth).await.refused(400);
    }
    assert_eq!(inside.heads().len(), 0, "nothing was connected to");
}

/// Credentials are for one registry. No template sends them to another: neither a new template, nor
/// one that gets another image, nor one that gets the credentials after its image.
#[tokio::test]
async fn credentials_are_sent_to_their_own_registry_only() {
    let image = Image::new("bound");
    let ours = {
        let image = image.clone();
        ScriptedServer::start(move |_, head| {
            match head.to_lowercase().contains("authorization: basic") {
                true => image.reply(head),
                false => Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]),
            }
        })
        .await
    };
    // Asks for credentials for the image `asks`, and serves every other one without.
    let evil = ScriptedServer::start(move |_, head| match path(head).contains("asks") {
        true => Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]),
        false => image.reply(head),
    })
    .await;
    let [first, second] = [&ours, &evil].map(|server| format!("http://{}", server.host()));
    let host = TestHost::start_with(&["--registry-allow", &format!("{first},{second}")]);
    let client = host.client();
    let auth = keep_auth(&host, &ours.host(), "ours", "s3cret").await;
    let shown = client.get(&format!("/v1/containerregistryauth/{auth}")).await.ok();
    assert_eq!(shown["registry"], ours.host());
    let refused = |answer: gristmill_tests::Answer| {
        let sentence = answer.refused(400);
        let names_both = sentence.contains(&ours.host()) && sentence.contains(&evil.host());
        assert!(names_both && sentence.contains("containerRegistryAuthId"), "{sentence}");
    };
    let asks = format!("{}/asks:v1", evil.host());
    let open = format!("{}/mill:v1", evil.host());
    refused(client.post("/v1/templates", &template("new", &asks, &auth)).await);
    client
        .post("/v1/templates", &template("t", &format!("{}/mill:v1", ours.host()), &auth))
        .await
        .ok();
    refused(client.patch("/v1/templates/t", &json!({ "imageName": asks })).await);
    client.post("/v1/templates", &template("o", &open, "")).await.ok();
    refused(client.patch("/v1/templates/o", &json!({ "containerRegistryAuthId": auth })).await);
    client.post("/v1/templates", &template("l", "local:1", &auth)).await.ok();
    refused(client.patch("/v1/templates/l", &json!({ "imageName": asks })).await);
    // Credentials without a registry are for Docker Hub.
    let new = json!({ "name": "hub", "username": "mill", "password": "s3cret" });
    let hub = client.post("/v1/containerregistryauth", &new).await.ok();
    assert_eq!(hub["registry"], "docker.io");
    let hub = template("h", &asks, hub["id"].as_str().unwrap());
    assert!(client.post("/v1/templates", &hub).await.refused(400).contains("docker.io"));
    for wrong in ["", "hub", "https://ghcr.io", "ghcr.io/team", "a@ghcr.io"] {
        let new = json!({ "name": "w", "registry": wrong, "username": "u", "password": "p" });
        let refused = client.post("/v1/containerregistryauth", &new).await.refused(400);
        assert!(refused.contains("`registry`"), "{wrong}: {refused}");
    }
    let heads = evil.heads();
    assert!(!heads.is_empty(), "the open image was fetched");
    assert!(heads.iter().all(|head| !head.to_lowercase().contains("authorization")), "{heads:?}");
    assert!(heads.iter().all(|head| !head.contains("asks")), "it was not even asked: {heads:?}");
}

/// Deletes a key from a separate thread, because the test's runtime waits for this answer.
fn revoke(address: &str, admin_key: &str, id: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "DELETE /v1/keys/{id} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {admin_key}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[tokio::test]
async fn a_key_that_is_revoked_while_its_image_is_fetched_changes_nothing() {
    let image = Image::new("revoked");
    // The host and the key do not exist when the script is made.
    let in_use: Arc<OnceLock<[String; 3]>> = Arc::default();
    let (script_image, script_in_use) = (image.clone(), in_use.clone());
    let registry = ScriptedServer::start(move |_, head| {
        if head.contains("/blobs/") {
            let [address, admin_key, id] = script_in_use.get().unwrap();
            revoke(address, admin_key, id);
        }
        script_image.reply(head)
    })
    .await;
    let host = host_that_allows(&registry.host());
    let client = host.client();
    let made = json!({ "name": "short", "scopes": ["manage"] });
    let made = client.post("/v1/keys", &made).await.ok();
    let [key, id] = ["key", "id"].map(|field| made[field].as_str().unwrap().to_owned());
    in_use.set([host.address().to_string(), host.admin_key().to_owned(), id]).unwrap();

    let name = format!("{}/mill:v1", registry.host());
    let answer = client.with_key(&key).post("/v1/templates", &template("t", &name, "")).await;
    assert!(answer.refused(401).contains("revoked or has expired during the call"));
    assert_eq!(client.get("/v1/templates").await.ok(), json!([]));
    // The component that came for nothing is removed.
    let stored = || std::fs::read_dir(host.data_dir().join("components")).unwrap().count();
    eventually("the component to be removed", async || (stored() == 0).then_some(())).await;
}

/// A server that takes connections and never answers; counts them.
async fn silent_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut kept = vec![];
        while let Ok(connection) = listener.accept().await {
            kept.push(connection);
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (address.to_string(), count)
}

#[tokio::test]
async fn silent_registries_of_one_owner_leave_the_images_of_others_alone() {
    let (silent, connections) = silent_server().await;
    let image = Image::new("fetched-beside-silence");
    let registry = ScriptedServer::start(move |_, head| image.reply(head)).await;
    let allow = |registry: &str| ["--registry-allow".to_owned(), format!("http://{registry}")];
    let host = TestHost::start_with(&[allow(&silent), allow(&registry.host())].concat());
    let evil = host.client_of("evil").await;
    let refused = (0..4).map(|number| {
        let (client, image) = (evil.clone(), format!("{silent}/mill:v1"));
        tokio::spawn(async move {
            let new = template(&format!("evil-{number}"), &image, "");
            client.post("/v1/templates", &new).await.refused(400)
        })
    });
    let refused: Vec<_> = refused.collect();
    eventually("the silent registry to be asked", async || {
        (connections.load(Ordering::Relaxed) >= 2).then_some(())
    })
    .await;
    // The other owner's image does not wait for all of them; each may last for 120 s.
    let good = host.client_of("good").await;
    let image = format!("{}/mill:v1", registry.host());
    good.post("/v1/templates", &template("good", &image, "")).await.ok();
    for refused in refused {
        let sentence = refused.await.unwrap();
        assert!(sentence.contains("did not answer for 10 s"), "{sentence}");
    }
}
