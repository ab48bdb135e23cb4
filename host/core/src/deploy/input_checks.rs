//! Checks the inputs of new jobs, with the schemas of the components that they run.
//!
//! **Bounds.** Compiled schemas take [`CACHE_BYTES`] at most; one that was dropped is compiled
//! again. A check that needs this, or that is not [quick](Budget::QUICK), runs on a thread of its
//! own, with a [full budget](Budget::FULL). Half of the cores run such checks at one time, and
//! owners take turns, so that the schema or the inputs of one owner do not delay the submissions of
//! others.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::{Deployment, EndpointType};
use crate::job::payload::Json;
use crate::sharing::permits::Permits;
use gristmill_json_schema::{Budget, InputSchema, NotChecked, SchemaText};

/// Bytes of all compiled schemas.
const CACHE_BYTES: u64 = 32 << 20;

/// Compiled schemas that the cache expects.
const CACHE_ITEMS: usize = 256;

/// The bytes of compiled schemas.
#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<ComponentDigest, Arc<InputSchema>> for Bytes {
    fn weight(&self, _: &ComponentDigest, schema: &Arc<InputSchema>) -> u64 {
        schema.bytes() as u64
    }
}

/// The checks of inputs.
#[derive(Debug)]
pub struct InputChecks {
    compiled: Cache<ComponentDigest, Arc<InputSchema>, Bytes>,
    slow: Permits,
}

/// Why an input was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It does not fit the schema.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be checked with the steps that a check may take.
    #[error(
        "the input is too large, or too deep, to be checked by the input schema of endpoint `{0}`"
    )]
    TooLarge(String),
}

impl Default for InputChecks {
    fn default() -> Self {
        Self {
            compiled: Cache::with_weighter(CACHE_ITEMS, CACHE_BYTES, Bytes),
            slow: Permits::half_of_cores(),
        }
    }
}

impl InputChecks {
    /// Checks the input of a new job. Without a schema, every input passes, and so does a request
    /// for a handler of HTTP.
    ///
    /// # Errors
    /// [`CheckError`].
    pub async fn check(&self, deployment: &Deployment, input: &Json) -> Result<(), CheckError> {
        let Deployment { component: Some(component), input_schema: Some(text), .. } = deployment
        else {
            return Ok(());
        };
        if deployment.endpoint.kind == EndpointType::LoadBalancer {
            return Ok(());
        }
        let known = self.compiled.get(component);
        let quick = known.as_ref().map(|schema| schema.check(input.as_str(), Budget::QUICK));
        let checked = match quick {
            Some(Ok(()) | Err(NotChecked::Invalid(_))) => quick.unwrap_or(Ok(())),
            Some(Err(NotChecked::Exhausted)) | None => {
                let share = self.slow.share(&deployment.endpoint.owner, &deployment.endpoint.id);
                let turn = share.acquire().await;
                let (input, text) = (input.clone(), text.clone());
                let checking = tokio::task::spawn_blocking(move || {
                    // Held until the check is done, even if the call ends before.
                    let _turn = turn;
                    let schema = known.or_else(|| compiled(&text));
                    let checked =
                        schema.as_ref().map(|schema| schema.check(input.as_str(), Budget::FULL));
                    (schema, checked.unwrap_or(Ok(())))
                });
                let (schema, checked) =
                    checking.await.unwrap_or((None, Err(NotChecked::Exhausted)));
                if let Some(schema) = schema {
                    self.compiled.insert(*component, schema);
                }
                checked
            }
        };
        checked.map_err(|why| match why {
            NotChecked::Invalid(sentence) => CheckError::Invalid(sentence),
            NotChecked::Exhausted => CheckError::TooLarge(deployment.endpoint.id.to_string()),
        })
    }
}

/// The schema, ready for checks. A schema that this version of the host cannot read checks nothing:
/// it was valid when it was uploaded.
fn compiled(text: &SchemaText) -> Option<Arc<InputSchema>> {
    InputSchema::parse(text.as_str()).ok().map(Arc::new)
}
