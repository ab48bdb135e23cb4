//! The `runpod-sdk` crate. `run.sh` starts the host and sets the environment.
#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "run.sh passes its settings as environment variables")]

use std::env;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use runpod_sdk::model::{
    BillingGrouping, BucketSize, ContainerRegistryAuthCreateInput, EndpointBillingQuery,
    EndpointCreateInput, EndpointUpdateInput, GetEndpointQuery, GetTemplateQuery,
    ListEndpointsQuery, ListPodsQuery, ListTemplatesQuery, NetworkVolumeBillingQuery,
    NetworkVolumeCreateInput, NetworkVolumeUpdateInput, PodBillingQuery, PodStatus,
    TemplateCategory, TemplateCreateInput, TemplateUpdateInput,
};
use runpod_sdk::serverless::{JobStatus, ServerlessEndpoint, ServerlessJob};
use runpod_sdk::service::{
    BillingService, EndpointsService, PodsService, RegistryService, TemplatesService,
    VolumesService,
};
use runpod_sdk::{Error, Result, RunpodClient};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

fn endpoint(name: &str) -> ServerlessEndpoint {
    ServerlessEndpoint::new(name, RunpodClient::from_env().unwrap())
}

fn management() -> RunpodClient {
    RunpodClient::builder()
        .with_api_key(env::var("GRISTMILL_MANAGE_KEY").unwrap())
        .with_rest_url(env::var("RUNPOD_REST_URL").unwrap())
        .build_client()
        .unwrap()
}

/// Fails instead of waiting for ever.
async fn within_a_minute<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), work).await.expect("this took more than a minute")
}

/// The SDK submits a job when it is first polled; this polls until the job has an id.
async fn submit(endpoint: &str, input: Value) -> ServerlessJob {
    let mut job = self::endpoint(endpoint).run(&input).unwrap();
    let submitted = poll_fn(|context| {
        if job.job_id().is_none()
            && let Poll::Ready(ended) = Pin::new(&mut job).poll(context)
        {
            panic!("not submitted: {ended:?}");
        }
        if job.job_id().is_some() { Poll::Ready(()) } else { Poll::Pending }
    });
    within_a_minute(submitted).await;
    job
}

async fn reaches(job: &ServerlessJob, status: JobStatus) {
    let poll = async {
        while job.status().await.unwrap() != status {
            sleep(Duration::from_millis(100)).await;
        }
    };
    within_a_minute(poll).await;
}

/// The outputs of all chunks, and the number of calls.
async fn streamed(job: &ServerlessJob) -> (JobStatus, Vec<Value>, usize) {
    let (mut outputs, mut calls) = (Vec::new(), 0);
    loop {
        let (status, chunks) = within_a_minute(job.stream()).await.unwrap();
        outputs.extend(chunks.into_iter().map(|chunk| chunk.output));
        calls += 1;
        if status.is_final() {
            return (status, outputs, calls);
        }
    }
}

fn assert_http<T: std::fmt::Debug>(result: Result<T>, status: u16) {
    match result {
        Err(Error::Http(error)) => assert_eq!(error.status().unwrap().as_u16(), status),
        other => panic!("not HTTP {status}: {other:?}"),
    }
}

#[tokio::test]
async fn run_now() {
    let input =
        json!({"text": "Mühle 磨", "big": 9_007_199_254_740_993_u64, "nested": [{"a": null}]});
    let output: Value = within_a_minute(endpoint("echo").run_now(&input)).await.unwrap();
    assert_eq!(output, input);
}

#[tokio::test]
async fn run_status_output() {
    let input = json!({"op": "sleep", "ms": 3000, "value": "late"});
    let mut job = submit("playground", input).await;
    assert!(matches!(job.status().await.unwrap(), JobStatus::InQueue | JobStatus::InProgress));
    let expected = json!({"slept": 3000, "echo": "late"});
    assert_eq!(within_a_minute(&mut job).await.unwrap(), expected);
    assert_eq!(job.status().await.unwrap(), JobStatus::Completed);
    assert_eq!(job.output::<Value>().await.unwrap(), expected);
}

