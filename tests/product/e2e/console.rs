//! The web console: its files, its login, and what a session may do.

use futures::future::join_all;
use gristmill_tests::{Answer, Client, PATIENCE, TestHost, guests, shared_host};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A browser with the page of the console open, and no key.
struct Page {
    client: Client,
    cookie: Option<String>,
    mark: String,
}

impl Page {
    fn open(host: &TestHost) -> Self {
        Self { client: host.client().with_authorization(None), cookie: None, mark: "1".to_owned() }
    }

    async fn login_with(host: &TestHost, body: &Value) -> Self {
        let mut page = Self::open(host);
        page.login(body).await.ok();
        page
    }

    /// A login with a key of this owner and these scopes.
    async fn of(host: &TestHost, owner: &str, scopes: &[&str]) -> Self {
        let new = json!({ "name": "page", "owner": owner, "scopes": scopes });
        let made = host.client().post("/v1/keys", &new).await.ok();
        Self::login_with(host, &json!({ "key": made["key"] })).await
    }

    async fn login(&mut self, body: &Value) -> Answer {
        let answer = self.call(Method::POST, "/console/session", Some(body)).await;
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
            self.mark = answer.ok()["mark"].as_str().unwrap().to_owned();
        }
        answer
    }

    /// The header that shows that a call is the page's own.
    fn mark(&self) -> (&str, &str) {
        ("x-gristmill-console", &self.mark)
    }

    /// A call with these headers beside the cookie.
    async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let request = self.request(method, path, headers);
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        self.client.send(request).await
    }

    fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
        let mut request = self.client.request(method, path);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", format!("other=1; {cookie}"));
        }
        headers.iter().fold(request, |it, (name, value)| it.header(*name, *value))
    }

    /// A call as the page makes it.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.call_with(method, path, body, &[SAME, self.mark()]).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }
}

