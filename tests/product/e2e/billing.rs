//! Usage is billed exactly, whatever happens to the host.

use std::io::Write as _;

use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

const HOUR_MS: u64 = 3_600_000;

/// The records that a query finds.
async fn records(client: &Client, query: &str) -> Vec<Value> {
    let records = client.get(&format!("/v1/billing/endpoints?{query}")).await.ok();
    records.as_array().unwrap().clone()
}

async fn only(client: &Client, query: &str) -> Value {
    let mut records = records(client, query).await;
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0)
}

fn price_table(lines: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file
}

/// The usage in the timeline of a job; null without one.
async fn usage(client: &Client, endpoint: &str, job: &str) -> Value {
    let timeline = client.get(&client.path(endpoint, &format!("timeline/{job}"))).await.ok();
    timeline["usage"].clone()
}

#[tokio::test]
async fn a_job_shows_the_usage_and_the_cost_of_all_its_attempts_and_a_kill_loses_nothing() {
    let prices = price_table("job = 0.25\nwall-second = 0.001\ngiga-fuel = 0.5\n");
    let mut host = TestHost::start_with(&["--prices", prices.path().to_str().unwrap()]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "metered", json!({})).await;
    let input = json!({ "op": "fail", "message": "no flour" });
    let job = client.submit(&endpoint, input.clone()).await;
    let run_ms = number(&client.until(&endpoint, &job, "FAILED").await, "executionTime");
    let first = usage(&client, &endpoint, &job).await;
    assert_eq!((number(&first, "attempts"), number(&first, "timeBilledMs")), (1, run_ms));
    assert_eq!(number(&first, "bytesIn"), input.to_string().len() as u64);
    assert!(number(&first, "fuel") > 1_000, "{first}");
    assert!(number(&first, "memoryBytesPeak") > 1 << 16, "{first}");
    assert!(first["cpuMs"].as_f64().unwrap() > 0.0, "{first}");
    assert_eq!((number(&first, "egressBytes"), number(&first, "chunks")), (0, 0));

    client.retry(&endpoint, &job).await.ok();
    client.until(&endpoint, &job, "FAILED").await;
    let both = usage(&client, &endpoint, &job).await;
    assert_eq!(number(&both, "attempts"), 2);
    for field in ["fuel", "bytesIn"] {
        assert_eq!(number(&both, field), 2 * number(&first, field), "{field}");
    }
    // The only job: its cost is the bill.
    let bill = only(&client, "bucketSize=year").await;
    for field in ["amount", "fuel", "timeBilledMs", "memoryBytesPeak", "memoryMibMs", "bytesIn"] {
        assert_eq!(both[field], bill[field], "{field}");
    }
    assert!(both["amount"].as_f64().unwrap() > 0.5, "{both}");

    // A job that has not run has none.
    client.patch("/v1/endpoints/metered", &json!({ "workersMax": 0 })).await.ok();
    let waiting = client.submit(&endpoint, json!({ "op": "echo" })).await;
    client.cancel(&endpoint, &waiting).await.ok();
    assert_eq!(usage(&client, &endpoint, &waiting).await, Value::Null);
    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(usage(&client, &endpoint, &job).await, both, "the journal has it");
    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again();
    let client = host.client();
    assert_eq!(usage(&client, &endpoint, &job).await, both, "the tables have it");
    client.patch("/v1/endpoints/metered", &json!({ "workersMax": 1 })).await.ok();
    client.retry(&endpoint, &job).await.ok();
    client.until(&endpoint, &job, "FAILED").await;
    assert_eq!(number(&usage(&client, &endpoint, &job).await, "attempts"), 3);
}