#[tokio::test]
async fn failed_job() {
    let mut job = submit("playground", json!({"op": "fail", "message": "no more flour"})).await;
    let ended = within_a_minute(&mut job).await;
    assert!(matches!(ended, Err(Error::Job(_))), "{ended:?}");
    assert_eq!(job.status().await.unwrap(), JobStatus::Failed);
}

#[tokio::test]
async fn trapped_job() {
    reaches(&submit("playground", json!({"op": "trap"})).await, JobStatus::Failed).await;
}

/// The crate cannot set a job's policy, so this is the endpoint's own timeout.
#[tokio::test]
async fn execution_timeout() {
    let mut job = submit("hasty", json!({"op": "spin"})).await;
    let ended = within_a_minute(&mut job).await;
    assert!(matches!(ended, Err(Error::Job(_))), "{ended:?}");
    assert_eq!(job.status().await.unwrap(), JobStatus::TimedOut);
}

#[tokio::test]
async fn cancel_of_a_spinning_job() {
    let job = submit("playground", json!({"op": "spin"})).await;
    reaches(&job, JobStatus::InProgress).await;
    job.cancel().await.unwrap();
    assert_eq!(job.status().await.unwrap(), JobStatus::Cancelled);
    assert_eq!(streamed(&job).await, (JobStatus::Cancelled, vec![], 1));
}

#[tokio::test]
async fn stream_while_the_job_runs() {
    let job = submit("playground", json!({"op": "stream", "count": 25, "delay_ms": 150})).await;
    let (status, outputs, calls) = streamed(&job).await;
    assert_eq!(status, JobStatus::Completed);
    assert_eq!(outputs, (0..25).map(|i| json!({"i": i})).collect::<Vec<_>>());
    assert!(calls > 1, "all chunks came at once, at the end");
    assert_eq!(job.output::<Vec<Value>>().await.unwrap(), outputs);
}

#[tokio::test]
async fn stream_after_the_end_once() {
    let mut job = submit("token-stream", json!({"prompt": "fine; ground"})).await;
    let output = within_a_minute(&mut job).await.unwrap();
    assert_eq!(output, json!(["fine", ";", " ground"]));
    let (status, outputs, calls) = streamed(&job).await;
    assert_eq!((status, Value::from(outputs), calls), (JobStatus::Completed, output, 1));
    assert_eq!(streamed(&job).await, (JobStatus::Completed, vec![], 1));
}

#[tokio::test]
async fn health_and_purge_queue() {
    let paused = endpoint("paused-rust");
    let first = submit("paused-rust", json!({"n": 0})).await;
    submit("paused-rust", json!({"n": 1})).await;
    assert_eq!(first.status().await.unwrap(), JobStatus::InQueue);
    assert_eq!(paused.health().await.unwrap().jobs.in_queue, 2);
    paused.purge_queue().await.unwrap();
    assert_eq!(paused.health().await.unwrap().jobs.in_queue, 0);
    assert_http(first.status().await, 404);
}

#[tokio::test]
async fn health_counts() {
    let token_stream = endpoint("token-stream");
    let before = token_stream.health().await.unwrap().jobs.completed;
    let input = json!({"prompt": "counted"});
    within_a_minute(token_stream.run_now::<_, Value>(&input)).await.unwrap();
    assert!(token_stream.health().await.unwrap().jobs.completed > before);
}

#[tokio::test]
async fn refusals() {
    assert_http(endpoint("nowhere").run_now::<_, Value>(&json!({})).await, 404);
    assert_http(endpoint("nowhere").health().await, 404);
    let url = env::var("RUNPOD_API_URL").unwrap();
    let wrong_key = RunpodClient::builder().with_api_key("wrong").with_api_url(url);
    let echo = ServerlessEndpoint::new("echo", wrong_key.build_client().unwrap());
    assert_http(echo.run_now::<_, Value>(&json!({})).await, 401);
}

