//! Fetches one image: its manifest, the authentication, and its bytes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gristmill_core::deploy::image::{BlobDigest, ComponentManifest, MANIFEST_TYPE, RemoteImage};
use gristmill_core::deploy::registry_auth::RegistryAuth;
use gristmill_core::id::OwnerId;
use gristmill_core::limits::IMAGE_MANIFEST_BYTES_MAX;
use gristmill_core::registries::{FetchError, Registries};
use gristmill_core::runtime::{AddComponentError, AddedComponent, Components, StageError, Staged};
use gristmill_egress::{AGENT, AddressPolicy, Clients, innermost_cause, refused_address};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use tokio::time::timeout;
use url::{Origin, Url};

use crate::allow::{HOW_TO_ALLOW, RegistryHosts};
use crate::challenge::Challenge;
use crate::fetch_turns::FetchTurns;

/// Time for one image, without waiting for other fetches and without compiling.
const FETCH_TIME_MAX: Duration = Duration::from_secs(120);

/// Time for the head of one answer, from the connection on.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Time between two pieces of an answer's body.
const PIECE_TIME_MAX: Duration = Duration::from_secs(30);

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// Largest answer of a token service, in bytes.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Fetches images.
#[derive(Debug)]
pub struct Fetcher {
    clients: Clients,
    allowed: RegistryHosts,
    components: Arc<dyn Components>,
    turns: FetchTurns,
}

impl Fetcher {
    /// A fetcher for registries at addresses that the policy permits, and for allowed ones. It adds
    /// fetched images to `components`.
    pub fn new(
        allowed: RegistryHosts,
        addresses: AddressPolicy,
        components: Arc<dyn Components>,
    ) -> Self {
        Self { clients: Clients::new(addresses), allowed, components, turns: FetchTurns::new() }
    }

    async fn download(
        &self,
        image: &RemoteImage,
        auth: Option<&RegistryAuth>,
        owner: &OwnerId,
    ) -> Result<Box<dyn Staged>, FetchError> {
        let base = self.allowed.base(image.registry()).map_err(FetchError::Refused)?;
        let at = |rest: &str| {
            let path = format!("{}/{rest}", image.repository());
            base.join(&path).map_err(|error| FetchError::Refused(error.to_string()))
        };
        let mut caller = Caller { image, auth, authorization: None, registry: base.origin() };
        let wanted = at(&format!("manifests/{}", image.tag_or_digest()))?;
        let answer = self.get(&mut caller, wanted, MANIFEST_TYPE).await?;
        let manifest = read(answer, IMAGE_MANIFEST_BYTES_MAX, "the manifest").await?;
        if let Some(digest) = image.digest() {
            check_digest("manifest", BlobDigest::of(&manifest), digest)?;
        }
        let manifest = ComponentManifest::parse(&manifest)
            .map_err(|error| FetchError::Refused(error.to_string()))?;
        let wanted = at(&format!("blobs/{}", manifest.component.digest.oci()))?;
        let mut answer = self.get(&mut caller, wanted, "*/*").await?;
        let staged = self.components.stage(owner).await.map_err(|error| stage_error(&error))?;
        while let Some(piece) = next_piece(&mut answer).await? {
            if staged.len() + piece.len() as u64 > manifest.component.bytes {
                break;
            }
            staged.write(piece).await.map_err(|error| stage_error(&error))?;
        }
        check_digest("component", staged.digest(), manifest.component.digest)?;
        Ok(staged)
    }

    /// The successful answer to a GET, after redirects, and with a token if one is needed.
    async fn get(
        &self,
        caller: &mut Caller<'_>,
        mut url: Url,
        accept: &'static str,
    ) -> Result<Response, FetchError> {
        let mut redirects = 0;
        loop {
            let is_registry = url.origin() == caller.registry;
            let authorization = caller.authorization.as_ref().filter(|_| is_registry);
            let answer = self.send(&url, accept, authorization).await?;
            let status = answer.status();
            if status == StatusCode::OK {
                return Ok(answer);
            }
            if status == StatusCode::UNAUTHORIZED && is_registry && authorization.is_none() {
                caller.authorization = Some(self.authorize(caller, &answer).await?);
                continue;
            }
            if !status.is_redirection() {
                return Err(FetchError::Refused(caller.complaint(status)));
            }
            let target = answer.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            redirects += 1;
            url = target.filter(|_| redirects <= REDIRECTS_MAX).ok_or_else(|| {
                let most = format!(
                    "the registry redirects to nowhere, or more than {REDIRECTS_MAX} times"
                );
                FetchError::Refused(most)
            })?;
        }
    }

