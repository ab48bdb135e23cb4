//! HTTP endpoints by host names of their own, and clients behind proxies.

use gristmill_tests::{Client, TestHost, guests};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const NAMES: [&str; 4] = ["--http-listen", "127.0.0.1:0", "--http-domain", "Apps.localhost"];

/// A host with names, and the address of its visitors.
fn host(more: &[&str]) -> (TestHost, String) {
    let host = TestHost::start_with(&[&NAMES, more].concat());
    let address = host.ready()["httpAddr"].as_str().expect("the address").to_owned();
    (host, address)
}

async fn site(host: &TestHost, name: &str, http: Value) -> String {
    let settings = json!({ "type": "LOAD_BALANCER", "http": http });
    host.deploy(&guests::http_playground(), name, settings).await
}

/// A request without a key to a name at an address.
fn visit(address: &str, name: &str, method: Method, path: &str) -> RequestBuilder {
    let client = Client::new(&format!("http://{address}"), "").with_authorization(None);
    client.request(method, path).header("host", name)
}

async fn seen(request: RequestBuilder) -> Value {
    request.send().await.unwrap().json().await.unwrap()
}

fn header(seen: &Value, name: &str) -> Option<String> {
    let all = seen["headers"].as_array().unwrap();
    let found = all.iter().find(|header| header[0] == name);
    found.map(|header| header[1].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_endpoint_has_a_name_and_all_paths_below_it() {
    let (host, address) = host(&[]);
    site(&host, "open", json!({ "public": true })).await;
    site(&host, "closed", json!({})).await;
    let get = |name: &str, path: &str| visit(&address, name, Method::GET, path);

    let head = seen(get("open.apps.localhost:81", "/head?a=b//c")).await;
    assert_eq!(head["target"], "/head?a=b//c");
    assert_eq!(head["authority"], "open.apps.localhost:81");
    assert_eq!(header(&head, "x-forwarded-prefix"), None);
    assert_eq!(header(&head, "x-forwarded-host").unwrap(), "open.apps.localhost:81");
    // No path is the API's there.
    for path in ["/v1/endpoints", "/livez", "/metrics", "/console/", "/http/closed/"] {
        let answer = get("OPEN.apps.localhost.", path).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "no such path\n", "{path}");
    }
    for (name, status) in [
        ("closed.apps.localhost", StatusCode::UNAUTHORIZED),
        ("unknown.apps.localhost", StatusCode::UNAUTHORIZED),
        ("open.localhost", StatusCode::NOT_FOUND),
        ("apps.localhost", StatusCode::NOT_FOUND),
        ("127.0.0.1", StatusCode::NOT_FOUND),
    ] {
        let refused = get(name, "/").send().await.unwrap();
        assert_eq!(refused.status(), status, "{name}");
        assert!(refused.headers().contains_key("x-gristmill-error"), "{name}");
    }
    let bearer = format!("Bearer {}", host.admin_key());
    let with_key = |name: &str| get(name, "/").header("authorization", &bearer);
    let answer = with_key("closed.apps.localhost").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello\n");
    let unknown = with_key("unknown.apps.localhost").send().await.unwrap();
    assert_eq!(unknown.status(), 404);
}

#[tokio::test]
async fn a_page_has_its_own_cookies_and_none_of_the_console() {
    let (host, address) = host(&[]);
    site(&host, "open", json!({ "public": true })).await;
    let visit = |method, path| visit(&address, "open.apps.localhost", method, path);
    let page = visit(Method::GET, "/page")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document");
    let page = page.send().await.unwrap();
    assert_eq!(page.status(), 200);
    let set: Vec<_> = page.headers().get_all("set-cookie").iter().collect();
    assert_eq!(set, ["seen=1; Path=/"]);
    for absent in ["content-security-policy", "content-disposition"] {
        assert!(!page.headers().contains_key(absent), "{absent}");
    }
    let form = visit(Method::POST, "/form")
        .header("cookie", "seen=1; gristmill-console-8080=secret; __Host-gristmill-console=secret")
        .body("text=typed");
    let text = form.send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "text=typed with seen=1\n");
}