fn number(document: &Value, field: &str) -> u64 {
    document[field].as_u64().unwrap_or_else(|| panic!("no {field}: {document}"))
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_it_runs_shows_the_usage_that_is_billed() {
    let prices = price_table("job = 0.25\nwall-second = 0.001\n");
    let mut host = TestHost::start_with(&["--prices", prices.path().to_str().unwrap()]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "stopped", json!({})).await;
    let job = client.submit(&endpoint, json!({ "op": "sleep", "ms": 60_000 })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    client.cancel(&endpoint, &job).await.ok();
    let used = eventually("the attempt has ended", async || {
        Some(usage(&client, &endpoint, &job).await).filter(|used| !used.is_null())
    })
    .await;
    assert_eq!(number(&used, "attempts"), 1, "{used}");
    let bill = only(&client, "bucketSize=year").await;
    for field in ["amount", "fuel", "timeBilledMs", "memoryBytesPeak", "memoryMibMs", "bytesIn"] {
        assert_eq!(used[field], bill[field], "{field}");
    }
    assert!(used["amount"].as_f64().unwrap() >= 0.25, "{used}");
    assert_eq!(client.status(&endpoint, &job).await.ok()["status"], "CANCELLED");
    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again();
    assert_eq!(usage(&host.client(), &endpoint, &job).await, used, "it is stored");
}

#[tokio::test]
async fn each_result_is_billed_once_and_survives_a_kill() {
    let prices = price_table("job = 0.25\nwall-second = 0.001\n");
    let mut host = TestHost::start_with(&["--prices", prices.path().to_str().unwrap()]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "billed", json!({})).await;
    let inputs = [
        json!({ "op": "echo", "value": "é" }),
        json!({ "op": "fail" }),
        json!({ "op": "stream", "count": 3 }),
        json!({ "op": "sleep", "ms": 30 }),
        json!({ "op": "alloc", "mib": 20 }),
    ];
    let (mut execution_ms, mut bytes_in) = (0, 0);
    for input in &inputs {
        let ended = client.finish(&endpoint, input.clone()).await;
        execution_ms += number(&ended, "executionTime");
        bytes_in += input.to_string().len() as u64;
    }
    // Jobs that never ran cost nothing.
    client.patch("/v1/endpoints/billed", &json!({ "workersMax": 0 })).await.ok();
    let waiting = client.submit(&endpoint, json!({ "op": "echo" })).await;
    client.cancel(&endpoint, &waiting).await.ok();
    client.submit(&endpoint, json!({ "op": "echo" })).await;
    client.purge(&endpoint).await.ok();

    let bill = only(&client, "bucketSize=year").await;
    assert_eq!(bill["endpointId"], "billed");
    assert_eq!((number(&bill, "jobs"), number(&bill, "timeBilledMs")), (5, execution_ms));
    assert_eq!((number(&bill, "bytesIn"), number(&bill, "chunks")), (bytes_in, 3));
    assert!(number(&bill, "memoryBytesPeak") > 20 << 20, "{bill}");
    assert!(number(&bill, "memoryMibMs") >= number(&bill, "timeBilledMs"), "{bill}");
    assert!(number(&bill, "fuel") > 1_000 && number(&bill, "bytesOut") > 20, "{bill}");
    let micro = 5 * 250_000 + execution_ms;
    assert_eq!(bill["amount"].as_f64().unwrap(), micro as f64 / 1e6, "{bill}");

    // A retried job runs, and is billed, again.
    client.patch("/v1/endpoints/billed", &json!({ "workersMax": 2 })).await.ok();
    let failed = client.submit(&endpoint, json!({ "op": "fail" })).await;
    client.until(&endpoint, &failed, "FAILED").await;
    client.retry(&endpoint, &failed).await.ok();
    client.until(&endpoint, &failed, "FAILED").await;
    let before = only(&client, "bucketSize=year").await;
    assert_eq!(number(&before, "jobs"), 7);
    host.kill9();
    host.start_again();
    assert_eq!(only(&host.client(), "bucketSize=year").await, before);
    // A delivered result is billed, even if no call reads the bill before the kill.
    for _ in 0..3 {
        host.client().run_sync(&endpoint, "", json!({ "op": "echo" })).await.ok();
    }
    host.kill9();
    host.start_again();
    let before = only(&host.client(), "bucketSize=year").await;
    assert_eq!(number(&before, "jobs"), 10);
    // Deleting an endpoint deletes no bill.
    host.client().delete("/v1/endpoints/billed").await;
    assert_eq!(only(&host.client(), "bucketSize=year").await, before);
}

#[tokio::test]
async fn stopped_attempts_are_billed_once_and_interrupted_ones_are_not() {
    let mut host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "stopped", json!({})).await;
    let cancelled = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.until(&endpoint, &cancelled, "IN_PROGRESS").await;
    client.cancel(&endpoint, &cancelled).await.ok();
    let bill = eventually("the cancelled attempt to be billed", async || {
        let bill = records(&client, "bucketSize=year&endpointId=stopped").await;
        bill.first().cloned()
    })
    .await;
    assert_eq!(number(&bill, "jobs"), 1);
    let broken_off = client.submit(&endpoint, json!({ "op": "sleep", "ms": 8_000 })).await;
    client.until(&endpoint, &broken_off, "IN_PROGRESS").await;
    host.kill9();
    host.start_again();
    let client = host.client();
    let ended = client.until(&endpoint, &broken_off, "COMPLETED").await;
    assert_eq!(ended["retries"], 1);
    let after = only(&client, "bucketSize=year&endpointId=stopped").await;
    assert_eq!(number(&after, "jobs"), 2);
    let ms = number(&after, "timeBilledMs") - number(&bill, "timeBilledMs");
    assert_eq!(ms, number(&ended, "executionTime"));
}

#[tokio::test]
async fn usage_is_listed_by_bucket_and_group_page_by_page() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    for name in ["a", "b"] {
        host.deploy(&guests::playground(), name, json!({})).await;
    }
    let mut now = host.advance(0);
    for (hours, name) in [(0, "a"), (0, "b"), (1, "a"), (30, "b"), (800, "a")] {
        now = host.advance(hours * HOUR_MS);
        client.finish(name, json!({ "op": "echo" })).await;
    }
    let times = async |query: &str| {
        let found = records(&client, query).await;
        let shown = found.iter().map(|record| {
            let id = ["endpointId", "templateId", "ownerId"].map(|field| record[field].as_str());
            let id: Vec<_> = id.into_iter().flatten().collect();
            assert_eq!(id.len(), 1, "{record}");
            (record["time"].as_str().unwrap().to_owned(), id[0].to_owned(), number(record, "jobs"))
        });
        shown.collect::<Vec<_>>()
    };
    let all = "startTime=2020-01-01T00:00:00Z&bucketSize=";
    let (first, last) = (now - 831 * HOUR_MS, now + 1);
    let range = format!("startTime={}&endTime={}&bucketSize=", rfc3339(first), rfc3339(last));
    let hours = times(&format!("{range}hour")).await;
    let ids: Vec<_> = hours.iter().map(|(_, id, jobs)| format!("{id}{jobs}")).collect();
    assert_eq!(ids, ["a1", "b1", "a1", "b1", "a1"]);
    assert_eq!(hours[0].0, rfc3339(first - first % HOUR_MS));
    assert!(hours.iter().is_sorted(), "{hours:?}");
    let jobs = |found: &[(String, String, u64)]| found.iter().map(|(.., jobs)| jobs).sum::<u64>();
    for size in ["day", "week", "month", "year"] {
        let found = times(&format!("{all}{size}")).await;
        assert!(found.is_sorted() && jobs(&found) == 5, "{size}: {found:?}");
        assert!(found.iter().all(|(time, ..)| time.ends_with("T00:00:00Z")), "{found:?}");
    }
    // Every hour counts as a whole; the default range is a month.
    assert_eq!(jobs(&times("bucketSize=year").await), 1);
    let until = format!("{all}year&endTime={}", rfc3339(first + 1));
    assert_eq!(jobs(&times(&until).await), 2);
    for (query, expected) in [
        ("&endpointId=b", vec!["b2"]),
        ("&templateId=a", vec!["a3"]),
        ("&templateId=a&endpointId=b", vec![]),
        ("&grouping=templateId", vec!["a3", "b2"]),
    ] {
        let found = times(&format!("{all}year{query}")).await;
        let mut groups: std::collections::BTreeMap<&str, u64> = Default::default();
        found.iter().for_each(|(_, id, jobs)| *groups.entry(id).or_default() += jobs);
        let shown: Vec<_> = groups.iter().map(|(id, jobs)| format!("{id}{jobs}")).collect();
        assert_eq!(shown, expected, "{query}");
    }
    let owners = times(&format!("{all}year&grouping=ownerId")).await;
    assert_eq!(jobs(&owners), 5);

    let mut paged = vec![];
    let mut path = format!("/v1/billing/endpoints?{range}hour&limit=2");
    for expected in [2, 2, 1] {
        let answer = client.get(&path).await;
        path = answer.next_page().unwrap_or_default();
        let page = answer.ok();
        assert_eq!(page.as_array().unwrap().len(), expected);
        paged.extend(page.as_array().unwrap().clone());
    }
    assert_eq!((paged, path), (records(&client, &format!("{range}hour")).await, String::new()));
}

