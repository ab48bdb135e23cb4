//! `gristmill billing`: usage and its cost.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use gristmill_client::BillingQuery;
use gristmill_client::wire::id::{EndpointId, OwnerId, TemplateId};
use gristmill_client::wire::management::{BillingRecord, BucketSize, Grouping};

use crate::arguments::ConnectionArgs;
use crate::calls::in_options;
use crate::output;
use crate::resource::print;

/// List usage and its cost by time and by endpoint, template or owner.
#[derive(Debug, Args)]
pub struct BillingArgs {
    /// Count usage from the hour of this time on: a date, or RFC 3339 [default: 30 days before
    /// `--to`].
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Count usage before this time [default: now].
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// The period of one line, in UTC [default: day].
    #[arg(long, value_name = "SIZE", value_parser = ["hour", "day", "week", "month", "year"])]
    bucket: Option<String>,
    /// The objects by which lines are grouped.
    #[arg(
        long,
        value_name = "GROUP",
        default_value = "endpoint",
        value_parser = PossibleValuesParser::new(["endpoint", "template", "owner"])
    )]
    group: String,
    /// Only usage of this endpoint.
    #[arg(long)]
    endpoint: Option<EndpointId>,
    /// Only usage of this template.
    #[arg(long)]
    template: Option<TemplateId>,
    /// Only usage of this owner.
    #[arg(long)]
    owner: Option<OwnerId>,
    /// Print the records as the host sends them, in one array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The options of parameters that refusals name.
const OPTIONS: [(&str, &str); 4] = [
    ("startTime", "--from"),
    ("endTime", "--to"),
    ("bucketSize", "--bucket"),
    ("ownerId", "--owner"),
];

pub(crate) async fn billing(args: BillingArgs) -> anyhow::Result<ExitCode> {
    let (query, group) = (args.query(), args.group);
    let answer = args.connection.client()?.billing(&query).await;
    let answer = answer.map_err(|error| in_options(error, &OPTIONS))?;
    print(&answer, args.json, |records: Vec<_>| table(&group, &records))?;
    Ok(ExitCode::SUCCESS)
}

impl BillingArgs {
    fn query(&self) -> BillingQuery {
        let size = |size: &BucketSize| Some(size.as_str()) == self.bucket.as_deref();
        let group = |group: &Grouping| group.field() == format!("{}Id", self.group);
        BillingQuery {
            start: self.from.clone(),
            end: self.to.clone(),
            bucket: BucketSize::ALL.into_iter().find(size),
            grouping: Grouping::ALL.into_iter().find(group),
            endpoint: self.endpoint.clone(),
            template: self.template.clone(),
            owner: self.owner.clone(),
        }
    }
}

fn table(group: &str, records: &[BillingRecord]) -> Vec<String> {
    let group = group.to_ascii_uppercase();
    let headings = ["TIME", &group, "CREDITS", "JOBS", "RAN", "CPU", "MEMORY", "IN", "OUT"];
    let rows = records.iter().map(|record| {
        [
            record.time.clone(),
            record.group().to_owned(),
            record.amount.as_str().to_owned(),
            output::grouped(record.jobs),
            seconds(record.time_billed_ms),
            seconds(record.cpu_ms),
            output::size(record.memory_bytes_peak),
            output::size(record.bytes_in),
            output::size(record.bytes_out),
        ]
    });
    output::table(headings, rows)
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", output::grouped(ms / 1_000), ms % 1_000)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: BillingArgs,
    }

    #[test]
    fn records_stand_in_columns() {
        let records = r#"[
            {"time":"2026-01-01T00:00:00Z","endpointId":"a","amount":12.000001,"timeBilledMs":1234567,
             "jobs":12345,"cpuMs":9,"fuel":1,"memoryBytesPeak":1048576,"memoryMibMs":1,"bytesIn":0,
             "bytesOut":2048,"chunks":0},
            {"time":"2026-01-02T00:00:00Z","endpointId":"bcd","amount":0,"timeBilledMs":1,"jobs":1,
             "cpuMs":0,"fuel":0,"memoryBytesPeak":0,"memoryMibMs":0,"bytesIn":7,"bytesOut":0,
             "chunks":0}]"#;
        let expected = [
            "TIME                  ENDPOINT  CREDITS    JOBS    RAN          CPU      MEMORY   IN       OUT",
            "2026-01-01T00:00:00Z  a         12.000001  12 345  1 234.567 s  0.009 s  1.0 MiB  0 bytes  2.0 KiB",
            "2026-01-02T00:00:00Z  bcd       0          1       0.001 s      0.000 s  0 bytes  7 bytes  0 bytes",
        ];
        let records: Vec<_> = serde_json::from_str(records).unwrap();
        assert_eq!(table("endpoint", &records), expected);
    }

    #[test]
    fn the_given_options_are_sent() {
        let words = "billing --from 2026-01-31 --to 2026-02-01T12:00:00Z --bucket hour --group owner \
                     --endpoint e --template t --owner o";
        let line = Line::parse_from(words.split_whitespace());
        let expected = BillingQuery {
            start: Some("2026-01-31".to_owned()),
            end: Some("2026-02-01T12:00:00Z".to_owned()),
            bucket: Some(BucketSize::Hour),
            grouping: Some(Grouping::Owner),
            endpoint: Some("e".parse().unwrap()),
            template: Some("t".parse().unwrap()),
            owner: Some("o".parse().unwrap()),
        };
        assert_eq!(line.args.query(), expected);
    }
}
