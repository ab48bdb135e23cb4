//! The rules of the services, over the store in memory and without HTTP.

mod charts;
mod deleted_templates;
mod deletions;
mod images;
mod job_actions;
mod keys;
mod live;
mod objects;
mod rollbacks;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use async_trait::async_trait;
use gristmill_core::access::key::{ApiKey, NewKey, Scope};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::{
    Catalog, CatalogChange, CatalogEntry, Component, Image, Producers, View,
};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobActionId, JobId, OwnerId, ShardId, TemplateId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::action::{JobAction, JobActionStore};
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{PolicyRequest, Strictness};
use gristmill_core::jobs::operations::{Jobs, SubmitMode, SubmitRequest};
use gristmill_core::logs::{LogAnswer, LogQuery, Logs};
use gristmill_core::signals::Signals;
use gristmill_core::store::StoreError;
use gristmill_core::time::{Clock as _, ManualClock, Timestamp};
use gristmill_test_support::ModelStore;
use gristmill_test_support::{
    NoBackup, NoRegistries, NoRuntime, NoSchedules, RecordedFiles, RecordedWorkers,
};
use gristmill_wire::management::EndpointInput;

use crate::{Access, Control, ControlError, ControlParts, Extent};

/// The services of a host without sandbox and network.
/// Job actions in the model, as in a database that can be away for the next so many calls.
#[derive(Debug)]
struct RefusedActions {
    store: Arc<ModelStore>,
    next_refused: AtomicUsize,
}