/// A time before 2100 as RFC 3339.
fn rfc3339(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (mut year, mut day) = (1970, days);
    let length = |year: u64| 365 + u64::from(year.is_multiple_of(4));
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / HOUR_MS, rest / 60_000 % 60, rest / 1_000 % 60);
    let part = rest % 1_000;
    let fraction = if part == 0 { String::new() } else { format!(".{part:03}") };
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z", day + 1)
}

#[tokio::test]
async fn a_template_shows_how_long_jobs_ran_with_it() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "long", json!({})).await;
    let path = "/v1/templates/long?includeEndpointBoundTemplates=true";
    let template = client.get(path).await.ok();
    assert_eq!((&template["runtimeInMin"], &template["earned"]), (&json!(0), &json!(0)));
    let mut total = 0;
    for minutes in [3, 2] {
        let job = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
        client.until(&endpoint, &job, "IN_PROGRESS").await;
        host.advance(minutes * 60_000);
        client.cancel(&endpoint, &job).await.ok();
        total += minutes;
        // The clock jumps only after the attempt is on the bill. An earlier jump would be billed,
        // too.
        eventually("the minutes of the attempt to be shown", async || {
            let template = client.get(path).await.ok();
            assert_eq!(template["earned"], 0, "its owner's jobs earn nothing");
            (number(&template, "runtimeInMin") == total).then_some(())
        })
        .await;
        host.advance(2 * HOUR_MS);
    }
    let listed = client.get("/v1/templates?includeEndpointBoundTemplates=true").await.ok();
    assert_eq!(listed[0]["runtimeInMin"], client.get(path).await.ok()["runtimeInMin"]);
}

