//! The text of the host's own metrics: names, types and values.

use gristmill_core::runtime::{RuntimeLoad, SandboxMemory};
use gristmill_core::sharing::permits::PermitBytes;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::store::StoreStats;

use super::*;

#[test]
fn each_metric_has_its_name_its_type_and_its_value() {
    let store = StoreStats {
        commits: 1,
        operations: u64::MAX,
        jobs: 3,
        archived_jobs: 2,
        waiting_webhooks: 8,
        checkpoint_backlog_bytes: 9,
        commit: DurationTotals::default(),
    };
    let load = RuntimeLoad { running: 5, idle: 6, waiting: 7 };
    let permits = PermitBytes { max: 12, taken: 13, withheld: 15, growing: 8 };
    let counters = HostCounters {
        store,
        lost_log_lines: 2,
        load,
        memory: SandboxMemory { permits, idle: 0, kept: 14 },
        hosts: 3,
        endpoints: 4,
        compiles: DurationTotals::default(),
        backed_up_at_ms: 9_999,
    };
    let machine = of_machine(true, &DiskSpaceGauge::new(Tenancy::default()), 7);
    let text = text(&registry(machine, &counters, 10));
    let expected = "\
        # HELP gristmill_store_commits Store transactions, one fsync each.\n\
        # TYPE gristmill_store_commits counter\n\
        gristmill_store_commits_total 1\n\
        # HELP gristmill_store_operations Changes in those transactions.\n\
        # TYPE gristmill_store_operations counter\n\
        gristmill_store_operations_total 18446744073709551615\n\
        # HELP gristmill_log_lines_lost Handlers' log lines that could not be written to the disk.\n\
        # TYPE gristmill_log_lines_lost counter\n\
        gristmill_log_lines_lost_total 2\n\
        # HELP gristmill_jobs Jobs that exist.\n\
        # TYPE gristmill_jobs gauge\n\
        gristmill_jobs 3\n";
    assert!(text.contains(expected), "{text}");
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let names: Vec<_> = samples.iter().map(|line| line.split_once(' ').unwrap().0).collect();
    let all = [
        "gristmill_active",
        "gristmill_disk_free_bytes",
        "gristmill_disk_reserve_bytes",
        "gristmill_disk_free_inodes",
        "gristmill_disk_reserve_inodes",
        "gristmill_certificate_expiry_timestamp_seconds",
        "gristmill_store_commits_total",
        "gristmill_store_operations_total",
        "gristmill_log_lines_lost_total",
        "gristmill_jobs",
        "gristmill_jobs_archived",
        "gristmill_calls_waiting",
        "gristmill_webhooks_waiting",
        "gristmill_store_checkpoint_backlog_bytes",
        "gristmill_endpoints",
        "gristmill_last_backup_timestamp_seconds",
        "gristmill_hosts",
        "gristmill_sandboxes_running",
        "gristmill_sandboxes_idle",
        "gristmill_sandboxes_waiting",
        "gristmill_sandboxes_growing",
        "gristmill_sandbox_memory_max_bytes",
        "gristmill_sandbox_memory_charged_bytes",
        "gristmill_sandbox_memory_kept_bytes",
        "gristmill_sandbox_memory_withheld_bytes",
    ];
    assert_eq!(names, all);
    assert_eq!(samples[0], "gristmill_active 1");
    assert_eq!(samples[5], "gristmill_certificate_expiry_timestamp_seconds 7");
    assert_eq!(samples[11], "gristmill_calls_waiting 10");
    assert_eq!(
        samples[14..],
        [
            "gristmill_endpoints 4",
            "gristmill_last_backup_timestamp_seconds 9",
            "gristmill_hosts 3",
            "gristmill_sandboxes_running 5",
            "gristmill_sandboxes_idle 6",
            "gristmill_sandboxes_waiting 7",
            "gristmill_sandboxes_growing 8",
            "gristmill_sandbox_memory_max_bytes 12",
            "gristmill_sandbox_memory_charged_bytes 13",
            "gristmill_sandbox_memory_kept_bytes 14",
            "gristmill_sandbox_memory_withheld_bytes 15"
        ]
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}
