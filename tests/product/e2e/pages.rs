//! The lists of the management API, page by page.

use gristmill_tests::{Answer, TestHost, guests};
use serde_json::{Value, json};

/// The path of the next page.
fn next(answer: &Answer) -> Option<String> {
    let link = answer.header("link")?;
    let path = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
    Some(path.unwrap_or_else(|| panic!("{link}")).to_owned())
}

/// The values of `field` on all pages of a list, and the number of pages.
async fn walk(host: &TestHost, first: &str, field: &str) -> (Vec<Value>, usize) {
    let (mut seen, mut pages) = (vec![], 0);
    let mut path = first.to_owned();
    loop {
        let answer = host.client().get(&path).await;
        let following = next(&answer);
        seen.extend(answer.ok().as_array().unwrap().iter().map(|thing| thing[field].clone()));
        pages += 1;
        let Some(following) = following else { return (seen, pages) };
        path = following;
    }
}

#[tokio::test]
async fn every_list_has_pages() {
    let host = TestHost::start();
    let client = host.client();
    for name in ["c", "a", "b"] {
        host.upload(name, std::fs::read(guests::echo()).unwrap()).await.ok();
        host.deploy_image(name, name, json!({})).await;
        let key = json!({ "name": name, "scopes": ["read"] });
        client.post("/v1/keys", &key).await.ok();
    }
    let lists = [
        ("/v1/templates?includeEndpointBoundTemplates=true&limit=2", "name", 3),
        ("/v1/endpoints?limit=2", "id", 3),
        ("/v1/handlers?limit=2", "name", 3),
        // The first start has created one.
        ("/v1/keys?limit=2", "name", 4),
    ];
    for (path, field, count) in lists {
        let (seen, pages) = walk(&host, path, field).await;
        assert_eq!((seen.len(), pages), (count, 2), "{path}: {seen:?}");
        if count == 3 {
            assert_eq!(seen, ["a", "b", "c"], "{path}");
        }
        let (whole, pages) = walk(&host, &path.replace("limit=2", ""), field).await;
        assert_eq!((whole, pages), (seen, 1), "{path}");
    }
    for query in ["limit=0", "limit=1001", "limit=many"] {
        let refused = client.get(&format!("/v1/endpoints?{query}")).await.refused(400);
        assert!(refused.contains("query `"), "{refused}");
    }
}

#[tokio::test]
async fn a_page_has_a_bounded_size_and_its_link_leads_to_the_rest() {
    let host = TestHost::start();
    let client = host.client();
    let text = "x".repeat(32_000);
    let env = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|number| (format!("V{number}"), json!(text))).collect()
    };
    client.post("/v1/templates", &json!({ "id": "t", "name": "t", "imageName": "a:1" })).await.ok();
    // Each of the first ones has 320 KB, and the last one 960 KB.
    for number in 0..9 {
        let env = env(if number == 8 { 30 } else { 10 });
        let new = json!({ "id": format!("e{number}"), "templateId": "t", "env": env });
        client.post("/v1/endpoints", &new).await.ok();
    }
    let mut sizes = vec![];
    let mut path = "/v1/endpoints".to_owned();
    loop {
        let answer = client.get(&path).await;
        assert!(answer.text.len() < (1 << 20) + 2_000, "{} bytes", answer.text.len());
        sizes.push(answer.ok().as_array().unwrap().len());
        let Some(following) = next(&answer) else { break };
        path = following;
    }
    assert_eq!(sizes, [3, 3, 2, 1]);
    let (seen, pages) = walk(&host, "/v1/endpoints?limit=2", "id").await;
    let ids: Vec<_> = (0..9).map(|number| json!(format!("e{number}"))).collect();
    assert_eq!((seen, pages), (ids, 5));
}