/// An owner's endpoint on another owner's public template earns credits for the template's creator,
/// and each owner reads only their own usage.
#[tokio::test]
async fn endpoints_of_other_owners_earn_for_the_creator_of_a_template() {
    let prices = price_table("job = 0.25\n");
    let host = TestHost::start_with(&["--prices", prices.path().to_str().unwrap()]);
    let [creator, user] = [host.client_of("creator").await, host.client_of("user").await];
    let component = std::fs::read(guests::playground()).unwrap();
    creator.upload("mill:1", component).await.ok();
    let template = json!({ "id": "t", "name": "t", "imageName": "mill:1", "isPublic": true });
    creator.post("/v1/templates", &template).await.ok();
    for (client, endpoint, jobs) in [(&creator, "own", 1), (&user, "others", 3)] {
        let bound = json!({ "id": endpoint, "templateId": "t" });
        client.post("/v1/endpoints", &bound).await.ok();
        for _ in 0..jobs {
            client.finish(endpoint, json!({ "op": "echo", "value": 1 })).await;
        }
    }
    let path = "/v1/templates/t?includeEndpointBoundTemplates=true";
    eventually("three jobs of the user's to be earned", async || {
        (creator.get(path).await.ok()["earned"] == json!(0.75)).then_some(())
    })
    .await;
    let own = only(&creator, "").await;
    assert_eq!((&own["endpointId"], &own["jobs"]), (&json!("own"), &json!(1)));
    let paid = only(&user, "grouping=templateId").await;
    assert_eq!((&paid["templateId"], &paid["amount"]), (&json!("t"), &json!(0.75)));
    for query in
        ["endpointId=others", "templateId=t&endpointId=others", "ownerId=creator&endpointId=others"]
    {
        assert_eq!(records(&creator, query).await, [] as [Value; 0], "{query}");
    }
    for owner in ["user", "nobody"] {
        let path = format!("/v1/billing/endpoints?ownerId={owner}");
        let refused = creator.get(&path).await.refused(400);
        assert!(refused.contains("`ownerId` must be `creator`"), "{refused}");
    }
    let mut all = records(&host.client(), "grouping=ownerId").await;
    all.sort_by_key(|record| record["ownerId"].to_string());
    let all: Vec<_> = all.iter().map(|record| (&record["ownerId"], &record["jobs"])).collect();
    assert_eq!(all, [(&json!("creator"), &json!(1)), (&json!("user"), &json!(3))]);
}

#[tokio::test]
async fn wrong_questions_are_refused_and_named() {
    let host = shared_host();
    let wrong = [
        ("bucketSize=minute", "query `bucketSize` must be one of hour, day, week, month, year"),
        ("grouping=gpu", "query `grouping` must be one of endpointId, templateId, ownerId"),
        ("startTime=yesterday", "query `startTime` must be a time from 1970 on"),
        ("endTime=2026-01-32", "query `endTime` must be a time from 1970 on"),
        ("startTime=1969-12-31T23:00:00Z", "query `startTime` must be a time from 1970 on"),
        (
            "startTime=2026-01-02T00:00:00Z&endTime=2026-01-02T00:00:00Z",
            "query `startTime` must be before `endTime`",
        ),
        ("startTime=2900-01-01T00:00:00Z", "query `startTime` must be before `endTime`"),
        ("bucketSize=hour&startTime=1990-01-01T00:00:00Z", "more than 10000 buckets"),
        ("endpointId=a%20b", "query `endpointId`: "),
        ("ownerId=", "query `ownerId`: "),
        ("limit=0", "query `limit` must be 1 to 1000"),
    ];
    for (query, sentence) in wrong {
        let refused = host.client.get(&format!("/v1/billing/endpoints?{query}")).await.refused(400);
        assert!(refused.contains(sentence), "{query}: {refused}");
    }
    // Any position is valid, even one without a record.
    for cursor in ["eA", "OTk5OTk5OTk5OTk5OTk", "MDAwMDAwMDAwMCA"] {
        records(&host.client, &format!("cursor={cursor}")).await;
    }
    let manager = host.client.with_scopes(&["manage"]).await;
    records(&manager, "").await;
    let other = manager.get("/v1/billing/endpoints?ownerId=other").await.refused(400);
    assert!(other.contains("query `ownerId` must be"), "{other}");
    let reader = host.client.with_scopes(&["read"]).await;
    reader.get("/v1/billing/endpoints").await.refused(401);
}