#[tokio::test]
async fn template_lookup() {
    let bound = GetTemplateQuery {
        include_endpoint_bound_templates: Some(true),
        include_public_templates: Some(true),
        include_runpod_templates: Some(true),
    };
    let template = management().get_template("playground", bound).await.unwrap();
    assert_eq!(template.id, "playground");
    assert_eq!(template.image_name, "playground:latest");
    assert!(template.is_serverless && !template.is_runpod && !template.is_public);
    assert_eq!(template.category, Some(TemplateCategory::Cpu));
    let unasked = management().get_template("playground", GetTemplateQuery::default()).await;
    assert_http(unasked, 404);
    let unknown = management().get_template("nobody", GetTemplateQuery::default()).await;
    assert_http(unknown, 404);
    let invalid = management().get_template("no%20id", GetTemplateQuery::default()).await;
    assert_http(invalid, 400);
    let submitter = RunpodClient::from_env().unwrap();
    assert_http(submitter.get_template("playground", GetTemplateQuery::default()).await, 401);
}

#[tokio::test]
async fn template_life() {
    let management = management();
    let input = TemplateCreateInput {
        name: "from the crate".into(),
        image_name: "echo:latest".into(),
        env: Some([("FLOUR".into(), "rye".into())].into()),
        is_serverless: Some(true),
        ..TemplateCreateInput::default()
    };
    let id = management.create_template(input).await.unwrap().id;
    let change = TemplateUpdateInput { readme: Some("# Rye".into()), ..Default::default() };
    management.update_template(&id, change).await.unwrap();
    let found = management.get_template(&id, GetTemplateQuery::default()).await.unwrap();
    assert_eq!(found.name, "from the crate");
    assert_eq!(found.env.unwrap()["FLOUR"], "rye");
    assert_eq!(found.readme.as_deref(), Some("# Rye"));
    let all = management.list_templates(ListTemplatesQuery::default()).await.unwrap();
    assert!(all.iter().any(|template| template.id == id));
    management.delete_template(&id).await.unwrap();
    assert_http(management.get_template(&id, GetTemplateQuery::default()).await, 404);
}

