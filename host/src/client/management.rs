//! The management API: the host's objects, by their [`Kind`], and their documents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gristmill_core::endpoint::Metering;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::image::RegistryHost;
use gristmill_core::key::Scope;
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use url::Url;

use super::{Answer, Client, ClientError, EventStream, with_query};

/// Most time for an upload, including compiling.
const UPLOAD_TIME_MAX: Duration = Duration::from_mins(15);

/// Most time for replacing the key of stored secrets. The host reads all waiting inputs.
const ROTATION_TIME_MAX: Duration = Duration::from_hours(24);

/// An upload is sent in pieces of this size, so that its progress can be shown.
const PIECE_BYTES: usize = 64 << 10;

/// The kinds of objects.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Endpoints,
    Handlers,
    Keys,
    RegistryAuths,
    Templates,
    Volumes,
}

impl Kind {
    /// Its path in URLs.
    fn path(self) -> &'static str {
        match self {
            Self::Endpoints => "endpoints",
            Self::Handlers => "handlers",
            Self::Keys => "keys",
            Self::RegistryAuths => "containerregistryauth",
            Self::Templates => "templates",
            Self::Volumes => "networkvolumes",
        }
    }
}

/// The host's answer to an upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upload {
    /// `name:tag`.
    pub(crate) image: String,
    /// SHA-256 of the component, in hexadecimal.
    pub(crate) sha256: String,
    /// Size of the component.
    pub(crate) size_in_bytes: u64,
    /// Milliseconds that compiling took.
    pub(crate) compile_ms: u64,
}

/// A handler in the host's documents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandlerDocument {
    /// `name:tag`.
    pub(crate) image: String,
    /// SHA-256 of the component, in hexadecimal.
    pub(crate) sha256: String,
    /// Size of the component.
    pub(crate) size_in_bytes: u64,
    /// Its imports.
    pub(crate) imports: Vec<String>,
    /// Its exports.
    pub(crate) exports: Vec<String>,
    /// The languages that it was written in.
    pub(crate) language: Vec<ProducerDocument>,
    /// The tools that made it.
    pub(crate) toolchain: Vec<ProducerDocument>,
    /// Milliseconds that compiling took.
    pub(crate) compile_ms: u64,
    /// When the name was last moved.
    pub(crate) updated_at: String,
}

/// A language or a tool.
#[derive(Debug, Deserialize)]
pub(crate) struct ProducerDocument {
    /// Its name.
    pub(crate) name: String,
    /// The version, which may be empty.
    pub(crate) version: String,
}

/// New credentials for a registry.
#[derive(Serialize)]
pub(crate) struct NewRegistryAuth<'a> {
    /// A display name.
    pub(crate) name: &'a str,
    /// The only registry that receives them; `None`: Docker Hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) registry: Option<&'a RegistryHost>,
    /// The user at the registry.
    pub(crate) username: &'a str,
    /// The password.
    pub(crate) password: &'a str,
}

/// Credentials in the host's documents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegistryAuthDocument {
    /// The id that templates use.
    pub(crate) id: String,
    /// A display name.
    pub(crate) name: String,
    /// The only registry that receives them; old credentials name none.
    pub(crate) registry: Option<String>,
    /// The user at the registry.
    pub(crate) username: String,
    /// When they were created.
    pub(crate) created_at: String,
}

/// A template to create, or the changed fields of one; a missing field takes its default, or stays
/// unchanged.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateDocument {
    /// A display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The uploaded handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image_name: Option<String>,
    /// First part of the handler's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) docker_entrypoint: Option<Vec<String>>,
    /// The handler's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) docker_start_cmd: Option<Vec<String>>,
    /// The handler's environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// Scratch space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container_disk_in_gb: Option<u32>,
    /// Where a volume is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume_mount_path: Option<String>,
    /// Credentials for the image's registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container_registry_auth_id: Option<String>,
    /// Markdown text for readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readme: Option<String>,
    /// Whether other owners may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_public: Option<bool>,
    /// Whether its instances are serverless workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_serverless: Option<bool>,
    /// Whether it is a platform template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_platform: Option<bool>,
}

