//! Requests as their authors write them, bodies, and the reasons of missing answers.

use super::*;

#[test]
fn a_request_is_a_method_and_a_target() {
    for (text, method, path) in [
        ("/", "GET", "/"),
        ("GET /a%2F?b=//..", "GET", "/a%2F?b=//.."),
        ("PATCH /items/1", "PATCH", "/items/1"),
    ] {
        let target: RequestTarget = text.parse().unwrap();
        assert_eq!((target.method.as_str(), target.path.as_str()), (method, path));
    }
    for (text, expected) in [
        ("", "must begin with `/`"),
        ("GET", "must begin with `/`"),
        ("GET  /", "must begin with `/`"),
        ("GET http://a/", "must begin with `/`"),
        ("G{T /", "is not a request such as"),
        ("GET /a b", "is not a request such as"),
        ("TRACE /", "a host refuses the method TRACE"),
    ] {
        let error = format!("{:#}", text.parse::<RequestTarget>().unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_body_has_its_length() {
    let target: RequestTarget = "POST /a?b".parse().unwrap();
    let mut given = GivenRequest { target, body: "rye".into(), ..GivenRequest::default() };
    for (name, value) in [("X-One", "1"), ("x-one", "2")] {
        given.headers.extend([parse_header(name, value).unwrap()]);
    }
    let request = given.build();
    assert_eq!(request.uri(), "http://localhost/a?b");
    assert_eq!(request.headers().get_all("x-one").iter().count(), 2);
    assert_eq!(request.headers()[header::CONTENT_LENGTH], "3");
    assert!(parse_header("a b", "").unwrap_err().to_string().contains("not the name"));
    assert!(parse_header("a", "\n").unwrap_err().to_string().contains("not allowed"));
    assert!(GivenRequest::default().build().headers().is_empty());
}

#[test]
fn a_body_is_json_if_its_type_says_so() {
    let json = |media_type: &str, body: &'static str| {
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap())];
        let headers = headers.into_iter().collect();
        let answer = WholeAnswer { status: StatusCode::OK, headers, body: body.into() };
        answer.json().as_str().to_owned()
    };
    assert_eq!(json("application/json; charset=utf-8", "{\"n\": 1}"), "{\"n\": 1}");
    assert_eq!(json("application/problem+json", "[]"), "[]");
    assert_eq!(json("application/json", "{"), "\"{\"");
    assert_eq!(json("text/plain", "7"), "\"7\"");
}

#[test]
fn a_missing_answer_has_its_reason() {
    let whole = |answer, end: AttemptEnd<()>| {
        let served = Served { answer, report: end.into(), timeout: Duration::from_millis(5) };
        served.whole()
    };
    let failed = |error: &str| Err(NoAnswer::Failed(JobStatus::Failed, error.to_owned()));
    let returned = || AttemptEnd::Returned(());
    let broken = || Some(Ok(Err(io::Error::other("the rest"))));
    assert_eq!(whole(Some(Ok(Ok(7))), AttemptEnd::DeadlineReached), Ok(7));
    assert_eq!(whole(None, returned()), failed("the handler returned without an answer"));
    assert_eq!(whole(broken(), returned()), failed("the body of the answer broke off: the rest"));
    assert_eq!(whole(Some(Err(NoResponse::Invalid("no".into()))), returned()), failed("no"));
    assert_eq!(
        whole(broken(), AttemptEnd::DeadlineReached),
        Err(NoAnswer::Failed(
            JobStatus::TimedOut,
            "executionTimeout exceeded after 5 ms".to_owned()
        ))
    );
    assert_eq!(whole(None, AttemptEnd::Stopped), Err(NoAnswer::Interrupted));
}

#[test]
fn the_component_and_the_call_have_the_same_kind() {
    let component = |export: &str| {
        // The component's magic number, and an export section with one instance.
        let mut section = vec![1, 0];
        section.push(u8::try_from(export.len()).unwrap());
        section.extend(export.as_bytes());
        section.extend([5, 0, 0]);
        let mut bytes = b"\0asm\x0d\0\x01\0\x0b".to_vec();
        bytes.push(u8::try_from(section.len()).unwrap());
        bytes.extend(section);
        bytes
    };
    let (http, jobs) =
        (component("wasi:http/incoming-handler@0.2.3"), component("gristmill:handler/run@0.1.0"));
    let of = |component: &[u8], wants| kind_of(component, wants).map_err(|it| it.to_string());
    assert_eq!(of(&http, None), Ok(HandlerKind::Http));
    assert_eq!(of(&http, Some(true)), Ok(HandlerKind::Http));
    assert!(of(&http, Some(false)).unwrap_err().contains("takes no job"));
    assert_eq!(of(&jobs, None), Ok(HandlerKind::Jobs));
    assert!(of(&jobs, Some(true)).unwrap_err().contains("answers no HTTP request"));
}
