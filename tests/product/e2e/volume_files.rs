//! The files of network volumes over HTTP: whole files or nothing, bounds, and attacks. Handlers
//! work on the same files at the same time. docs/internals/security.md names these tests beside the
//! attacks.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::join_all;
use gristmill_tests::{Answer, Client, TestHost, eventually, guests, shared_host};
use reqwest::{Body, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const GIB: u64 = 1 << 30;
const MIB: usize = 1 << 20;

/// Most files of a volume that are read or written at one time.
const TRANSFERS_MAX: usize = 16;

/// A volume of a host, and a client that may use it.
struct Files {
    client: Client,
    volume: String,
    directory: PathBuf,
}

impl Files {
    async fn on(host: &TestHost) -> Self {
        let client = host.client();
        let new = json!({ "name": "files", "size": 1 });
        let made = client.post("/v1/networkvolumes", &new).await.ok();
        let volume = made["id"].as_str().unwrap().to_owned();
        let directory = host.data_dir().join("volumes").join(&volume);
        Self { client, volume, directory }
    }

    fn path(&self, file: &str) -> String {
        format!("/v1/networkvolumes/{}/files/{file}", self.volume)
    }

    async fn put(&self, file: &str, content: impl Into<Body>) -> Answer {
        self.client.send(self.client.request(Method::PUT, &self.path(file)).body(content)).await
    }

    async fn write(&self, file: &str, content: impl Into<Body>) {
        let answer = self.put(file, content).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }

    async fn get(&self, file: &str) -> Answer {
        self.client.get(&self.path(file)).await
    }

    async fn list(&self, query: &str) -> Answer {
        self.client.get(&format!("/v1/networkvolumes/{}/files{query}", self.volume)).await
    }

    /// The names in the root.
    async fn names(&self) -> Vec<String> {
        names(&self.list("").await.ok())
    }

    /// Begins to send a file; its body ends with the sender.
    fn begin(
        &self,
        file: &str,
    ) -> (mpsc::Sender<std::io::Result<Bytes>>, impl Future<Output = reqwest::Result<Answer>> + use<>)
    {
        let (sender, mut pieces) = mpsc::channel(1);
        let body =
            Body::wrap_stream(futures::stream::poll_fn(move |context| pieces.poll_recv(context)));
        let (client, path) = (self.client.clone(), self.path(file));
        let request = client.request(Method::PUT, &path).body(body);
        (sender, async move { client.try_send(request).await })
    }

    /// The files in the directory on the host, transfers in progress included.
    fn on_host(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn is_left(&self, expected: &[&str]) {
        eventually("nothing else is left", async || (self.on_host() == expected).then_some(()))
            .await;
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

/// A job of the playground on a file.
async fn job(client: &Client, endpoint: &str, job: Value) -> Value {
    client.finish(endpoint, json!({ "op": "file", "file": job })).await
}

#[tokio::test]
async fn a_file_is_written_read_listed_replaced_and_deleted() {
    let host = shared_host();
    let files = Files::on(&host).await;
    assert_eq!(files.list("").await.ok(), json!([]));
    files.write("models/small.bin", "rye").await;
    files.write("a b%20ä.txt", "").await;
    let read = files.get("models/small.bin").await;
    assert_eq!((read.status, read.text.as_str()), (200, "rye"));
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment"),
        ("content-length", "3"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(read.header(name), Some(value), "{read:?}");
    }
    let head = files.client.request(Method::HEAD, &files.path("models/small.bin"));
    let head = files.client.send(head).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("3")), "{head:?}");
    let listed = files.list("?path=models").await.ok();
    assert_eq!((&listed[0]["type"], &listed[0]["size"]), (&json!("file"), &json!(3)), "{listed}");
    let at = listed[0]["modifiedAt"].as_str().unwrap();
    assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
    assert_eq!(files.names().await, ["a b ä.txt", "models"]);
    let root = files.list("").await.ok();
    assert_eq!((&root[1]["type"], &root[1]["size"]), (&json!("directory"), &json!(0)), "{root}");

    files.write("models/small.bin", "oats and more").await;
    assert_eq!(files.get("models/small.bin").await.text, "oats and more");
    let mode = fs::metadata(files.directory.join("models/small.bin")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7777, 0o600);

    for (answer, word) in [
        (files.get("models").await, "`models` is a directory"),
        (files.put("models", "x").await, "`models` is a directory"),
        (files.put("models/small.bin/x", "x").await, "is not a directory"),
        (files.client.delete(&files.path("models")).await, "not empty"),
        (files.list("?path=models/small.bin").await, "is not a directory"),
    ] {
        assert_eq!(answer.json()["code"], "conflict", "{answer:?}");
        assert!(answer.refused(400).contains(word), "{answer:?}");
    }
    for missing in [
        files.get("models/none").await,
        files.get("none/none").await,
        files.client.delete(&files.path("none")).await,
        files.list("?path=none").await,
    ] {
        assert!(missing.refused(404).contains("no file or directory"), "{missing:?}");
    }
    assert_eq!(files.client.delete(&files.path("models/small.bin")).await.status, 204);
    assert_eq!(files.client.delete(&files.path("models")).await.status, 204);
    assert_eq!(files.on_host(), ["a b ä.txt"]);
    let reader = files.client.with_scopes(&["read", "submit"]).await;
    reader.get(&files.path("a%20b%20%C3%A4.txt")).await.refused(401);
}

#[tokio::test]
async fn a_download_continues_where_it_broke_off() {
    let host = shared_host();
    let files = Files::on(&host).await;
    files.write("large", "0123456789").await;
    let get = async |method: Method, headers: &[(&str, &str)]| {
        let request = files.client.request(method, &files.path("large"));
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        files.client.send(request).await
    };
    let whole = get(Method::GET, &[]).await;
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")), "{whole:?}");
    let version = whole.header("etag").unwrap().to_owned();

    for (range, text, content_range) in [
        ("bytes=4-", "456789", "bytes 4-9/10"),
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
    ] {
        let part = get(Method::GET, &[("range", range), ("if-range", &version)]).await;
        assert_eq!((part.status, part.text.as_str()), (206, text), "{range}: {part:?}");
        assert_eq!(part.header("content-range"), Some(content_range), "{range}");
        assert_eq!(part.header("content-length"), Some(text.len().to_string().as_str()), "{range}");
        assert_eq!(part.header("etag"), Some(version.as_str()), "{range}");
    }
    for range in ["bytes=10-", "bytes=-0"] {
        let beyond = get(Method::GET, &[("range", range)]).await;
        assert_eq!(beyond.header("content-range"), Some("bytes */10"), "{beyond:?}");
        assert_eq!(beyond.json()["code"], "range_not_satisfiable", "{beyond:?}");
        assert!(beyond.refused(416).contains("`large`, which has 10 bytes"), "{beyond:?}");
    }
    for range in ["bytes=0-1,4-5", "lines=1-2", "bytes=5-1"] {
        let all = get(Method::GET, &[("range", range)]).await;
        assert_eq!((all.status, all.text.as_str()), (200, "0123456789"), "{range}: {all:?}");
    }
    let head = get(Method::HEAD, &[("range", "bytes=4-")]).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")), "{head:?}");

    // The rest of another version is never appended to the first bytes of this one.
    files.write("large", "abcdefghijk").await;
    let other = get(Method::GET, &[("range", "bytes=4-"), ("if-range", &version)]).await;
    assert_eq!((other.status, other.text.as_str()), (200, "abcdefghijk"), "{other:?}");
    assert_ne!(other.header("etag"), Some(version.as_str()));
}

#[tokio::test]
async fn handlers_and_callers_see_the_same_files() {
    let host = shared_host();
    let files = Files::on(&host).await;
    let settings = json!({ "networkVolumeId": files.volume });
    let endpoint = host.deploy(&guests::playground(), "volume-files", settings).await;
    files.write("in/put", "rye").await;
    let read = json!({ "do": "read", "path": "/workspace/in/put" });
    assert_eq!(job(&files.client, &endpoint, read).await["output"], "rye");
    let write = json!({ "do": "write", "path": "/workspace/in/output", "text": "flour" });
    job(&files.client, &endpoint, write).await;
    assert_eq!(files.get("in/output").await.text, "flour");

    // Jobs that read while the file is replaced see the old content or the new.
    let contents = [vec![b'a'; 3 * MIB], vec![b'b'; 2 * MIB]].map(Bytes::from);
    files.write("large", contents[0].clone()).await;
    let readers = join_all((0..6).map(|_| {
        let size = json!({ "do": "size", "path": "/workspace/large" });
        job(&files.client, &endpoint, size)
    }));
    let writers = join_all((0..6).map(|n| files.put("large", contents[n % 2].clone())));
    let (sizes, written) = tokio::join!(readers, writers);
    assert!(written.iter().all(|answer| answer.status == 204), "{written:?}");
    for size in sizes {
        let bytes = size["output"]["done"].as_u64().unwrap();
        assert!([3 * MIB as u64, 2 * MIB as u64].contains(&bytes), "{size}");
    }
    let last = files.get("large").await.text;
    assert!(contents.iter().any(|content| last.as_bytes() == content), "{} bytes", last.len());

    let full = json!({ "do": "truncate", "path": "/workspace/large", "bytes": GIB - MIB as u64 });
    assert_eq!(job(&files.client, &endpoint, full).await["status"], "COMPLETED");
    // Its announced size is refused before its body; without a size, its first bytes without room.
    let (sender, sent) = files.begin("in/put");
    let send = async { while sender.send(Ok(Bytes::from(vec![1; MIB]))).await.is_ok() {} };
    let (unannounced, ()) = tokio::join!(sent, send);
    for refused in [files.put("in/put", vec![1; 2 * MIB]).await, unannounced.unwrap()] {
        assert_eq!(refused.json()["code"], "quota_exceeded", "{refused:?}");
        assert!(refused.refused(400).contains("of 1073741824 bytes"), "{refused:?}");
    }
    assert_eq!(files.get("in/put").await.text, "rye", "it is unchanged");
    files.is_left(&["in", "large"]).await;
    let larger = json!({ "size": 2 });
    files.client.patch(&format!("/v1/networkvolumes/{}", files.volume), &larger).await.ok();
    files.write("in/put", vec![1; 2 * MIB]).await;
}

#[tokio::test]
async fn no_path_leads_out_of_a_volume() {
    let host = shared_host();
    let files = Files::on(&host).await;
    let outside = host.scratch().join(format!("outside-{}", files.volume));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "rye").unwrap();
    files.write("inside", "x").await;
    std::os::unix::fs::symlink(&outside, files.directory.join("link")).unwrap();
    let levels = vec!["d"; 65].join("/");
    let long = "n".repeat(256);
    let far = format!("..%2f..%2f..%2f{}", outside.display());
    for path in [
        "%2e%2e/x",
        "..%2fx",
        "a/%2e%2e/x",
        "a/%2e/x",
        "%2fetc",
        "a%00b",
        "a%ffb",
        &levels,
        &long,
        &far,
    ] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let url = format!("{}{path}", files.path(""));
            let status = raw(&host, &method, url.trim_start_matches(host.url()));
            assert_eq!(status, 400, "{method} {path}");
        }
        let listed = files.list(&format!("?path={path}")).await;
        assert!([400, 404].contains(&listed.status), "{listed:?}");
    }
    for path in ["link", "link/secret", "link/new"] {
        for answer in [files.get(path).await, files.put(path, "x").await] {
            assert_eq!(answer.json()["code"], "conflict", "{answer:?}");
        }
    }
    for path in ["link/secret", "link"] {
        let answer = files.list(&format!("?path={path}")).await;
        assert_eq!(answer.json()["code"], "conflict", "{answer:?}");
    }
    assert_eq!(files.list("").await.ok()[1]["type"], "other");
    files.client.delete(&files.path("link/secret")).await.refused(400);
    // The link itself can be removed, with or without its target.
    let removed = files.client.delete(&format!("{}?recursive=true", files.path("link"))).await;
    assert_eq!(removed.status, 204, "{removed:?}");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "rye");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(files.on_host(), ["inside"]);
}