/// An endpoint, with its template and its workers.
#[tokio::test]
async fn endpoint_life() {
    let management = management();
    let volume = NetworkVolumeCreateInput {
        name: "of the crate's endpoint".into(),
        size: 1,
        data_center_id: "EU-RO-1".into(),
    };
    let volume = management.create_volume(volume).await.unwrap().id;
    let input = EndpointCreateInput {
        template_id: "playground".into(),
        name: Some("from the crate".into()),
        network_volume_id: Some(volume.clone()),
        flashboot: Some(true),
        idle_timeout: Some(3_600),
        workers_max: Some(1),
        ..EndpointCreateInput::default()
    };
    let made = management.create_endpoint(input).await.unwrap();
    assert_eq!((made.gpu_count, made.network_volume_id.as_ref()), (Some(0), Some(&volume)));
    assert!(made.template.is_none() && made.workers.is_none());
    let change = EndpointUpdateInput { execution_timeout_ms: Some(60_000), ..Default::default() };
    let changed = management.update_endpoint(&made.id, change).await.unwrap();
    assert_eq!(changed.execution_timeout_ms, 60_000);

    let parts = GetEndpointQuery { include_template: Some(true), include_workers: Some(true) };
    let idle = management.get_endpoint(&made.id, parts.clone()).await.unwrap();
    assert_eq!(idle.template.unwrap().image_name, "playground:latest");
    let listed = ListEndpointsQuery { include_workers: Some(true), ..Default::default() };
    let listed = management.list_endpoints(listed).await.unwrap();
    assert!(listed.iter().any(|endpoint| endpoint.id == made.id && endpoint.workers.is_some()));

    let input = json!({"op": "echo"});
    within_a_minute(endpoint(&made.id).run_now::<_, Value>(&input)).await.unwrap();
    let workers = management.get_endpoint(&made.id, parts).await.unwrap().workers.unwrap();
    assert_eq!(workers.len(), 1, "{workers:?}");
    assert_eq!(workers[0].desired_status, Some(PodStatus::Running));
    assert_eq!(workers[0].endpoint_id.as_ref(), Some(&made.id));
    let pods = ListPodsQuery {
        include_workers: Some(true),
        include_network_volume: Some(true),
        endpoint_id: Some(made.id.clone()),
        ..ListPodsQuery::default()
    };
    let pods = management.list_pods(pods).await.unwrap();
    assert_eq!((pods.len(), &pods[0].id), (1, &workers[0].id));
    assert_eq!(pods[0].network_volume.as_ref().unwrap().id, volume);
    assert!(management.list_pods(ListPodsQuery::default()).await.unwrap().is_empty());

    let bill = EndpointBillingQuery {
        endpoint_id: Some(made.id.clone()),
        bucket_size: Some(BucketSize::Year),
        image_name: Some("playground:latest".into()),
        ..EndpointBillingQuery::default()
    };
    for (grouping, named) in [
        (BillingGrouping::EndpointId, Some(made.id.clone())),
        (BillingGrouping::GpuTypeId, None),
        (BillingGrouping::PodId, None),
    ] {
        let query = EndpointBillingQuery { grouping: Some(grouping), ..bill.clone() };
        let records = management.get_endpoint_billing(query).await.unwrap();
        assert_eq!(records.len(), 1, "{grouping:?}");
        assert_eq!(records[0].endpoint_id, named, "{grouping:?}");
    }
    management.delete_endpoint(&made.id).await.unwrap();
    assert_http(management.get_endpoint(&made.id, GetEndpointQuery::default()).await, 404);
    management.delete_volume(&volume).await.unwrap();
}

#[tokio::test]
async fn network_volume_life() {
    let management = management();
    let input = NetworkVolumeCreateInput {
        name: "from the crate".into(),
        size: 1,
        data_center_id: "EU-RO-1".into(),
    };
    let id = management.create_volume(input).await.unwrap().id;
    let change = NetworkVolumeUpdateInput { size: Some(2), ..Default::default() };
    assert_eq!(management.update_volume(&id, change).await.unwrap().size, 2);
    assert_eq!(management.get_volume(&id).await.unwrap().name, "from the crate");
    assert!(management.list_volumes().await.unwrap().iter().any(|volume| volume.id == id));
    management.delete_volume(&id).await.unwrap();
    assert_http(management.get_volume(&id).await, 404);
}

#[tokio::test]
async fn registry_auth_life() {
    let management = management();
    let input = ContainerRegistryAuthCreateInput {
        name: "from the crate".into(),
        username: "miller".into(),
        password: "secret".into(),
    };
    let id = management.create_registry_auth(input).await.unwrap().id;
    assert_eq!(management.get_registry_auth(&id).await.unwrap().name, "from the crate");
    assert!(management.list_registry_auths().await.unwrap().iter().any(|auth| auth.id == id));
    management.delete_registry_auth(&id).await.unwrap();
    assert_http(management.get_registry_auth(&id).await, 404);
}

#[tokio::test]
async fn bills_of_pods_and_volumes_are_empty() {
    let management = management();
    let pods = PodBillingQuery {
        grouping: Some(BillingGrouping::PodId),
        bucket_size: Some(BucketSize::Hour),
        ..PodBillingQuery::default()
    };
    assert!(management.get_pod_billing(pods).await.unwrap().is_empty());
    let volumes = NetworkVolumeBillingQuery {
        network_volume_id: Some("grain".into()),
        ..NetworkVolumeBillingQuery::default()
    };
    assert!(management.get_volume_billing(volumes).await.unwrap().is_empty());
}
