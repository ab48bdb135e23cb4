//! Handles HTTP requests, each in the way that its path names; for tests of the host.

#[cfg(target_arch = "wasm32")]
mod site;

#[cfg(target_arch = "wasm32")]
#[wstd::http_server]
async fn main(
    request: wstd::http::Request<wstd::http::Body>,
) -> Result<wstd::http::Response<wstd::http::Body>, wstd::http::Error> {
    site::answer(request).await
}

#[cfg(not(target_arch = "wasm32"))]
fn main() {}
