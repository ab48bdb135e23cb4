//! Downloads: backups, and the files of network volumes. Nothing of them is held in memory.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response};
use url::Url;

use crate::{Client, ClientError};

/// Most time until the host has a backup ready.
const BACKUP_BEGIN_TIME_MAX: Duration = Duration::from_secs(600);

/// Most time without a byte: the host reads from its disk.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for a whole download, and for the upload of a file.
pub(crate) const TRANSFER_TIME_MAX: Duration = Duration::from_hours(24);

/// The pieces of a download.
#[derive(Debug)]
pub struct Download {
    response: Response,
    base: Url,
    /// For errors, such as `the backup`.
    what: &'static str,
}

impl Client {
    /// Begins a backup, a tar archive, with or without the key that stored secrets are encrypted
    /// with.
    ///
    /// # Errors
    /// When the host refuses it, or cannot be reached.
    pub async fn backup(&self, with_secrets_key: bool) -> Result<Download, ClientError> {
        let mut url = self.url(&["v1", "backup"]);
        if with_secrets_key {
            url.set_query(Some("secretsKey=true"));
        }
        let request = self.request(Method::GET, url).timeout(TRANSFER_TIME_MAX);
        let response = self.open(request, false, BACKUP_BEGIN_TIME_MAX).await?;
        Ok(Download { response, base: self.base().clone(), what: "the backup" })
    }

    /// Begins to read a file.
    pub(crate) async fn open_file(&self, request: RequestBuilder) -> Result<Download, ClientError> {
        let request = request.timeout(TRANSFER_TIME_MAX);
        let response = self.open(request, true, SILENCE_TIME_MAX).await?;
        Ok(Download { response, base: self.base().clone(), what: "the file" })
    }
}

impl Download {
    /// The size in bytes; `None` for a backup.
    pub fn bytes(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// The next piece; `None` at the end. A download whose end was not reached is incomplete.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] when the connection breaks, or no byte comes for a minute.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = tokio::time::timeout(SILENCE_TIME_MAX, self.response.chunk()).await;
        let piece = piece.map_err(|_| {
            ClientError::Interrupted(format!("{} stopped coming for a minute", self.what))
        })?;
        piece.map_err(|error| ClientError::transport(error, &self.base))
    }
}
