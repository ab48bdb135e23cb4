//! Inputs and outputs, and their bytes.

use std::sync::Arc;

use bytes::Bytes;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::S3Config;
use gristmill_core::job::state::Claim;

use crate::seal::Seal;

/// The input of a job with its settings, or an output.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) body: Json,
    pub(crate) s3_config: Option<Arc<S3Config>>,
}

impl Payload {
    pub(crate) fn len(&self) -> usize {
        let s3 = self.s3_config.as_ref().map_or(0, |s3| {
            [&s3.access_id, &s3.access_secret, &s3.bucket_name, &s3.endpoint_url]
                .map(String::len)
                .iter()
                .sum()
        });
        self.body.len() + s3
    }
}

/// The kind of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Input,
    Output,
}

impl Kind {
    /// The codes are on disk and must not change.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Input => 0,
            Self::Output => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Input, Self::Output].into_iter().find(|kind| kind.code() == code)
    }
}

/// The name of a payload. The attempt of an output distinguishes it from those of earlier attempts,
/// so that a job that was retried never shows one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PayloadKey {
    Input(u64),
    Output(u64, Claim),
}

impl PayloadKey {
    /// The row of the payload's job.
    pub(crate) fn seq(self) -> u64 {
        match self {
            Self::Input(seq) | Self::Output(seq, _) => seq,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Input(_) => Kind::Input,
            Self::Output(..) => Kind::Output,
        }
    }
}

/// An input in the bytes of the journal: the body, the encrypted object-storage settings, and the
/// length of these. One location covers all of it, and the body is not copied.
#[derive(Debug)]
pub(crate) struct InputBytes {
    pub(crate) body: Bytes,
    pub(crate) rest: Bytes,
}

/// Bytes of the length at the end of an input.
const LENGTH_BYTES: usize = 4;

impl InputBytes {
    /// Bytes at the end of an input that are zero if it has no settings.
    pub(crate) const LENGTH_BYTES: u32 = LENGTH_BYTES as u32;

    pub(crate) fn of(input: &Payload, seal: &Seal, seq: u64) -> Self {
        let rest = match &input.s3_config {
            None => Bytes::from_static(&[0; LENGTH_BYTES]),
            Some(s3) => {
                let text = serde_json::to_vec(s3.as_ref()).expect("a struct of strings is JSON");
                let sealed = seal.seal(&text, &s3_place(seq));
                let length = u32::try_from(sealed.len()).expect("smaller than a submission");
                [&sealed[..], &length.to_le_bytes()].concat().into()
            }
        };
        Self { body: input.body.as_bytes().clone(), rest }
    }

    /// The body, and the encrypted settings if there are any.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let (bytes, length) = bytes.split_last_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (body, sealed) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
        Some((body, (!sealed.is_empty()).then_some(sealed)))
    }

    /// The body only.
    pub(crate) fn read_body(bytes: &Bytes) -> Option<Json> {
        let (body, _) = Self::split(bytes)?;
        Some(Json::from_stored(bytes.slice_ref(body)))
    }

    /// Decodes an input; `None` when it is damaged.
    pub(crate) fn read(bytes: &Bytes, seal: &Seal, seq: u64) -> Option<Payload> {
        let (body, sealed) = Self::split(bytes)?;
        let s3_config = match sealed {
            Some(sealed) => Some(open_s3(sealed, seal, seq)?),
            None => None,
        };
        Some(Payload { body: Json::from_stored(bytes.slice_ref(body)), s3_config })
    }
}

/// Decrypts the object-storage settings of a job; `None` when they are damaged.
pub(crate) fn open_s3(sealed: &[u8], seal: &Seal, seq: u64) -> Option<Arc<S3Config>> {
    let text = seal.open_text(sealed, &s3_place(seq))?;
    serde_json::from_slice(&text).ok().map(Arc::new)
}

/// The purpose that the encryption binds a job's object-storage settings to.
pub(crate) fn s3_place(seq: u64) -> String {
    format!("input.s3 {seq}")
}

/// A payload, if it exists; `Err` is the reason why it is unusable, when it is damaged.
pub(crate) type Found<T> = Result<Option<T>, String>;
