//! The download of a backup.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Response};
use url::Url;

use crate::{Client, ClientError};

/// Most time until the host has the backup ready.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(600);

/// Most time without a byte: the host reads from its disk.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for a whole backup.
const BACKUP_TIME_MAX: Duration = Duration::from_hours(24);

/// The pieces of a backup, a tar archive.
#[derive(Debug)]
pub struct BackupStream {
    response: Response,
    base: Url,
}

impl Client {
    /// Begins a backup, with or without the key that stored secrets are encrypted with.
    ///
    /// # Errors
    /// When the host refuses it, or cannot be reached.
    pub async fn backup(&self, with_secrets_key: bool) -> Result<BackupStream, ClientError> {
        let mut url = self.url(&["v1", "backup"]);
        if with_secrets_key {
            url.set_query(Some("secretsKey=true"));
        }
        let request = self.request(Method::GET, url).timeout(BACKUP_TIME_MAX);
        let response = self.open(request, false, BEGIN_TIME_MAX).await?;
        Ok(BackupStream { response, base: self.base().clone() })
    }
}

impl BackupStream {
    /// The next piece; `None` at the end. A backup whose end was not reached is incomplete.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] when the connection breaks, or no byte comes for a minute.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = tokio::time::timeout(SILENCE_TIME_MAX, self.response.chunk()).await;
        let piece = piece.map_err(|_| {
            ClientError::Interrupted("the backup stopped coming for a minute".to_owned())
        })?;
        piece.map_err(|error| ClientError::transport(error, &self.base))
    }
}
