//! Runs the engines in turn, in random order, and prints medians and ratios.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rand::seq::SliceRandom;

const COLUMNS: [&str; 11] = [
    "jobs/s",
    "CPU us/job",
    "of its engine",
    "of its server",
    "written B/job",
    "dirtied B/job",
    "syncs/job",
    "commits/job",
    "ack p50 ms",
    "ack p99 ms",
    "RSS KiB",
];

/// The value of the option `--name`.
fn option<'a>(args: &[&'a str], name: &str, usual: &'a str) -> &'a str {
    let at = args.iter().position(|arg| arg.strip_prefix("--") == Some(name));
    at.and_then(|at| args.get(at + 1)).copied().unwrap_or(usual)
}

/// The process of an engine, stopped unless a command runs.
struct Running {
    engine: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        let mut it = Self { engine: args[1].to_owned(), child, input, output };
        if args[0] == "child" {
            assert_eq!(it.line(), "ready");
            it.signal(libc::SIGSTOP);
        }
        it
    }

    fn signal(&self, signal: i32) {
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The figures of a command, as in [`COLUMNS`].
    fn command(&mut self, text: &str) -> Vec<f64> {
        self.signal(libc::SIGCONT);
        writeln!(self.input, "{text}").unwrap();
        let line = self.line();
        self.signal(libc::SIGSTOP);
        line.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    if values.len() % 2 == 1 { values[mid] } else { (values[mid - 1] + values[mid]) / 2.0 }
}

fn fresh(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
}

fn disk_mib(dir: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;
    let mut blocks = 0;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => dirs.push(entry.path()),
                Ok(data) => blocks += data.blocks(),
                Err(_) => {}
            }
        }
    }
    blocks as f64 * 512.0 / f64::from(1 << 20)
}

/// `--engines store,fjall,… --payload BYTES --kept JOBS --tasks 1,64,256 --rounds N --ms MS --warm
/// JOBS --work run|sync`
pub fn bench(args: &[&str]) {
    let engines: Vec<_> =
        option(args, "engines", "store,fjall,rocksdb,sqlite,bare").split(',').collect();
    let tasks: Vec<&str> = option(args, "tasks", "1,64,256").split(',').collect();
    let rounds: usize = option(args, "rounds", "10").parse().unwrap();
    let ms = option(args, "ms", "2000");
    let work = option(args, "work", "run");
    let (payload, kept) = (option(args, "payload", "200"), option(args, "kept", "500"));
    let warm = option(args, "warm", "50000");
    let data = PathBuf::from(option(args, "dir", "data"));
    let mut running: Vec<_> = engines
        .iter()
        .map(|engine| {
            let dir = data.join(engine);
            fresh(&dir);
            Running::start(&["child", engine, dir.to_str().unwrap(), payload, kept])
        })
        .collect();
    for it in &mut running {
        it.command(&format!("jobs 64 {warm}"));
    }
    // By engine, then by number of tasks, then by round.
    let mut found = vec![vec![Vec::new(); tasks.len()]; engines.len()];
    let mut disk = vec![0.0_f64; engines.len()];
    for round in 0..rounds {
        for (n, tasks) in tasks.iter().enumerate() {
            let mut order: Vec<_> = (0..engines.len()).collect();
            order.shuffle(&mut rand::rng());
            for at in order {
                let figures = running[at].command(&format!("{work} {tasks} {ms}"));
                disk[at] = disk[at].max(disk_mib(&data.join(engines[at])));
                eprintln!("{round} {tasks} {} {figures:?}", running[at].engine);
                found[at][n].push(figures);
            }
        }
    }
    println!("## payload {payload} B, {kept} ended jobs kept, {rounds} rounds of {ms} ms");
    println!(
        "| tasks | engine | {} | ratio of jobs/s | ratio of CPU | ratio of engine CPU | ratio of bytes | disk MiB |",
        COLUMNS.join(" | ")
    );
    println!("|---|---|{}", "---|".repeat(COLUMNS.len() + 5));
    for (n, tasks) in tasks.iter().enumerate() {
        for (at, engine) in engines.iter().enumerate() {
            let column = |column: usize| {
                let mut values: Vec<f64> = found[at][n].iter().map(|row| row[column]).collect();
                median(&mut values)
            };
            let ratio = |column: usize| {
                let rows = found[at][n].iter().zip(&found[0][n]);
                let mut ratios: Vec<f64> =
                    rows.map(|(it, ours)| it[column] / ours[column]).collect();
                let median = median(&mut ratios);
                format!("{median:.2} ({:.2}-{:.2})", ratios[0], ratios[ratios.len() - 1])
            };
            let columns: Vec<_> = (0..COLUMNS.len())
                .map(|n| {
                    let value = column(n);
                    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
                })
                .collect();
            println!(
                "| {tasks} | {engine} | {} | {} | {} | {} | {} | {:.0} |",
                columns.join(" | "),
                ratio(0),
                ratio(1),
                ratio(2),
                ratio(4),
                disk[at],
            );
        }
    }
    drop(running);
    for engine in engines {
        let _ = std::fs::remove_dir_all(data.join(engine));
    }
}

/// The time to open a store with waiting jobs after a kill.
/// `--engines … --payload BYTES --jobs N --rounds N`
pub fn reopen(args: &[&str]) {
    let engines: Vec<_> =
        option(args, "engines", "store,fjall,rocksdb,sqlite").split(',').collect();
    let rounds: usize = option(args, "rounds", "5").parse().unwrap();
    let (payload, jobs) = (option(args, "payload", "200"), option(args, "jobs", "100000"));
    let data = PathBuf::from(option(args, "dir", "data"));
    println!("## payload {payload} B, {jobs} waiting jobs, killed and opened {rounds} times");
    println!("| engine | open ms, median | first | min-max | jobs found | RSS MiB | disk MiB |");
    println!("|---|---|---|---|---|---|---|");
    for engine in engines {
        let dir = data.join(engine);
        fresh(&dir);
        let path = dir.to_str().unwrap();
        let mut filling = Running::start(&["child", engine, path, payload, "1000"]);
        filling.command(&format!("submit 256 {jobs}"));
        filling.kill();
        let disk = disk_mib(&dir);
        let (mut times, mut waiting, mut rss) = (Vec::new(), String::new(), 0.0);
        for _ in 0..rounds {
            let mut opened = Running::start(&["open", engine, path]);
            let line = opened.line();
            let words: Vec<_> = line.split_whitespace().collect();
            times.push(words[0].parse::<f64>().unwrap());
            words[1].clone_into(&mut waiting);
            rss = words[2].parse::<f64>().unwrap() / 1024.0;
            opened.kill();
        }
        let first = times[0];
        let middle = median(&mut times);
        println!(
            "| {engine} | {middle:.0} | {first:.0} | {:.0}-{:.0} | {waiting} | {rss:.0} | {disk:.0} |",
            times[0],
            times[times.len() - 1],
        );
        let _ = std::fs::remove_dir_all(&dir);
    }
}