#[tokio::test]
async fn the_page_is_served_below_any_prefix_with_a_strict_policy() {
    let host = shared_host();
    let client = host.client.with_authorization(None);
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let http = http.unwrap();
    for (path, status) in [("/", 307), ("/console", 308)] {
        let first = http.get(format!("{}{path}", host.url())).send().await.unwrap();
        assert_eq!(first.status(), status, "{path}");
        assert_eq!(first.headers()["location"], "console/", "a relative address keeps the prefix");
    }
    for path in ["/console/", "//console//"] {
        let page = client.get(path).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.text.starts_with("<!doctype html>"), "{page:?}");
        assert_eq!(page.header("cache-control"), Some("no-cache"));
        let etag = page.header("etag").unwrap().to_owned();
        let request = client.request(Method::GET, path).header("if-none-match", &etag);
        let again = client.send(request).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{again:?}");
        let request = client.request(Method::GET, path).header("if-none-match", "\"other\"");
        assert_eq!(client.send(request).await.status, 200);
    }
    for path in ["/console/", "/console/assets/none.js", "/console/none", "/console/session"] {
        let answer = client.get(path).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path} {name}");
        }
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
    for path in ["assets/../Cargo.toml", "assets/..%2f..%2fCargo.toml", "assets/%00", "index.html"]
    {
        assert_eq!(client.get(&format!("/console/{path}")).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_login_with_a_key_lets_the_page_do_what_the_key_may() {
    let host = shared_host();
    let echo = host.deploy(&guests::echo(), "console-echo", json!({})).await;
    let mut page = Page::open(&host);
    page.get("/console/session").await.refused(401);
    page.get("/v1/endpoints").await.refused(401);
    let answer = page.login(&json!({ "key": host.admin_key() })).await;
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(cookie.starts_with("gristmill-console-") && !cookie.contains("Secure"), "{cookie}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let document = answer.ok();
    assert_eq!(document["key"]["scopes"], json!(["admin"]));
    assert_eq!(document["key"]["owner"], "default");
    assert!(document["version"].is_string() && document["expiresAt"].is_string(), "{document}");
    assert!(!answer.text.contains(host.admin_key()), "{document}");
    // The time of the end moves with each call.
    assert_eq!(page.get("/console/session").await.ok()["key"], document["key"]);
    // Both APIs.
    page.get("/v1/endpoints").await.ok();
    let run = format!("/v2/{echo}/runsync");
    let done = page.call(Method::POST, &run, Some(&json!({ "input": { "a": 1 } }))).await.ok();
    assert_eq!(done["output"], json!({ "a": 1 }));
    // Not the registry: it is for programs.
    assert_eq!(page.get("/v2/").await.status, 401);
    // A key in the head wins over the cookie.
    let wrong = [SAME, page.mark(), ("authorization", "Bearer gm_a_b")];
    page.call_with(Method::GET, "/v1/endpoints", None, &wrong).await.refused(401);

    let ended = page.call(Method::DELETE, "/console/session", None).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"), "{ended:?}");
    page.get("/v1/endpoints").await.refused(401);
    page.get("/console/session").await.refused(401);
}

#[tokio::test]
async fn a_session_has_the_scopes_and_the_owner_of_its_key() {
    let host = shared_host();
    let echo = host.deploy(&guests::echo(), "console-scopes", json!({})).await;
    let reader = Page::of(&host, "default", &["read"]).await;
    reader.get(&format!("/v2/{echo}/health")).await.ok();
    reader.get("/v1/jobs").await.ok();
    let job = json!({ "input": {} });
    for path in [format!("/v2/{echo}/run"), format!("/v2/{echo}/purge-queue")] {
        reader.call(Method::POST, &path, Some(&job)).await.refused(401);
    }
    reader.get("/v1/keys").await.refused(401);
    let action = json!({ "action": "cancel", "filter": { "endpoints": [echo] } });
    reader.call(Method::POST, "/v1/job-actions", Some(&action)).await.refused(401);
    let other_owner = Page::of(&host, "console-other", &["manage", "submit", "read"]).await;
    other_owner.get(&format!("/v2/{echo}/health")).await.refused(404);
    assert_eq!(other_owner.get("/v1/endpoints").await.ok(), json!([]));
}

#[tokio::test]
async fn pages_of_other_origins_do_not_use_the_session() {
    let host = TestHost::start();
    let page = Page::login_with(&host, &json!({ "key": host.admin_key() })).await;
    let own = format!("http://{}", host.address());
    let mark = page.mark();
    let get: [(&[(&str, &str)], u16); 8] = [
        (&[], 401),
        (&[SAME], 401),
        (&[SAME, mark], 200),
        (&[("sec-fetch-site", "cross-site"), mark], 401),
        (&[("sec-fetch-site", "same-site"), mark], 401),
        (&[("origin", "http://127.0.0.1:1"), mark], 401),
        (&[("origin", &own)], 401),
        (&[mark], 200),
    ];
    for (headers, status) in get {
        let answer = page.call_with(Method::GET, "/v1/templates", None, headers).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    // A link of this very page, which the readme of another owner may have, reads files and nothing
    // else.
    let file = page.call_with(Method::GET, "/v1/networkvolumes/none/files/x", None, &[SAME]).await;
    assert_eq!(file.status, 404, "{file:?}");
    let job = page.call_with(Method::GET, "/v2/none/status/x?ttl=0", None, &[SAME]).await;
    assert_eq!(job.status, 401, "{job:?}");
    let template = json!({ "name": "n", "imageName": "i" });
    for headers in [&[SAME][..], &[("origin", &*own)], &[("sec-fetch-site", "cross-site"), mark]] {
        let answer = page.call_with(Method::POST, "/v1/templates", Some(&template), headers).await;
        assert_eq!(answer.status, 401, "{headers:?}: {answer:?}");
        // Nor does another page log this browser in, or out.
        let login = json!({ "key": host.admin_key() });
        let answer = page.call_with(Method::POST, "/console/session", Some(&login), headers).await;
        assert_eq!(answer.status, 401, "{headers:?}: {answer:?}");
        let answer = page.call_with(Method::DELETE, "/console/session", None, headers).await;
        assert_eq!(answer.status, 401, "{headers:?}: {answer:?}");
    }
    assert_eq!(page.get("/v1/templates").await.ok(), json!([]));
    page.call(Method::POST, "/v1/templates", Some(&template)).await.ok();
    // No other origin is permitted to send the header.
    let preflight = page.client.request(Method::OPTIONS, "/v1/templates");
    let preflight = preflight.header("origin", "http://evil.example");
    let preflight = preflight.header("access-control-request-headers", "x-gristmill-console");
    let answer = page.client.send(preflight).await;
    assert!(answer.status >= 400, "{answer:?}");
    assert!(answer.header("access-control-allow-origin").is_none(), "{answer:?}");
}

#[tokio::test]
async fn a_call_with_the_cookie_of_another_session_is_refused() {
    let host = shared_host();
    let paused = json!({ "workersMax": 0 });
    let echo = host.deploy(&guests::echo(), "console-tossed", paused).await;
    let waiting = host.client.submit(&echo, json!({})).await;
    let operator = Page::of(&host, "default", &["admin"]).await;
    let foreign = Page::of(&host, "console-foreign", &["manage", "submit", "read"]).await;
    let (own_cookie, cookie) = (operator.cookie.clone(), foreign.cookie.clone().unwrap());
    // Another service on this host's name has replaced the cookie; the page is the operator's.
    let replaced = Page { cookie: Some(cookie.clone()), ..Page::open(&host) };
    let replaced = Page { mark: operator.mark.clone(), ..replaced };
    let template = json!({ "name": "secret", "imageName": "i" });
    let paths = [
        (Method::GET, "/console/session".to_owned()),
        (Method::DELETE, "/console/session".to_owned()),
        (Method::GET, "/v1/endpoints".to_owned()),
        (Method::POST, "/v1/templates".to_owned()),
        (Method::PUT, "/v1/networkvolumes/v/files/a".to_owned()),
        (Method::GET, "/v1/networkvolumes/v/files/a".to_owned()),
        (Method::GET, "/v1/events?topics=overview".to_owned()),
        (Method::POST, format!("/v2/{echo}/run")),
        (Method::GET, format!("/v2/{echo}/stream/{waiting}")),
    ];
    for (method, path) in &paths {
        let answer = replaced.call(method.clone(), path, Some(&template)).await;
        let sentence = answer.refused(401);
        assert!(sentence.contains("the cookie of another session"), "{path}: {sentence}");
    }
    // It has added one, which browsers send first if its path is longer.
    let both = format!("{cookie}; {}", own_cookie.unwrap());
    let both = Page { cookie: Some(both), mark: operator.mark.clone(), ..Page::open(&host) };
    for (method, path) in &paths {
        let answer = both.call(method.clone(), path, Some(&template)).await;
        let sentence = answer.refused(401);
        assert!(sentence.contains("two cookies of the name gristmill-console-"), "{sentence}");
    }
    let download = both.call_with(Method::GET, "/v1/networkvolumes/v/files/a", None, &[SAME]).await;
    assert_eq!(download.status, 401, "{download:?}");
    // Such a login must not use up a link.
    let link = host.client.post_empty("/console/links").await.ok()["link"].clone();
    let mut both = both;
    both.login(&json!({ "link": link })).await.refused(401);
    assert_eq!(foreign.get("/v1/templates").await.ok(), json!([]), "nothing has reached them");
    operator.get("/console/session").await.ok();
    Page::login_with(&host, &json!({ "link": link })).await.get("/v1/endpoints").await.ok();
}

#[tokio::test]
async fn a_cookie_without_the_mark_of_its_session_is_no_login() {
    let host = shared_host();
    let page = Page::of(&host, "default", &["admin"]).await;
    // Services on other ports of the host's name receive the cookie, and may send any header.
    for mark in ["1", &page.mark.to_lowercase(), &page.mark[1..], &format!("{}x", page.mark)] {
        let thief =
            Page { cookie: page.cookie.clone(), mark: mark.to_owned(), ..Page::open(&host) };
        for path in ["/console/session", "/v1/keys", "/v2/none/health"] {
            thief.get(path).await.refused(401);
        }
        thief.call(Method::DELETE, "/console/session", None).await.refused(401);
    }
    // A login with a key of their own does not end it either.
    let new = json!({ "name": "k", "owner": "console-thief", "scopes": ["read"] });
    let theirs = host.client.post("/v1/keys", &new).await.ok();
    let mut thief = Page { cookie: page.cookie.clone(), ..Page::open(&host) };
    thief.login(&json!({ "key": theirs["key"] })).await.ok();
    let shown = page.get("/console/session").await;
    assert_eq!(shown.ok()["key"]["owner"], "default");
    assert!(!shown.text.contains(&page.mark), "only the login tells it: {shown:?}");
}

#[tokio::test]
async fn over_tls_only_a_cookie_of_this_very_host_counts() {
    let host = shared_host();
    let mut page = Page::open(&host);
    let (origin, body) =
        (format!("https://{}", host.address()), json!({ "key": host.admin_key() }));
    let headers = [SAME, page.mark(), ("origin", &origin)];
    let login = page.call_with(Method::POST, "/console/session", Some(&body), &headers).await;
    let cookie = login.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-gristmill-console-"), "{cookie}");
    assert!(cookie.contains("; Path=/;") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(!cookie.contains("Domain"), "{cookie}");
    let own = cookie.split(';').next().unwrap().to_owned();
    let mark = login.ok()["mark"].as_str().unwrap().to_owned();
    let foreign = Page::of(&host, "console-sibling", &["manage"]).await.cookie.unwrap();
    page = Page { cookie: Some(format!("{foreign}; {own}")), mark, ..page };
    assert_eq!(page.get("/console/session").await.ok()["key"]["owner"], "default");
    page.get("/v1/keys").await.ok();
    let headers = [SAME, page.mark(), ("origin", &origin)];
    let ended = page.call_with(Method::DELETE, "/console/session", None, &headers).await;
    let cookie = ended.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Secure"), "{cookie}");
    page.get("/v1/keys").await.refused(401);
}

#[tokio::test]
async fn a_session_and_its_waiting_calls_end_with_the_key() {
    let host = TestHost::start();
    let made = host.client().post("/v1/keys", &json!({ "name": "k", "scopes": ["manage"] })).await;
    let made = made.ok();
    let page = Page::login_with(&host, &json!({ "key": made["key"] })).await;
    let echo = host.deploy(&guests::echo(), "revoked", json!({})).await;
    let logs = format!("/v1/endpoints/{echo}/logs");
    let events = [SAME, page.mark(), ("accept", "text/event-stream")];
    let follow = page.request(Method::GET, &logs, &events).send().await.unwrap();
    assert_eq!(follow.status(), 200);
    let id = made["id"].as_str().unwrap();
    assert_eq!(host.client().delete(&format!("/v1/keys/{id}")).await.status, 204);
    // The stream would go on for ever.
    follow.text().await.unwrap();
    page.get("/v1/endpoints").await.refused(401);
    page.get("/console/session").await.refused(401);
}

/// Streams of a page. Without an end of the session they would go on for ever.
async fn open_streams(page: &Page, echo: &str, waiting: &str) -> Vec<Response> {
    let events = [SAME, page.mark(), ("accept", "text/event-stream")];
    let paths = [
        format!("/v1/endpoints/{echo}/logs"),
        format!("/v1/events?topics=overview,endpoint:{echo},job:{echo}/{waiting}"),
        format!("/v2/{echo}/stream/{waiting}"),
    ];
    let mut open = vec![];
    for path in paths {
        let answer = page.request(Method::GET, &path, &events).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        open.push(answer);
    }
    open
}

/// Completes when all streams have ended.
async fn all_end(streams: Vec<Response>, why: &str) {
    let whole = join_all(streams.into_iter().map(Response::text));
    let ended = tokio::time::timeout(PATIENCE, whole).await;
    for text in ended.unwrap_or_else(|_| panic!("a stream goes on after {why}")) {
        text.unwrap();
    }
}

#[tokio::test]
async fn the_streams_of_a_session_end_with_it_and_those_of_other_sessions_go_on() {
    let host = TestHost::start();
    let client = host.client();
    let paused = json!({ "workersMax": 0 });
    let echo = host.deploy(&guests::echo(), "logged-out", paused).await;
    let waiting = client.submit(&echo, json!({})).await;
    let login = json!({ "key": host.admin_key() });
    let (page, other) =
        (Page::login_with(&host, &login).await, Page::login_with(&host, &login).await);
    let (streams, mut others) =
        (open_streams(&page, &echo, &waiting).await, open_streams(&other, &echo, &waiting).await);
    let path = format!("/v2/{echo}/status-sync/{waiting}?wait=300000");
    let call = page.request(Method::GET, &path, &[SAME, page.mark()]).send();
    let logout = async {
        let ended = page.call(Method::DELETE, "/console/session", None).await;
        assert_eq!(ended.status, 204, "{ended:?}");
        all_end(streams, "a logout").await;
    };
    let (answer, ()) = tokio::join!(call, logout);
    assert_eq!(answer.unwrap().status(), 401);
    // The other session has the same key, and its streams bring news after that.
    client.cancel(&echo, &waiting).await.ok();
    let text = others.pop().unwrap().text().await.unwrap();
    assert!(text.contains("CANCELLED"), "{text}");
    let ended = other.call(Method::DELETE, "/console/session", None).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    all_end(others, "the second logout").await;
}

/// The body of a call may take minutes.
#[tokio::test]
async fn a_call_whose_body_arrives_after_the_logout_changes_nothing() {
    let host = TestHost::start();
    let client = host.client();
    let echo = host.deploy(&guests::echo(), "late", json!({ "workersMax": 0 })).await;
    let volume = json!({ "name": "grain", "size": 1 });
    let volume = client.post("/v1/networkvolumes", &volume).await.ok();
    let files = format!("/v1/networkvolumes/{}/files", volume["id"].as_str().unwrap());
    let page = Page::login_with(&host, &json!({ "key": host.admin_key() })).await;
    let body = r#"{"input":{},"workersMax":7}"#;
    let calls = [
        ("POST", format!("/v2/{echo}/run"), r#"{"input":{}}"#),
        ("POST", format!("/v2/{echo}/runsync"), r#"{"input":{}}"#),
        ("POST", format!("/v2/{echo}/openai/v1/completions"), r#"{"model":"echo"}"#),
        ("POST", format!("/v1/endpoints/{echo}/update"), r#"{"workersMax":7}"#),
        ("PUT", format!("{files}/late.txt"), body),
        ("PUT", "/v1/handlers/late:2".to_owned(), body),
    ];
    let mut begun = vec![];
    for (method, path, body) in &calls {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\nx-gristmill-console: {}\r\n\
             sec-fetch-site: same-origin\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            host.address(),
            page.cookie.as_deref().unwrap(),
            page.mark,
            body.len(),
        );
        let mut connection = TcpStream::connect(host.address()).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut goes_on = [0; 25];
        connection.read_exact(&mut goes_on).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&goes_on), "HTTP/1.1 100 Continue\r\n\r\n", "{path}");
        begun.push(connection);
    }
    let ended = page.call(Method::DELETE, "/console/session", None).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    for ((_, path, body), mut connection) in calls.iter().zip(begun) {
        connection.write_all(body.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 401", "{path}");
    }
    assert_eq!(client.get("/v2/late/health").await.ok()["jobs"]["inQueue"], 0);
    assert_eq!(client.get("/v1/endpoints/late").await.ok()["workersMax"], 0);
    assert_eq!(client.get(&files).await.ok(), json!([]));
}

#[tokio::test]
async fn the_streams_of_a_session_end_with_its_time_and_with_that_of_its_key() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let paused = json!({ "workersMax": 0 });
    let echo = host.deploy(&guests::echo(), "run-out", paused).await;
    let week = json!({ "ttl": 7 * 24 * 3_600_000 });
    let waiting = client.submit_with(&echo, json!({}), week).await;
    let new = json!({ "name": "k", "scopes": ["manage", "read"], "expiresInSeconds": 3_600 });
    let brief = client.post("/v1/keys", &new).await.ok();
    let page = Page::login_with(&host, &json!({ "key": brief["key"] })).await;
    let streams = open_streams(&page, &echo, &waiting).await;
    host.advance(3_600_000);
    all_end(streams, "the end of the key").await;
    let page = Page::login_with(&host, &json!({ "key": host.admin_key() })).await;
    let streams = open_streams(&page, &echo, &waiting).await;
    host.advance(12 * 3_600_000);
    all_end(streams, "twelve hours without a call").await;
}

#[tokio::test]
async fn a_link_works_once_within_a_minute() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let link = async || client.post_empty("/console/links").await.ok()["link"].clone();
    let first = link().await;
    let mut page = Page::login_with(&host, &json!({ "link": first })).await;
    page.get("/v1/keys").await.ok();
    let again = page.login(&json!({ "link": first })).await.refused(401);
    assert!(again.contains("gristmill console"), "{again}");
    page.get("/v1/keys").await.ok();
    let late = link().await;
    host.advance(60_000);
    page.login(&json!({ "link": late })).await.refused(401);
    // A session makes no links, and a call without a key neither.
    page.call(Method::POST, "/console/links", None).await.refused(401);
    client.with_authorization(None).post_empty("/console/links").await.refused(401);
    // Twelve quiet hours end the session.
    host.advance(12 * 3_600_000);
    page.get("/v1/keys").await.refused(401);
}

#[tokio::test]
async fn a_link_says_whose_it_is_and_is_not_used_up() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let new =
        json!({ "name": "theirs", "owner": "foreign", "scopes": ["read"], "endpoints": ["e"] });
    let made = client.post("/v1/keys", &new).await.ok();
    let theirs = client.with_key(made["key"].as_str().unwrap());
    let link = async || theirs.post_empty("/console/links").await.ok()["link"].clone();
    let page = Page::open(&host);
    let ask =
        async |body: &Value| page.call(Method::POST, "/console/links/preview", Some(body)).await;
    let first = json!({ "link": link().await });
    for _ in 0..2 {
        let shown = ask(&first).await;
        assert!(shown.header("set-cookie").is_none(), "{shown:?}");
        assert_eq!(shown.header("cache-control"), Some("no-store"));
        let key = json!({
            "id": made["id"], "name": "theirs", "owner": "foreign", "scopes": ["read"], "endpoints": ["e"],
        });
        assert_eq!(shown.ok(), json!({ "key": key }));
    }
    Page::login_with(&host, &first).await;
    // Only a link that could be used says something.
    let used = ask(&first).await.refused(401);
    let revoked = json!({ "link": link().await });
    let late = json!({ "link": link().await });
    assert_eq!(
        client.delete(&format!("/v1/keys/{}", made["id"].as_str().unwrap())).await.status,
        204
    );
    assert_eq!(ask(&revoked).await.refused(401), used);
    host.advance(60_000);
    for link in [late, json!({ "link": "x" }), json!({ "link": page.mark })] {
        assert_eq!(ask(&link).await.refused(401), used);
    }
    let unused = client.post_empty("/console/links").await.ok()["link"].clone();
    for body in [json!({}), json!({ "link": "x", "key": "y" }), json!([]), json!([unused])] {
        ask(&body).await.refused(400);
    }
    let foreign = [("sec-fetch-site", "same-site"), page.mark()];
    let path = "/console/links/preview";
    page.call_with(Method::POST, path, Some(&first), &foreign).await.refused(401);
}

#[tokio::test]
async fn logins_that_fail_are_counted_and_show_nothing() {
    let host = TestHost::start_configured("[rate-limits.unauthenticated]\ncalls-per-10s = 40\n");
    let session = Page::login_with(&host, &json!({ "key": host.admin_key() })).await;
    let mut page = Page::open(&host);
    let (id, _) = host.admin_key().rsplit_once('_').unwrap();
    let guess = format!("{id}_{}", "x".repeat(43));
    let refused = page.login(&json!({ "key": guess })).await.refused(401);
    assert_eq!(page.login(&json!({ "key": "gm_none_x" })).await.refused(401), refused);
    let link = host.client().post_empty("/console/links").await.ok()["link"].clone();
    for body in [
        json!({}),
        json!({ "key": "a", "link": "b" }),
        json!({ "other": 1 }),
        json!([]),
        json!([host.admin_key(), null]),
        json!([null, link]),
    ] {
        page.login(&body).await.refused(400);
    }
    page.login(&json!({ "key": "x".repeat(5_000) })).await.refused(413);
    let mut statuses = vec![];
    for _ in 0..30 {
        statuses.push(page.login(&json!({ "key": guess })).await.status);
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let link = json!({ "link": "x" });
    page.call(Method::POST, "/console/links/preview", Some(&link)).await.refused(429);
    // A session on the same address is not kept from its logout.
    session.get("/console/session").await.ok();
    let ended = session.call(Method::DELETE, "/console/session", None).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    host.client().get("/v1/keys").await.ok();
}

#[tokio::test]
async fn a_host_without_keys_needs_no_login() {
    let host = TestHost::start_with(&["--no-key"]);
    let page = Page::open(&host);
    let document = page.get("/console/session").await.ok();
    assert_eq!(document["key"]["scopes"], json!(["admin"]));
    assert_eq!(document.get("expiresAt"), None);
    page.get("/v1/endpoints").await.ok();
    let foreign = [("sec-fetch-site", "cross-site"), page.mark()];
    for path in ["/console/session", "/console/", "/v1/endpoints"] {
        page.call_with(Method::GET, path, None, &foreign).await.refused(401);
    }
}

#[tokio::test]
async fn a_restart_ends_all_sessions() {
    let mut host = TestHost::start();
    let page = Page::login_with(&host, &json!({ "key": host.admin_key() })).await;
    page.get("/v1/keys").await.ok();
    host.kill9();
    host.start_again();
    let (_, token) = page.cookie.as_deref().unwrap().split_once('=').unwrap();
    let (_, port) = host.address().rsplit_once(':').unwrap();
    let cookie = Some(format!("gristmill-console-{port}={token}"));
    let page = Page { cookie, ..Page::open(&host) };
    let refused = page.get("/v1/keys").await.refused(401);
    assert!(refused.contains("has ended"), "{refused}");
}