/// The status of a call whose path is sent as it is: HTTP libraries resolve `..` themselves.
fn raw(host: &TestHost, method: &Method, path: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(host.address()).unwrap();
    let key = host.admin_key();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let line = String::from_utf8_lossy(&answer[..answer.len().min(16)]).into_owned();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_upload_that_ends_early_leaves_nothing() {
    let mut host = TestHost::start();
    let files = Files::on(&host).await;
    files.write("kept", "rye").await;
    for file in ["kept", "new/deep"] {
        let (sender, sent) = files.begin(file);
        let upload = tokio::spawn(sent);
        sender.send(Ok(Bytes::from(vec![1; MIB]))).await.unwrap();
        eventually("its first bytes arrive", async || (files.on_host().len() == 2).then_some(()))
            .await;
        assert_eq!(files.names().await, ["kept"], "a transfer in progress is not listed");
        sender.send(Err(std::io::Error::other("the client fails"))).await.unwrap();
        assert!(upload.await.unwrap().is_err());
        files.is_left(&["kept"]).await;
    }
    assert_eq!(files.get("kept").await.text, "rye");

    // A key that is revoked meanwhile writes nothing.
    let new = json!({ "name": "k", "scopes": ["manage"], "owner": "default" });
    let key = files.client.post("/v1/keys", &new).await.ok();
    let writer = Files {
        client: files.client.with_key(key["key"].as_str().unwrap()),
        volume: files.volume.clone(),
        directory: files.directory.clone(),
    };
    let (sender, sent) = writer.begin("revoked");
    let upload = tokio::spawn(sent);
    sender.send(Ok("x".into())).await.unwrap();
    eventually("it begins", async || (files.on_host().len() == 2).then_some(())).await;
    let id = key["id"].as_str().unwrap();
    assert_eq!(files.client.delete(&format!("/v1/keys/{id}")).await.status, 204);
    drop(sender);
    upload.await.unwrap().unwrap().refused(401);
    files.is_left(&["kept"]).await;

    // A host that is killed leaves a file that the next one removes when the volume is used.
    let (sender, sent) = files.begin("killed");
    let upload = tokio::spawn(sent);
    sender.send(Ok(Bytes::from(vec![1; MIB]))).await.unwrap();
    eventually("it begins", async || (files.on_host().len() == 2).then_some(())).await;
    host.kill9();
    assert!(upload.await.unwrap().is_err());
    // A name alone is no sign: only the host sets the mark.
    fs::write(files.directory.join(".gristmill-upload-of-a-handler"), "x").unwrap();
    assert_eq!(files.on_host().len(), 3);
    host.start_again();
    let files = Files { client: host.client(), ..files };
    assert_eq!(files.names().await, [".gristmill-upload-of-a-handler", "kept"]);
    assert_eq!(files.on_host().len(), 2);
}

/// A client that continues an upload sends only the rest of the file.
#[tokio::test]
async fn a_part_of_a_file_does_not_replace_it() {
    let host = shared_host();
    let files = Files::on(&host).await;
    files.write("large", "0123456789").await;
    let request = files.client.request(Method::PUT, &files.path("large"));
    let part = request.header("content-range", "bytes 8-9/10").body("89");
    let sentence = files.client.send(part).await.refused(400);
    assert!(sentence.contains("`Content-Range` is not supported"), "{sentence}");
    assert_eq!(files.get("large").await.text, "0123456789");
}

#[tokio::test]
async fn a_volume_that_is_deleted_takes_no_file() {
    let host = TestHost::start();
    let files = Files::on(&host).await;
    let (sender, sent) = files.begin("late");
    let upload = tokio::spawn(sent);
    sender.send(Ok("x".into())).await.unwrap();
    eventually("it begins", async || (files.on_host().len() == 1).then_some(())).await;
    let volume = format!("/v1/networkvolumes/{}", files.volume);
    assert_eq!(files.client.delete(&volume).await.status, 204);
    drop(sender);
    upload.await.unwrap().unwrap().refused(404);
    for answer in [files.get("late").await, files.put("late", "x").await, files.list("").await] {
        answer.refused(404);
    }
    let volumes = host.data_dir().join("volumes");
    eventually("its files are removed", async || {
        (fs::read_dir(&volumes).unwrap().count() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn large_files_are_streams_and_few_at_one_time() {
    let host = TestHost::start();
    let files = Files::on(&host).await;
    let large = 300 * MIB as u64;
    host.forget_peak_memory();
    let before = host.resident_memory();
    let (sender, sent) = files.begin("large");
    let send = async move {
        let piece = Bytes::from(vec![7; MIB]);
        for _ in 0..large / MIB as u64 {
            sender.send(Ok(piece.clone())).await.unwrap();
        }
    };
    let (sent, ()) = tokio::join!(sent, send);
    assert_eq!(sent.unwrap().status, 204);
    assert_eq!(fs::metadata(files.directory.join("large")).unwrap().len(), large);

    // Answers whose clients read nothing but their heads.
    let open = async || {
        let request = files.client.request(Method::GET, &files.path("large"));
        request.send().await.unwrap()
    };
    let mut reading = vec![];
    for _ in 0..TRANSFERS_MAX {
        let answer = open().await;
        assert_eq!(answer.status(), StatusCode::OK);
        reading.push(answer);
    }
    // The file of these answers has no name any more.
    files.client.delete(&files.path("large")).await;
    let refused = files.put("other", "x").await;
    assert_eq!(refused.json()["code"], "concurrency_limited", "{refused:?}");
    refused.refused(429);
    let mut first = reading.pop().unwrap();
    let mut bytes = 0;
    while let Some(piece) = first.chunk().await.unwrap() {
        bytes += piece.len() as u64;
    }
    assert_eq!(bytes, large);
    files.write("other", "x").await;
    drop(reading);
    let grown = host.peak_memory().saturating_sub(before);
    println!("peak memory grew by {} MiB for files of 300 MiB", grown >> 20);
    assert!(grown < 100 * MIB as u64, "{grown}");
}

#[tokio::test]
async fn directories_are_listed_in_pages_and_removed_with_their_content() {
    let host = shared_host();
    let files = Files::on(&host).await;
    files.write("many/deep/er/file", "x").await;
    let names_of =
        |range: std::ops::Range<usize>| range.map(|n| format!("{n:04}")).collect::<Vec<_>>();
    for name in names_of(0..1_001) {
        fs::write(files.directory.join("many").join(name), "x").unwrap();
    }
    let page = files.list("?path=many").await;
    assert_eq!(names(&page.ok()), names_of(0..1_000));
    let last = files.client.get(&page.next_page().unwrap()).await;
    assert_eq!(names(&last.ok()), ["1000", "deep"]);
    assert_eq!(last.header("link"), None);
    let page = files.list("?path=many&limit=1&cursor=0998").await;
    assert_eq!(names(&page.ok()), ["0999"]);
    files.list("?limit=0").await.refused(400);
    let sentence = files.client.delete(&files.path("many")).await.refused(400);
    assert!(sentence.contains("`recursive=true`"), "{sentence}");
    let all = format!("{}?recursive=true", files.path("many"));
    assert_eq!(files.client.delete(&all).await.status, 204);
    assert!(!Path::new(&files.directory).join("many").exists());
    files.client.delete(&all).await.refused(404);
    files.client.delete(&format!("{}?recursive=maybe", files.path("a"))).await.refused(400);
}

#[tokio::test]
async fn an_empty_directory_is_created_and_stays_as_it_is() {
    let host = shared_host();
    let files = Files::on(&host).await;
    let create = async |path: &str| files.put(&format!("{path}?directory=true"), "").await;
    assert_eq!(create("cache/models").await.status, 204);
    assert_eq!(names(&files.list("?path=cache").await.ok()), ["models"]);
    files.write("cache/models/a", "x").await;
    assert_eq!(create("cache/models").await.status, 204, "it exists");
    assert_eq!(files.get("cache/models/a").await.text, "x");

    files.write("grain", "x").await;
    for path in ["grain", "grain/deep"] {
        let sentence = create(path).await.refused(400);
        assert!(sentence.contains("is not a directory"), "{sentence}");
    }
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), files.directory.join("link")).unwrap();
    for path in ["link", "link/deep"] {
        create(path).await.refused(400);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let sentence = files.put("other?directory=true", "x").await.refused(400);
    assert!(sentence.contains("no body"), "{sentence}");
    files.put("other?directory=maybe", "").await.refused(400);
    create("..%2Fother").await.refused(400);
    assert_eq!(files.names().await, ["cache", "grain", "link"]);
}
