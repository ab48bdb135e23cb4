//! What was used: all pages of a report.

use reqwest::header::LINK;
use reqwest::{Method, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::{Answer, Client, ClientError};

/// Most pages that are read of one report.
const PAGES_MAX: usize = 1_000;

/// What one group used in one bucket of time.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BillingRecord<'a> {
    /// When the bucket begins.
    pub(crate) time: String,
    /// The group, by whichever of these three fields the report is made.
    #[serde(alias = "endpointId", alias = "templateId", alias = "ownerId")]
    pub(crate) id: String,
    /// Credits, with all digits.
    #[serde(borrow)]
    pub(crate) amount: &'a RawValue,
    /// Attempts that have ended.
    pub(crate) jobs: u64,
    /// Milliseconds that they ran.
    pub(crate) time_billed_ms: u64,
    /// Milliseconds for which they held a processor.
    pub(crate) cpu_ms: u64,
    /// The greatest memory of one of them.
    pub(crate) memory_bytes_peak: u64,
    /// Bytes of inputs.
    pub(crate) bytes_in: u64,
    /// Bytes of outputs and chunks.
    pub(crate) bytes_out: u64,
}

impl Client {
    /// All records of a report, as the host sent them. `parameters` say which.
    pub(crate) async fn billing(
        &self,
        parameters: &[(&str, String)],
    ) -> Result<Vec<Box<RawValue>>, ClientError> {
        let mut records = vec![];
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let mut url = self.url(&["v1", "billing", "endpoints"]);
            let cursor_parameter = cursor.iter().map(|cursor: &String| ("cursor", cursor.clone()));
            url.query_pairs_mut().extend_pairs(parameters.iter().cloned().chain(cursor_parameter));
            let response = self.open(self.request(Method::GET, url)).await?;
            cursor = next(&response);
            let answer = self.read(response).await.map(Answer)?;
            records.extend(answer.read::<Vec<Box<RawValue>>>()?);
            if cursor.is_none() {
                return Ok(records);
            }
        }
        Err(ClientError::Garbled("the report has more pages than this command reads".to_owned()))
    }
}

/// The cursor of the next page.
fn next(response: &Response) -> Option<String> {
    let link = response.headers().get(LINK)?.to_str().ok()?;
    let (path, relation) = link.strip_prefix('<')?.split_once('>')?;
    let url = Url::parse("http://host/").ok()?.join(path).ok()?;
    let cursor = url.query_pairs().find(|(name, _)| name == "cursor")?.1.into_owned();
    relation.contains("rel=\"next\"").then_some(cursor)
}