/// An endpoint to create, or the changed fields of one; a missing field takes its default, or stays
/// unchanged.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointDocument {
    /// The template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template_id: Option<String>,
    /// Workers that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers_min: Option<u32>,
    /// Most workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers_max: Option<u32>,
    /// Seconds for which a worker waits for work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_timeout: Option<u32>,
    /// The rule for starting further workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scaler_type: Option<&'static str>,
    /// The number of seconds or jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scaler_value: Option<u32>,
    /// Most jobs that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_waiting_jobs: Option<u32>,
    /// Milliseconds that a job may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) execution_timeout_ms: Option<u64>,
    /// Memory of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mib: Option<u64>,
    /// Fuel of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_fuel: Option<u64>,
    /// How computation is metered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metering: Option<Metering>,
    /// The lifetime of an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reuse: Option<ReuseDocument>,
    /// Hosts that a job may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// The network volume of a job; an empty text removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_volume_id: Option<String>,
    /// How long jobs are kept after their end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention: Option<RetentionDocument>,
}

/// The given retentions of ended jobs, in milliseconds; 0 restores the default.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct RetentionDocument {
    /// Of jobs that complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed: Option<u64>,
    /// Of jobs that fail or time out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<u64>,
    /// Of jobs that are cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cancelled: Option<u64>,
}

/// The given limits of an instance's lifetime.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReuseDocument {
    /// Most jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_jobs: Option<u32>,
    /// Seconds that it waits for the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_idle: Option<u32>,
}

/// A network volume to create.
#[derive(Debug, Serialize)]
pub(crate) struct NewVolume<'a> {
    /// A display name.
    pub(crate) name: &'a str,
    /// Its size limit, in gigabytes.
    pub(crate) size: u32,
}

/// A network volume in the host's documents.
#[derive(Debug, Deserialize)]
pub(crate) struct VolumeDocument {
    /// Its id.
    pub(crate) id: String,
    /// A display name.
    pub(crate) name: String,
    /// Its size limit, in gigabytes.
    pub(crate) size: u32,
}

/// A key to create.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewKey<'a> {
    /// A display name.
    pub(crate) name: &'a str,
    /// Its permissions.
    pub(crate) scopes: &'a [Scope],
    /// Its owner; `None`: the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<&'a OwnerId>,
    /// The endpoints that it may use; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<&'a [EndpointId]>,
    /// Seconds after which it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_seconds: Option<u64>,
}

/// The answer to a replacement of the key of stored secrets.
#[derive(Debug, Deserialize)]
pub(crate) struct RotatedSecrets {
    /// Records that were encrypted again.
    pub(crate) records: u64,
    /// Jobs whose `s3Config` was encrypted again.
    pub(crate) jobs: u64,
}

/// A key in the host's documents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyDocument {
    /// The public part of the key.
    pub(crate) id: String,
    /// A display name.
    pub(crate) name: String,
    /// Its owner.
    pub(crate) owner: String,
    /// Its permissions.
    pub(crate) scopes: Vec<String>,
    /// The endpoints that it may use; `None`: all.
    pub(crate) endpoints: Option<Vec<String>>,
    /// When it was created.
    pub(crate) created_at: String,
    /// The time from which it is refused.
    pub(crate) expires_at: Option<String>,
    /// The key itself; only in the answer to its creation.
    pub(crate) key: Option<String>,
}

/// The usage of one group in one bucket of time.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BillingRecord<'a> {
    /// When the bucket begins.
    pub(crate) time: String,
    /// The group, in one of these three fields.
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

#[derive(Serialize)]
struct Rollback {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
}

/// Whether an object existed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deployed {
    /// It was created.
    Created,
    /// It was changed.
    Updated,
}

/// The additional fields of a document for creating an object.
#[derive(Serialize)]
struct Named<'a, T> {
    id: &'a EndpointId,
    name: &'a EndpointId,
    #[serde(flatten)]
    document: &'a T,
}

