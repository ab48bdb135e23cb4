//! The page that shows the API's document.

use std::io::Read as _;

use flate2::read::GzDecoder;
use gristmill_tests::shared_host;
use reqwest::{Url, header};

#[tokio::test]
async fn the_page_has_all_that_it_needs() {
    let host = shared_host();
    // As a browser: no key.
    let http = reqwest::Client::new();
    let get = async |url: Url| {
        let answer = http.get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.url().clone(), answer.text().await.unwrap())
    };
    let start: Url = host.url().parse().unwrap();
    let (_, page, html) = get(start.join("/v1/docs/index.html").unwrap()).await;
    // Slashes are normalised here too.
    for path in ["/v1/docs", "/v1/docs/", "/v1//docs", "/v1/docs//"] {
        let (status, at, answer) = get(start.join(path).unwrap()).await;
        assert_eq!((status, at.path()), (200, path), "the answer is the page itself");
        let base = "<base href=\"docs/\">";
        assert_eq!(answer.replace(base, ""), html, "{path}");
        let base = if answer.contains(base) { at.join("docs/").unwrap() } else { at };
        let (status, _, style) = get(base.join("swagger-ui.css").unwrap()).await;
        assert_eq!((status, style.is_empty()), (200, false), "{path}: {base}");
    }
    let mut files = 0;
    for attribute in ["src=\"", "href=\""] {
        for rest in html.split(attribute).skip(1) {
            let name = rest.split('"').next().unwrap();
            let file = page.join(name).unwrap();
            assert_eq!(file.origin(), page.origin(), "{name} is asked of another host");
            let (status, _, text) = get(file).await;
            assert_eq!((status, text.is_empty()), (200, false), "{name}");
            files += 1;
        }
    }
    assert!(files >= 5, "{html}");
    let (_, _, script) = get(page.join("swagger-initializer.js").unwrap()).await;
    let (_, after) = script.split_once("\"url\": \"").unwrap_or_else(|| panic!("{script}"));
    let (status, _, document) = get(page.join(after.split('"').next().unwrap()).unwrap()).await;
    assert_eq!(status, 200);
    assert!(document.contains("\"openapi\""), "{document}");

    for name in ["nothing.js", "..%2Fopenapi.json", "%00"] {
        let (status, ..) = get(start.join(&format!("/v1/docs/{name}")).unwrap()).await;
        assert_eq!(status, 404, "{name}");
    }
}

#[tokio::test]
async fn large_files_are_compressed_for_clients_that_accept_it() {
    let start: Url = shared_host().url().parse().unwrap();
    let script = start.join("/v1/docs/swagger-ui-bundle.js").unwrap();
    let get = async |codings: &str| {
        let request = reqwest::Client::new().get(script.clone());
        let answer = request.header(header::ACCEPT_ENCODING, codings).send().await.unwrap();
        assert_eq!(answer.headers()[header::VARY], "accept-encoding");
        let coding = answer.headers().get(header::CONTENT_ENCODING).cloned();
        (coding, answer.bytes().await.unwrap())
    };
    let (coding, plain) = get("identity").await;
    assert_eq!(coding, None);
    let (coding, compressed) = get("br, gzip").await;
    assert_eq!(coding.unwrap(), "gzip");
    assert!(compressed.len() < plain.len() / 2, "{} of {}", compressed.len(), plain.len());
    let mut decompressed = Vec::new();
    GzDecoder::new(&*compressed).read_to_end(&mut decompressed).unwrap();
    assert_eq!(decompressed, plain);
}
