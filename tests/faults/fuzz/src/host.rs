//! Both APIs over the memory store, without workers: the target itself acts as the handler. Time is
//! tokio's paused clock and a manual clock, so no call takes time.

use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_api::{AddressLimit, Api, ApiParts, ApiState, Compatibility, HostFacts, RateLimits};
use gristmill_control::{Access, Control, ControlParts};
use gristmill_core::access::key::{ApiKey, NewKey, Scope};
use gristmill_core::access::secrets::{RotateError, Rotated, SecretsStore};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogStore as _};
use gristmill_core::deploy::endpoint::{Endpoint, RateLimit};
use gristmill_core::deploy::template::Template;
use gristmill_core::http_call::HttpBody;
use gristmill_core::http_calls::{HttpCalls, NoAnswer, WantedAnswer};
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, TemplateId, WorkerId};
use gristmill_core::job::policy::Strictness;
use gristmill_core::job::record::ClaimedJob;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore as _;
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::trace::Tracer;
use gristmill_core::webhook::delivery::{ReceiverRefused, WebhookReceivers};
use gristmill_edge::{CertificateExpiry, PeerAddress};
use gristmill_test_support::ModelStore;
use gristmill_test_support::{
    NoBackup, NoRegistries, NoRuntime, NoSchedules, NoWorkers, RecordedFiles,
};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio::runtime::Runtime as Tokio;

/// Longer than the longest lifetime of a job.
const EIGHT_DAYS_MS: u64 = 8 * 86_400_000;

/// The only endpoint.
pub const ENDPOINT: &str = "e";

/// No target rotates the key of secrets or has a handler of HTTP, and each may name any receiver.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl SecretsStore for Nothing {
    async fn rotate_secrets_key(&self) -> Result<Rotated, RotateError> {
        Err(RotateError::Closed)
    }
}

#[async_trait]
impl HttpCalls for Nothing {
    async fn call(&self, _: WantedAnswer) -> Result<Response<HttpBody>, NoAnswer> {
        Err(NoAnswer::Busy)
    }
}

impl WebhookReceivers for Nothing {
    fn check(&self, _: &str) -> Result<(), ReceiverRefused> {
        Ok(())
    }
}

/// A host of one endpoint.
pub struct Host {
    pub tokio: Tokio,
    pub store: Arc<ModelStore>,
    pub clock: Arc<ManualClock>,
    pub endpoint: EndpointId,
    api: Api,
    authorization: String,
}

/// The answer to a call.
pub type Answer = Response<UnsyncBoxBody<Bytes, String>>;

impl Host {
    /// Runs `with` on the thread's host, which has no jobs then.
    pub fn run(with: impl AsyncFnOnce(&Self)) {
        thread_local!(static HOST: OnceCell<Host> = const { OnceCell::new() });
        HOST.with(|host| {
            let host = host.get_or_init(Self::new);
            host.tokio.block_on(async {
                with(host).await;
                host.forget_jobs().await;
            });
        });
    }