    /// Sends one request, if its URL is permitted.
    async fn send(
        &self,
        url: &Url,
        accept: &'static str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, FetchError> {
        let address_scope =
            self.allowed.address_scope(url, &self.clients).map_err(FetchError::Refused)?;
        let client =
            self.clients.get(address_scope).map_err(|error| FetchError::Host(error.to_string()))?;
        let request = client.get(url.clone()).header(ACCEPT, accept).header(USER_AGENT, AGENT);
        let request = match authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        };
        let answer = timeout(HEAD_TIME_MAX, request.send()).await;
        answer.map_err(|_| silent(HEAD_TIME_MAX))?.map_err(|error| broken(&error))
    }

    /// The value of `Authorization` for a second request after this answer.
    async fn authorize(
        &self,
        caller: &Caller<'_>,
        answer: &Response,
    ) -> Result<HeaderValue, FetchError> {
        let basic = caller.auth.map(|auth| {
            let pair = format!("{}:{}", auth.username, auth.password);
            header(&format!("Basic {}", STANDARD.encode(pair)))
        });
        let basic = basic.transpose()?;
        let refused = || FetchError::Refused(caller.complaint(StatusCode::UNAUTHORIZED));
        let (realm, service, scope) = match Challenge::read(answer.headers()).ok_or_else(refused)? {
            Challenge::Basic => return basic.ok_or_else(refused),
            Challenge::Bearer { realm, service, scope } => (realm, service, scope),
        };
        let mut url = Url::parse(&realm).map_err(|_| {
            FetchError::Refused("the registry names no URL where it has its tokens made".to_owned())
        })?;
        let pull = || format!("repository:{}:pull", caller.image.repository());
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &scope.unwrap_or_else(pull));
        let answer = self.send(&url, "application/json", basic.as_ref()).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Refused(caller.complaint(answer.status())));
        }
        let text = read(answer, TOKEN_BYTES_MAX, "the token").await?;
        let token = serde_json::from_slice::<TokenAnswer>(&text).ok();
        let token = token.and_then(|answer| answer.token.or(answer.access_token));
        let token = token.ok_or_else(|| {
            FetchError::Refused("the registry's token service answers without a token".to_owned())
        })?;
        header(&format!("Bearer {token}"))
    }
}

#[async_trait]
impl Registries for Fetcher {
    async fn fetch(
        &self,
        image: &RemoteImage,
        auth: Option<&RegistryAuth>,
        owner: &OwnerId,
    ) -> Result<AddedComponent, FetchError> {
        let turn = self.turns.take(owner).await?;
        let download = Box::pin(self.download(image, auth, owner));
        let staged = timeout(FETCH_TIME_MAX, download).await.unwrap_or_else(|_| {
            let seconds = FETCH_TIME_MAX.as_secs();
            Err(FetchError::Refused(format!("it was not received within {seconds} s")))
        })?;
        drop(turn);
        staged.add(owner).await.map_err(|error| match error {
            AddComponentError::Rejected(reason) => FetchError::Refused(reason),
            AddComponentError::TooManyWaiting => FetchError::TooManyWaiting(error.to_string()),
            AddComponentError::NoSpace(short) => FetchError::NoSpace(short),
            AddComponentError::Failed(reason) => FetchError::Host(reason),
        })
    }
}

/// The request for an image.
struct Caller<'a> {
    image: &'a RemoteImage,
    auth: Option<&'a RegistryAuth>,
    /// Sent only to the registry.
    authorization: Option<HeaderValue>,
    registry: Origin,
}

impl Caller<'_> {
    /// The explanation of a status code for the template's author.
    fn complaint(&self, status: StatusCode) -> String {
        match (status, self.auth) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(auth)) => {
                format!("the registry refuses the credentials `{}` for it", auth.id)
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => {
                "the registry asks for credentials; name them as `containerRegistryAuthId`"
                    .to_owned()
            }
            (StatusCode::NOT_FOUND, _) => "the registry has no such image".to_owned(),
            _ => format!("the registry answers with status {}", status.as_u16()),
        }
    }
}

/// The answer of a token service; the name of the field depends on the service's age.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// The next piece of an answer's body; `None` at its end.
async fn next_piece(answer: &mut Response) -> Result<Option<Bytes>, FetchError> {
    let piece = timeout(PIECE_TIME_MAX, answer.chunk()).await;
    piece.map_err(|_| silent(PIECE_TIME_MAX))?.map_err(|error| broken(&error))
}

/// A body of at most `bytes_max`.
async fn read(mut answer: Response, bytes_max: usize, what: &str) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_piece(&mut answer).await? {
        if bytes.len() + piece.len() > bytes_max {
            return Err(FetchError::Refused(format!("{what} is larger than {bytes_max} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn check_digest(what: &str, found: BlobDigest, wanted: BlobDigest) -> Result<(), FetchError> {
    if found == wanted {
        return Ok(());
    }
    Err(FetchError::Refused(format!("the registry sent another {what} than {}", wanted.oci())))
}

/// A header value that is hidden in logs.
fn header(text: &str) -> Result<HeaderValue, FetchError> {
    let unusable = |_| {
        FetchError::Refused("the credentials, or the token, cannot stand in a header".to_owned())
    };
    let mut value = HeaderValue::from_str(text).map_err(unusable)?;
    value.set_sensitive(true);
    Ok(value)
}

fn broken(error: &reqwest::Error) -> FetchError {
    FetchError::Refused(match refused_address(error) {
        Some(refused) => format!("{refused}; {HOW_TO_ALLOW}"),
        None if error.is_connect() => format!("cannot connect: {}", innermost_cause(error)),
        None => format!("the connection broke: {}", innermost_cause(error)),
    })
}

fn silent(waited: Duration) -> FetchError {
    FetchError::Refused(format!("the registry did not answer for {} s", waited.as_secs()))
}

fn stage_error(error: &StageError) -> FetchError {
    match error {
        StageError::Full => FetchError::Full,
        StageError::NoSpace(short) => FetchError::NoSpace(*short),
        StageError::OwnerDiskFull { .. } => FetchError::OwnerDiskFull(error.to_string()),
        StageError::Io(_) => host(error),
    }
}

fn host(error: &dyn std::error::Error) -> FetchError {
    FetchError::Host(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_beyond_its_owners_share_of_the_disk_is_no_mistake_of_the_call() {
        let refused = StageError::OwnerDiskFull { held_mib: 30 };
        assert_eq!(stage_error(&refused), FetchError::OwnerDiskFull(refused.to_string()));
        assert_eq!(stage_error(&StageError::Full), FetchError::Full);
    }
}