impl RefusedActions {
    fn of(store: Arc<ModelStore>) -> Self {
        Self { store, next_refused: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl JobActionStore for RefusedActions {
    async fn put_action(&self, action: JobAction) -> Result<(), StoreError> {
        let next = self.next_refused.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match next {
            Ok(_) => Err(StoreError::Unavailable),
            Err(_) => self.store.put_action(action).await,
        }
    }

    async fn delete_action(&self, id: JobActionId) -> Result<(), StoreError> {
        self.store.delete_action(id).await
    }

    async fn actions(&self) -> Result<Vec<JobAction>, StoreError> {
        self.store.actions().await
    }
}

struct Bench {
    control: Control,
    catalog: Arc<Catalog>,
    store: Arc<ModelStore>,
    actions: Arc<RefusedActions>,
    jobs: Jobs,
    logs: Arc<Logs>,
    workers: Arc<RecordedWorkers>,
    disk: Arc<RecordedFiles>,
    clock: Arc<ManualClock>,
}

impl Bench {
    /// Number of the log lines of an endpoint, which are all in memory here.
    fn lines(&self, endpoint: &EndpointIncarnation) -> usize {
        let query = LogQuery { count_max: 100, ..LogQuery::default() };
        match self.logs.read(endpoint, query) {
            LogAnswer::Complete(page) => page.lines.len(),
            LogAnswer::Partial(page) => page.complete().lines.len(),
        }
    }

    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let signals = Arc::new(Signals::default());
        let store = ModelStore::new(ShardId(1), clock.clone(), signals.clone());
        Self::with(store, signals, clock).await
    }

    /// The services of the next process.
    async fn restarted(self) -> Self {
        let signals = Arc::new(Signals::default());
        let store = self.store.reopen(signals.clone());
        Self::with(store, signals, self.clock).await
    }

    async fn with(store: ModelStore, signals: Arc<Signals>, clock: Arc<ManualClock>) -> Self {
        let store = Arc::new(store);
        let actions = Arc::new(RefusedActions::of(store.clone()));
        let catalog = Arc::new(Catalog::open(store.clone(), clock.clone()).await.unwrap());
        let workers = Arc::new(RecordedWorkers::default());
        let (disk, logs) = (Arc::new(RecordedFiles::default()), Arc::new(Logs::default()));
        let jobs =
            Jobs::new(store.clone(), signals, workers.clone(), Strictness::Refuse, Arc::default());
        let control = Control::new(ControlParts {
            access: Access::with_keys(),
            clock: clock.clone(),
            catalog: catalog.clone(),
            workers: workers.clone(),
            components: disk.clone(),
            registries: Arc::new(NoRegistries),
            runtime: Arc::new(NoRuntime),
            volumes: disk.clone(),
            store: store.clone(),
            scheduler: Arc::new(NoSchedules),
            actions: actions.clone(),
            deliveries: store.clone(),
            logs: logs.clone(),
            usage: store.clone(),
            prices: Prices::default(),
            backups: Arc::new(NoBackup),
            metrics_endpoints_max: 100,
        });
        Self { control, catalog, store, actions, jobs, logs, workers, disk, clock }
    }

    fn clock_ms(&self) -> u64 {
        self.clock.now().as_millis()
    }

    fn view(&self) -> Arc<View> {
        self.catalog.view()
    }

    async fn put(&self, entries: impl IntoIterator<Item = CatalogEntry>) {
        let changes = entries.into_iter().map(CatalogChange::Put).collect();
        self.catalog.change(|_| Ok::<_, ControlError>((changes, ()))).await.unwrap();
    }

    /// A key of this owner; `default` is the operator.
    async fn key(&self, owner: &str, scope: Scope) -> Arc<ApiKey> {
        let new = NewKey {
            name: owner.to_owned(),
            owner: owner_id(owner),
            scopes: vec![scope],
            endpoints: None,
            expires_at: None,
        };
        let (key, _) = ApiKey::generate(new, Timestamp::from_millis(0));
        self.put([CatalogEntry::Key(key.clone())]).await;
        Arc::new(key)
    }

    async fn template(&self, owner: &str, id: &str, image: &str, is_public: bool) {
        let template = Template::new(template_id(id), owner_id(owner), image);
        self.put([CatalogEntry::Template(Template { is_public, ..template })]).await;
    }

    /// A component of the owner with this name.
    async fn image(&self, owner: &str, name: &str, content: &str) -> ComponentDigest {
        let digest = ComponentDigest::of(content.as_bytes());
        let owner = owner_id(owner);
        let component = Component {
            digest,
            bytes: 1,
            imports: vec![],
            exports: vec![],
            uploaded_at: Timestamp::from_millis(0),
            compile_ms: 0,
            artifacts: [].into(),
            compiled_bytes: 1,
            producers: Producers::default(),
            input_schema: None,
            owners: [owner.clone()].into(),
        };
        let (name, tag) = (name.to_owned(), "latest".to_owned());
        let updated_at = Timestamp::from_millis(0);
        let image = Image { name, tag, digest, owner, updated_at, manifest: None };
        self.put([CatalogEntry::Component(component), CatalogEntry::Image(image)]).await;
        digest
    }

    async fn endpoint(
        &self,
        caller: &Arc<ApiKey>,
        id: &str,
        template: &str,
    ) -> Result<Arc<Endpoint>, ControlError> {
        let (id, template_id) = (Some(endpoint_id(id)), Some(template_id(template)));
        let new = EndpointInput { id, template_id, ..EndpointInput::default() };
        self.control.endpoints.create(caller, new, Extent::Whole).await
    }

    async fn submit(&self, caller: &ApiKey, id: &str) -> JobId {
        let request = SubmitRequest {
            owner: caller.owner.clone(),
            input: Json::parse("1".to_owned()).unwrap(),
            policy: PolicyRequest::default(),
            webhook: None,
            s3_config: None,
            mode: SubmitMode::Async,
            idempotency: None,
            tags: None,
            trace: None,
            note: None,
        };
        let deployment = self.control.endpoints.deployment(caller, &endpoint_id(id)).unwrap();
        self.jobs.submit(&deployment, request).await.unwrap().id
    }
}

fn owner_id(text: &str) -> OwnerId {
    OwnerId::new(text).unwrap()
}

fn template_id(text: &str) -> TemplateId {
    TemplateId::new(text).unwrap()
}

fn endpoint_id(text: &str) -> EndpointId {
    EndpointId::new(text).unwrap()
}
