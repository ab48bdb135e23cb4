//! The paths.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_lite::StreamExt as _;
use futures_lite::stream::{once_future, unfold};
use wstd::http::body::{Body, Bytes};
use wstd::http::{Error, Request, Response};
use wstd::time::Duration;

static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Longer than any test.
fn for_ever() -> Duration {
    Duration::from_secs(86_400)
}

pub(crate) async fn answer(request: Request<Body>) -> Result<Response<Body>, Error> {
    let requests = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
    let query = Query::of(&request);
    match request.uri().path() {
        "/" => Ok(Response::new("hello\n".into())),
        "/head" => head(&request),
        "/echo" => Ok(Response::new(request.into_body())),
        "/early" => Ok(Response::new("early\n".into())),
        "/stream" => Ok(stream(query.number("count"), Duration::from_millis(query.number("ms")))),
        "/bytes" => Ok(bytes(query.number("count"))),
        "/status" => {
            let code = u16::try_from(query.number("code"))?;
            Ok(Response::builder().status(code).body(Body::empty())?)
        }
        "/page" => page(),
        "/form" => form(request).await,
        "/events" => events(),
        "/fail" => Err(Error::msg("no answer")),
        "/panic" => panic_now(),
        "/panic-later" => Ok(after_a_piece(async { panic_now::<()>() })),
        "/unfinished" => Ok(after_a_piece::<()>(async { std::process::exit(0) })),
        "/spin" => loop {
            std::hint::black_box(requests);
        },
        "/sleep" => {
            wstd::task::sleep(for_ever()).await;
            Ok(Response::new(Body::empty()))
        }
        "/sleep-later" => Ok(after_a_piece(wstd::task::sleep(for_ever()))),
        "/alloc" => {
            let bytes = usize::try_from(query.number("mib"))? << 20;
            let memory = vec![1_u8; bytes];
            Ok(Response::new(format!("{}\n", std::hint::black_box(&memory).len()).into()))
        }
        "/count" => Ok(Response::new(format!("{requests}\n").into())),
        _ => Ok(Response::builder().status(404).body("no such path\n".into())?),
    }
}

/// The parameters of a request.
struct Query(String);

impl Query {
    fn of(request: &Request<Body>) -> Self {
        Self(request.uri().query().unwrap_or_default().to_owned())
    }

    /// The number of this name; 0 if there is none.
    fn number(&self, name: &str) -> u64 {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.parse()).next();
        value.and_then(Result::ok).unwrap_or(0)
    }
}

fn head(request: &Request<Body>) -> Result<Response<Body>, Error> {
    let uri = request.uri();
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let document = serde_json::json!({
        "method": request.method().as_str(),
        "scheme": uri.scheme_str(),
        "authority": uri.authority().map(|authority| authority.as_str()),
        "target": uri.path_and_query().map(|target| target.as_str()),
        "headers": headers,
    });
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(document.to_string().into())?)
}

fn stream(count: u64, pause: Duration) -> Response<Body> {
    let pieces = unfold(0, move |number| async move {
        if number == count {
            return None;
        }
        wstd::task::sleep(pause).await;
        Some((Ok::<_, Infallible>(Bytes::from(format!("{:03}\n", number % 1_000))), number + 1))
    });
    Response::new(Body::from_try_stream(pieces))
}

fn bytes(count: u64) -> Response<Body> {
    const PIECE: u64 = 32 << 10;
    let pieces = unfold(count, |left| async move {
        let now = left.min(PIECE);
        let piece = usize::try_from(now).ok().filter(|now| *now > 0)?;
        Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; piece])), left - now))
    });
    Response::new(Body::from_try_stream(pieces))
}

/// A page with a form, a script and cookies. The host changes one cookie and removes another.
fn page() -> Result<Response<Body>, Error> {
    const PAGE: &str = "<!doctype html><title>page</title>\
        <form method=post action=/form><input name=text value=typed><button>send</button></form>\
        <ol></ol><script>\
        new EventSource('/events').onmessage = ({ data }) => \
        document.querySelector('ol').insertAdjacentHTML('beforeend', `<li>${data}`)\
        </script>";
    Ok(Response::builder()
        .header("content-type", "text/html; charset=utf-8")
        .header("set-cookie", "seen=1; Domain=localhost; Path=/")
        .header("set-cookie", "gristmill-console=stolen; Path=/")
        .body(PAGE.into())?)
}

/// The fields of a form, and the cookies.
async fn form(mut request: Request<Body>) -> Result<Response<Body>, Error> {
    let fields = request.body_mut().str_contents().await?.to_owned();
    let cookies = request.headers().get_all("cookie").iter();
    let cookies: Vec<_> = cookies.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    Ok(Response::new(format!("{fields} with {}\n", cookies.join("; ")).into()))
}

/// Three events, one each 100 ms.
fn events() -> Result<Response<Body>, Error> {
    let pieces = unfold(1, |number| async move {
        wstd::task::sleep(Duration::from_millis(100)).await;
        let event = format!("data: event {number}\n\n");
        (number <= 3).then(|| (Ok::<_, Infallible>(Bytes::from(event)), number + 1))
    });
    Ok(Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from_try_stream(pieces))?)
}

/// A piece of an answer, and then what `then` does.
fn after_a_piece<T>(then: impl Future<Output = T> + Send + 'static) -> Response<Body> {
    let first = once_future(async { Ok::<_, Infallible>(Bytes::from("half")) });
    let rest = once_future(async move {
        then.await;
        Ok::<_, Infallible>(Bytes::new())
    });
    Response::new(Body::from_try_stream(first.chain(rest)))
}

#[allow(clippy::panic, reason = "the tests want one")]
fn panic_now<T>() -> T {
    panic!("as asked")
}
