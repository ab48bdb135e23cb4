//! Origins that may read answers, and preflight requests.

use gristmill_core::id::{EndpointId, TemplateId};
use gristmill_core::time::Timestamp;

use super::*;

fn rules(cors: CorsSettings, method: Method, lines: &[(HeaderName, &str)]) -> Option<Cors> {
    let (id, template) = (EndpointId::new("e").unwrap(), TemplateId::new("t").unwrap());
    let owner = OwnerId::new("a").unwrap();
    let mut endpoint = Endpoint::new(id, owner, template, Timestamp::from_millis(0));
    endpoint.settings.http.cors = cors;
    let request = Request::builder().method(method);
    let request = lines.iter().fold(request, |it, (name, value)| it.header(name, *value));
    Cors::of(&Arc::new(endpoint), &request.body(()).unwrap().into_parts().0)
}

fn named(credentials: bool) -> CorsSettings {
    CorsSettings {
        origins: vec!["https://a.example".to_owned(), "http://localhost:3000".to_owned()],
        expose_headers: vec!["X-Total".to_owned()],
        credentials,
        ..CorsSettings::default()
    }
}

fn header_of(answer: &Response<Body>, name: HeaderName) -> Option<&str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn only_permitted_origins_read_answers() {
    for (cors, origin, expected) in [
        (named(false), "https://a.example", Some("https://a.example")),
        (named(true), "http://localhost:3000", Some("http://localhost:3000")),
        (named(true), "https://b.example", None),
        (named(false), "http://a.example", None),
        (CorsSettings { origins: vec!["*".into()], ..named(false) }, "null", Some("*")),
    ] {
        let credentials = cors.credentials;
        let cors = rules(cors, Method::PUT, &[(header::ORIGIN, origin)]).unwrap();
        assert!(!cors.is_preflight());
        let mut answer = Response::new(Body::empty());
        // A handler may say anything.
        for name in [header::ACCESS_CONTROL_ALLOW_ORIGIN, header::ACCESS_CONTROL_EXPOSE_HEADERS] {
            answer.headers_mut().insert(name, HeaderValue::from_static("https://b.example"));
        }
        let answer = cors.added_to(answer).await;
        assert_eq!(header_of(&answer, header::ACCESS_CONTROL_ALLOW_ORIGIN), expected, "{origin}");
        let exposed = header_of(&answer, header::ACCESS_CONTROL_EXPOSE_HEADERS);
        assert_eq!(exposed, Some("x-total"));
        let allowed = header_of(&answer, header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        assert_eq!(allowed, credentials.then_some("true"));
    }
    assert!(rules(CorsSettings::default(), Method::GET, &[]).is_none());
}

#[tokio::test]
async fn a_preflight_request_is_answered_with_what_it_asks_for() {
    let asks = [
        (header::ORIGIN, "https://a.example"),
        (header::ACCESS_CONTROL_REQUEST_METHOD, "DELETE"),
        (header::ACCESS_CONTROL_REQUEST_HEADERS, "authorization,x-a"),
    ];
    let cors = rules(named(true), Method::OPTIONS, &asks).unwrap();
    assert!(cors.is_preflight());
    let answer = cors.answer_preflight().await;
    assert_eq!(answer.status(), 200);
    for (name, expected) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "https://a.example"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization,x-a"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        assert_eq!(header_of(&answer, name), Some(expected));
    }
    // Any other OPTIONS request is the handler's.
    let other = rules(named(true), Method::OPTIONS, &asks[..1]).unwrap();
    assert!(!other.is_preflight());
}