    fn new() -> Self {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let signals = Arc::new(Signals::default());
        let store = Arc::new(ModelStore::new(ShardId(7), clock.clone(), signals.clone()));
        let (owner, template) = (OwnerId::new("o").unwrap(), TemplateId::new("t").unwrap());
        let endpoint = EndpointId::new(ENDPOINT).unwrap();
        let at = Timestamp::from_millis(0);
        let (key, text) = ApiKey::generate(
            NewKey {
                name: "fuzz".to_owned(),
                owner: owner.clone(),
                scopes: vec![Scope::Admin],
                endpoints: None,
                expires_at: None,
            },
            at,
        );
        let entries = [
            CatalogEntry::Template(Template::new(template.clone(), owner.clone(), "i:latest")),
            CatalogEntry::Endpoint(Endpoint::new(endpoint.clone(), owner, template, at)),
            CatalogEntry::Key(key),
        ];
        let workers = Arc::new(NoWorkers);
        let jobs =
            Jobs::new(store.clone(), signals, workers.clone(), Strictness::Refuse, Arc::default());
        let catalog = tokio.block_on(async {
            store.write_catalog(entries.map(CatalogChange::Put).into()).await.unwrap();
            Catalog::open(store.clone(), clock.clone()).await.unwrap()
        });
        let files = Arc::new(RecordedFiles::default());
        let control = Control::new(ControlParts {
            access: Access::with_keys(),
            clock: clock.clone(),
            catalog: Arc::new(catalog),
            workers,
            components: files.clone(),
            registries: Arc::new(NoRegistries),
            runtime: Arc::new(NoRuntime),
            volumes: files,
            store: store.clone(),
            logs: Arc::default(),
            scheduler: Arc::new(NoSchedules),
            actions: store.clone(),
            deliveries: store.clone(),
            usage: store.clone(),
            prices: Prices::default(),
            backups: Arc::new(NoBackup),
            metrics_endpoints_max: 10,
        });
        let api = Api::new(ApiState::new(ApiParts {
            clock: clock.clone(),
            control,
            jobs: Arc::new(jobs),
            http_calls: Arc::new(Nothing),
            disk_space: Arc::default(),
            secrets: Arc::new(Nothing),
            receivers: Arc::new(Nothing),
            tracer: Tracer::default(),
            facts: HostFacts::default(),
            certificate: CertificateExpiry::default(),
            connections_max: 20_000,
            http_domain: None,
            limits: no_limits(),
            compatibility: Compatibility { brand: "Platform".into(), ignores_gpu: false },
        }));
        let authorization = format!("Bearer {}", text.reveal());
        Self { tokio, store, clock, endpoint, api, authorization }
    }

    /// A call with a valid key. `path` follows the host's address.
    pub fn request(&self, method: &str, path: &str) -> Result<http::request::Builder, http::Error> {
        let uri = http::Uri::try_from(path)?;
        let request = Request::builder().method(method).uri(uri).header("host", "localhost");
        Ok(request.header("authorization", &self.authorization))
    }

    pub async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let peer = PeerAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let answer = self.api.clone().answer(request, Arc::new(peer.into())).await;
        answer.map(|body| body.map_err(|error| error.to_string()).boxed_unsync())
    }

    /// The job that is next in the queue.
    pub async fn claim(&self) -> Option<ClaimedJob> {
        let worker = WorkerId::new("w").unwrap();
        self.store.claim(&self.endpoint, &worker).await.unwrap()
    }

    /// The path of an operation on a job.
    pub fn path(&self, mount: &str, operation: &str, job: JobId) -> String {
        format!("{mount}/{ENDPOINT}/{operation}/{job}")
    }

    async fn forget_jobs(&self) {
        self.clock.advance(EIGHT_DAYS_MS);
        while self.store.stats().jobs > 0 {
            let _ = self.store.expire().await.unwrap();
        }
    }
}

/// Limits that no run of a fuzzer reaches: an answer of 429 would hide other behaviour.
fn no_limits() -> RateLimits {
    const NONE: RateLimit =
        RateLimit { calls_per_10s: u32::MAX, concurrent: None, calls_per_worker: 0 };
    RateLimits {
        run: NONE,
        runsync: NONE,
        openai: NONE,
        status: NONE,
        stream: NONE,
        cancel: NONE,
        retry: NONE,
        purge_queue: NONE,
        requests: NONE,
        http: NONE,
        management: NONE,
        events: NONE,
        unauthenticated: AddressLimit { calls_per_10s: NonZeroU32::MAX },
        visitors: AddressLimit { calls_per_10s: NonZeroU32::MAX },
    }
}

/// The whole body.
pub async fn body(answer: Answer) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// Checks a refusal: one sentence, one code, and no key `status`, for which a client would poll for
/// ever.
pub async fn check_refusal(answer: Answer) {
    let status = answer.status();
    assert!(matches!(status.as_u16(), 400 | 404 | 413), "a refusal with {status}");
    let body = body(answer).await;
    let refusal: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let text = |key: &str| refusal[key].as_str().unwrap_or_default().to_owned();
    assert!(!text("error").is_empty() && !text("code").is_empty(), "{refusal}");
    assert!(refusal.get("status").is_none(), "{refusal}");
}
