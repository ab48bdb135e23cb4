//! An answer of the host.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ClientError;

/// The host's answer: a document of the type `T`, and its text.
pub struct Answer<T> {
    text: Bytes,
    ignored_policy: Option<String>,
    document: PhantomData<fn() -> T>,
}

impl<T> Answer<T> {
    pub(crate) fn new(text: Bytes) -> Self {
        Self { text, ignored_policy: None, document: PhantomData }
    }

    pub(crate) fn with_ignored_policy(self, ignored_policy: Option<String>) -> Self {
        Self { ignored_policy, ..self }
    }

    /// The members of the submission's policy that the host does not know: it may be older than
    /// this client. Separated by commas.
    pub fn ignored_policy(&self) -> Option<&str> {
        self.ignored_policy.as_deref()
    }

    /// The document as the host sent it.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// The document.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] when the text is no such document.
    pub fn read(&self) -> Result<T, ClientError>
    where
        T: DeserializeOwned,
    {
        self.read_as()
    }

    /// The document as another type, which may borrow from the text.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] when the text is no such document.
    pub fn read_as<'a, D: Deserialize<'a>>(&'a self) -> Result<D, ClientError> {
        serde_json::from_slice(&self.text).map_err(|error| {
            ClientError::Garbled(format!("this version cannot read the answer: {error}"))
        })
    }
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self::new(self.text.clone()).with_ignored_policy(self.ignored_policy.clone())
    }
}

impl<T> fmt::Debug for Answer<T> {
    /// Only its size, since answers contain keys and inputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}
