//! Why a job waits for a sandbox, in words.

use gristmill_core::runtime::{SandboxShortage, ShortageCause};

const MIB: u64 = 1 << 20;

/// A sentence with the numbers and the option that changes them.
pub(crate) fn sentence(shortage: SandboxShortage) -> String {
    let SandboxShortage { cause, needed_bytes, held, max } = shortage;
    let why = match cause {
        ShortageCause::OfHost if needed_bytes.is_some() => {
            "too little of the memory of sandboxes is free"
        }
        ShortageCause::OfHost => "no sandbox of the host is free",
        ShortageCause::OfOrder => "other jobs that wait for a sandbox are before this one",
        ShortageCause::OfMachine => {
            "the machine is short of memory, so that sandboxes get no more \
             (`sandboxes.memory.withheldBytes` of /v1/system)"
        }
        ShortageCause::OfOwner => {
            "the endpoint's owner has its share of the host, and the rest is kept free for other \
             owners"
        }
        ShortageCause::OfEndpoint => {
            "the endpoint has its share of the host, and the rest is kept free for other endpoints \
             and for jobs that handlers call"
        }
        ShortageCause::OfClients => {
            "the free sandboxes of the host are kept for jobs that handlers call"
        }
        ShortageCause::OfReserves => {
            "the free sandboxes of the host are reserved by `workersMin` of other endpoints"
        }
    };
    let whose = match cause {
        ShortageCause::OfOwner | ShortageCause::OfEndpoint => "its own",
        ShortageCause::OfMachine => "taken or withheld",
        _ => "taken",
    };
    match needed_bytes {
        Some(needed) => {
            let (needed, held, max) = (needed.div_ceil(MIB), held.div_ceil(MIB), max / MIB);
            format!(
                "{why}: the job begins with {needed} MiB, and {held} of {max} MiB are {whose} \
                 (--max-sandbox-memory-mib)"
            )
        }
        None => format!("{why}: {held} of {max} are {whose} (--max-running-jobs)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_have_the_numbers_and_the_option() {
        let cases = [
            (
                (ShortageCause::OfHost, None, 256, 256),
                "no sandbox of the host is free: 256 of 256 are taken (--max-running-jobs)",
            ),
            (
                (ShortageCause::OfHost, Some(20 * MIB), 15_350 * MIB, 15_360 * MIB),
                "too little of the memory of sandboxes is free: the job begins with 20 MiB, and \
                 15350 of 15360 MiB are taken (--max-sandbox-memory-mib)",
            ),
            (
                (ShortageCause::OfOwner, None, 109, 256),
                "the endpoint's owner has its share of the host, and the rest is kept free for \
                 other owners: 109 of 256 are its own (--max-running-jobs)",
            ),
            (
                (ShortageCause::OfEndpoint, Some(MIB + 1), 1, 100 * MIB),
                "the endpoint has its share of the host, and the rest is kept free for other \
                 endpoints and for jobs that handlers call: the job begins with 2 MiB, and 1 of \
                 100 MiB are its own (--max-sandbox-memory-mib)",
            ),
            (
                (ShortageCause::OfReserves, None, 128, 256),
                "the free sandboxes of the host are reserved by `workersMin` of other endpoints: \
                 128 of 256 are taken (--max-running-jobs)",
            ),
        ];
        for ((cause, needed_bytes, held, max), expected) in cases {
            assert_eq!(sentence(SandboxShortage { cause, needed_bytes, held, max }), expected);
        }
    }
}
