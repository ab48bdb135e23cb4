//! The files of network volumes. Contents are streams: nothing of them is held in memory.

use std::io;

use bytes::Bytes;
use futures::Stream;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Method};
use url::Url;

use crate::client::with_query;
use crate::download::{Download, TRANSFER_TIME_MAX};
use crate::wire::management::VolumeFile;
use crate::{Answer, Client, ClientError};

impl Client {
    /// The entries of a directory of a network volume, by name. An empty path is the volume's root.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn volume_files(
        &self,
        volume: &str,
        directory: &str,
    ) -> Result<Answer<Vec<VolumeFile>>, ClientError> {
        let query = (!directory.is_empty()).then(|| ("path", directory.to_owned()));
        self.list(&["v1", "networkvolumes", volume, "files"], query.as_slice()).await
    }

    /// Begins to read a file of a network volume.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn read_volume_file(
        &self,
        volume: &str,
        path: &str,
    ) -> Result<Download, ClientError> {
        let url = self.file_url(volume, path)?;
        self.open_file(self.request(Method::GET, url)).await
    }

    /// Writes a file of a network volume. With its size in `bytes`, a file without room is refused
    /// before it is sent. An error in `content` leaves an older file as it is.
    ///
    /// # Errors
    /// [`ClientError`]. The call is never repeated.
    pub async fn write_volume_file(
        &self,
        volume: &str,
        path: &str,
        bytes: Option<u64>,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), ClientError> {
        let request = self
            .request(Method::PUT, self.file_url(volume, path)?)
            .timeout(TRANSFER_TIME_MAX)
            .header(CONTENT_TYPE, "application/octet-stream");
        let request = match bytes {
            Some(bytes) => request.header(CONTENT_LENGTH, bytes),
            None => request,
        };
        let request = request.body(Body::wrap_stream(content));
        self.send::<()>(request, false).await.map(drop)
    }

    /// Creates a directory of a network volume, and missing directories of its path. A directory
    /// that exists stays as it is.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn create_volume_directory(
        &self,
        volume: &str,
        path: &str,
    ) -> Result<(), ClientError> {
        let url = with_query(self.file_url(volume, path)?, &[("directory", "true".to_owned())]);
        self.send::<()>(self.request(Method::PUT, url), true).await.map(drop)
    }

    /// Deletes a file or an empty directory of a network volume; with `recursive` also a directory
    /// with its content.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn delete_volume_file(
        &self,
        volume: &str,
        path: &str,
        recursive: bool,
    ) -> Result<(), ClientError> {
        let query = recursive.then(|| ("recursive", "true".to_owned()));
        let url = with_query(self.file_url(volume, path)?, query.as_slice());
        let request = self.request(Method::DELETE, url).timeout(TRANSFER_TIME_MAX);
        self.send::<()>(request, false).await.map(drop)
    }

    /// The URL of a file. No file has the names that are refused here, and the sentence says so.
    fn file_url(&self, volume: &str, path: &str) -> Result<Url, ClientError> {
        let names: Vec<_> = path.split('/').collect();
        if let Some(name) = names.iter().find(|name| matches!(**name, "" | "." | "..")) {
            let sentence = format!("a path on a volume cannot have the part `{name}`: `{path}`");
            return Err(ClientError::Unsendable(sentence));
        }
        Ok(self.url(&[&["v1", "networkvolumes", volume, "files"], names.as_slice()].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_part_of_the_url() {
        let client = Client::builder("http://h".parse().unwrap()).build().unwrap();
        let url = client.file_url("v", "a b/c?d#e/100%").unwrap();
        assert_eq!(url.as_str(), "http://h/v1/networkvolumes/v/files/a%20b/c%3Fd%23e/100%25");
        for wrong in ["", "/", "a/", "a//b", "a/../b", "..", "."] {
            assert!(client.file_url("v", wrong).is_err(), "{wrong}");
        }
    }
}