#[tokio::test]
async fn a_name_is_never_the_apis() {
    let (host, address) = host(&[]);
    site(&host, "open", json!({ "public": true })).await;
    // On the API's listener the name has no meaning.
    let api = visit(host.address(), "open.apps.localhost", Method::GET, "/").send().await.unwrap();
    assert_ne!(api.text().await.unwrap(), "hello\n");
    for head in [
        "GET http://open.apps.localhost/ HTTP/1.1\r\nhost: other.apps.localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: open.apps.localhost\r\nhost: other.apps.localhost\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: open.apps.localhost\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut connection = TcpStream::connect(&address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).await.unwrap();
        assert!(answer.ends_with(b" 400"), "{head}: {}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn without_keys_other_sites_get_links_only() {
    let (host, address) = host(&["--no-key"]);
    site(&host, "mine", json!({})).await;
    let visit = |method, site: &str, mode: &str| {
        let request = visit(&address, "mine.apps.localhost", method, "/");
        request.header("sec-fetch-site", site).header("sec-fetch-mode", mode).send()
    };
    assert_eq!(visit(Method::GET, "cross-site", "navigate").await.unwrap().status(), 200);
    assert_eq!(visit(Method::POST, "same-origin", "cors").await.unwrap().status(), 200);
    assert_eq!(visit(Method::POST, "cross-site", "navigate").await.unwrap().status(), 401);
    assert_eq!(visit(Method::GET, "cross-site", "no-cors").await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client() {
    let (host, address) = host(&["--trusted-proxies", "127.0.0.0/8,10.0.0.0/8"]);
    site(&host, "open", json!({ "public": true })).await;
    let request = visit(&address, "open.apps.localhost", Method::GET, "/head")
        .header("x-forwarded-for", "203.0.113.9, 198.51.100.7, 10.1.2.3")
        .header("x-forwarded-proto", "https");
    let head = seen(request).await;
    assert_eq!(header(&head, "x-forwarded-for").unwrap(), "198.51.100.7");
    assert_eq!(header(&head, "x-forwarded-proto").unwrap(), "https");
    assert_eq!(head["scheme"], "https");
}

#[tokio::test]
async fn the_operator_gives_an_endpoint_further_names() {
    let (host, address) = host(&[]);
    let client = host.client();
    let names = json!({ "public": true, "hosts": ["www.example.com", "example.com"] });
    site(&host, "open", names).await;
    let get = |name: &str| visit(&address, name, Method::GET, "/").send();
    for name in ["www.example.com", "EXAMPLE.com:80", "open.apps.localhost"] {
        assert_eq!(get(name).await.unwrap().text().await.unwrap(), "hello\n", "{name}");
    }
    site(&host, "other", json!({ "public": true })).await;
    let claim = json!({ "http": { "hosts": ["example.com"] } });
    let refused = client.patch("/v1/endpoints/other", &claim).await;
    assert!(refused.refused(400).contains("is a name of endpoint `open`"), "{refused:?}");
    let somebody = host.client_of("somebody").await;
    let settings = json!({ "type": "LOAD_BALANCER" });
    somebody.deploy(&guests::http_playground(), "theirs", settings).await;
    let claim = json!({ "http": { "hosts": ["bank.example"] } });
    let refused = somebody.patch("/v1/endpoints/theirs", &claim).await;
    assert!(refused.refused(400).contains("the operator's keys"), "{refused:?}");
    // Names that were given stay when their endpoint's owner changes something else.
    client.patch("/v1/endpoints/theirs", &claim).await.ok();
    somebody.patch("/v1/endpoints/theirs", &json!({ "workersMax": 2 })).await.ok();
    assert_eq!(get("bank.example").await.unwrap().status(), 401);
    client.delete("/v1/endpoints/open").await;
    assert_eq!(get("example.com").await.unwrap().status(), 404);
}
