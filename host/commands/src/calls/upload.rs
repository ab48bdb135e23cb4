//! The upload of a component, with its progress.

use std::sync::Arc;

use bytes::Bytes;
use gristmill_client::wire::management::Handler;
use gristmill_client::{Answer, Client};

use crate::output::progress;

/// Uploads a component, and shows the progress.
pub async fn upload(
    client: &Client,
    image: &str,
    component: Bytes,
) -> anyhow::Result<Answer<Handler>> {
    let len = component.len() as u64;
    let bar = progress::bytes_bar(len, "uploading");
    let on_sent = {
        let bar = bar.clone();
        Arc::new(move |sent| {
            bar.set_position(sent);
            if sent == len {
                progress::become_spinner(&bar, "the host checks and compiles it");
            }
        })
    };
    let line = "uploading the component; the host checks and compiles it, once";
    let uploaded = progress::noted(line, client.upload(image, component, on_sent)).await;
    bar.finish_and_clear();
    Ok(uploaded?)
}