impl Client {
    /// Uploads a component as `image` (`name:tag`); returns once it is compiled. `on_sent` is
    /// called with the number of bytes that were passed to the network.
    pub(crate) async fn upload(
        &self,
        image: &str,
        component: Bytes,
        on_sent: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Answer, ClientError> {
        let len = component.len();
        let pieces = (0..len).step_by(PIECE_BYTES).map(move |start| {
            let end = (start + PIECE_BYTES).min(len);
            on_sent(end as u64);
            Ok::<_, std::convert::Infallible>(component.slice(start..end))
        });
        let request = self
            .request(Method::PUT, self.url(&["v1", "handlers", image]))
            .timeout(UPLOAD_TIME_MAX)
            .header(CONTENT_TYPE, "application/wasm")
            // Announced, so that a body that is too large is refused before it is sent.
            .header(CONTENT_LENGTH, len)
            .body(reqwest::Body::wrap_stream(futures::stream::iter(pieces)));
        self.send(request).await
    }

    /// Replaces the key of stored secrets; returns once they are encrypted with the new key.
    pub(crate) async fn rotate_secrets_key(&self) -> Result<Answer, ClientError> {
        let url = self.url(&["v1", "secrets", "rotate"]);
        self.send(self.request(Method::POST, url).timeout(ROTATION_TIME_MAX)).await
    }

    /// All objects of a kind that match the query, as one array.
    pub(crate) async fn all(
        &self,
        kind: Kind,
        query: &[(&str, &str)],
    ) -> Result<Answer, ClientError> {
        self.list(&["v1", kind.path()], query).await
    }

    /// One object.
    pub(crate) async fn one(
        &self,
        kind: Kind,
        id: &str,
        query: &[(&str, &str)],
    ) -> Result<Answer, ClientError> {
        let url = with_query(self.url(&["v1", kind.path(), id]), query);
        self.send(self.request(Method::GET, url)).await
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        document: &(impl Serialize + Sync),
    ) -> Result<Answer, ClientError> {
        self.send_json(Method::POST, &["v1", kind.path()], document).await
    }

    /// Changes the fields of an object that the document has.
    pub(crate) async fn update(
        &self,
        kind: Kind,
        id: &str,
        document: &(impl Serialize + Sync),
    ) -> Result<Answer, ClientError> {
        self.send_json(Method::PATCH, &["v1", kind.path(), id], document).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, kind: Kind, id: &str) -> Result<(), ClientError> {
        let url = self.url(&["v1", kind.path(), id]);
        self.send(self.request(Method::DELETE, url)).await.map(drop)
    }

    /// The releases of an endpoint, the newest first.
    pub(crate) async fn releases(&self, endpoint: &str) -> Result<Answer, ClientError> {
        self.list(&["v1", "endpoints", endpoint, "releases"], &[]).await
    }

    /// Rolls back to the previous handler, or to that of a version.
    pub(crate) async fn roll_back(
        &self,
        endpoint: &EndpointId,
        version: Option<u32>,
    ) -> Result<Answer, ClientError> {
        let path = ["v1", "endpoints", endpoint.as_str(), "rollback"];
        self.send_json(Method::POST, &path, &Rollback { version }).await
    }

    /// The usage.
    pub(crate) async fn billing(&self, query: &[(&str, &str)]) -> Result<Answer, ClientError> {
        self.list(&["v1", "billing", "endpoints"], query).await
    }

    /// Creates the template `id`, or changes it.
    pub(crate) async fn deploy_template(
        &self,
        id: &EndpointId,
        document: &TemplateDocument,
    ) -> Result<Deployed, ClientError> {
        self.put_document(Kind::Templates, id, document).await
    }

    /// Creates the endpoint `id`, or changes it.
    pub(crate) async fn deploy_endpoint(
        &self,
        id: &EndpointId,
        document: &EndpointDocument,
    ) -> Result<Deployed, ClientError> {
        self.put_document(Kind::Endpoints, id, document).await
    }

    async fn put_document<T: Serialize + Sync>(
        &self,
        kind: Kind,
        id: &EndpointId,
        document: &T,
    ) -> Result<Deployed, ClientError> {
        match self.update(kind, id.as_str(), document).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|_| Deployed::Updated),
        }
        let new = Named { id, name: id, document };
        let created = self.create(kind, &new).await;
        created.map(|_| Deployed::Created)
    }

    /// The newest log lines of an endpoint's handlers.
    pub(crate) async fn logs(
        &self,
        endpoint: &EndpointId,
        query: &[(&str, String)],
    ) -> Result<Answer, ClientError> {
        self.send(self.request(Method::GET, self.logs_url(endpoint, query))).await
    }

    /// The same, followed by new lines; `after` is the id of the last seen line.
    pub(crate) async fn follow_logs(
        &self,
        endpoint: &EndpointId,
        query: &[(&str, String)],
        after: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let request = self.request(Method::GET, self.logs_url(endpoint, query));
        EventStream::open(self, request, after).await
    }

    fn logs_url(&self, endpoint: &EndpointId, query: &[(&str, String)]) -> Url {
        let mut url = self.url(&["v1", "endpoints", endpoint.as_str(), "logs"]);
        url.query_pairs_mut().extend_pairs(query);
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_endpoint_has_a_name_and_only_the_given_fields() {
        let id = EndpointId::new("echo").unwrap();
        let document = EndpointDocument {
            template_id: Some("echo".into()),
            workers_max: Some(4),
            metering: Some(Metering::Epoch),
            ..EndpointDocument::default()
        };
        let text = serde_json::to_string(&Named { id: &id, name: &id, document: &document });
        let expected =
            r#"{"id":"echo","name":"echo","templateId":"echo","workersMax":4,"metering":"epoch"}"#;
        assert_eq!(text.unwrap(), expected);
    }
}
