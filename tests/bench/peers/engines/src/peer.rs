//! A job queue on a peer: one writer thread with the batching rule of our own
//! (`host/store/src/commit/writer.rs`), and the queue of waiting jobs in memory, with their inputs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::engines::Engine;

/// A change of jobs.
pub enum Change {
    Submit(u64, Bytes),
    Finish(u64, Bytes),
    Delete(Vec<u64>),
}

struct Op {
    change: Change,
    ack: oneshot::Sender<()>,
}

#[derive(Default)]
struct Jobs {
    /// Waiting jobs with their inputs, oldest first; without an input after a start.
    waiting: VecDeque<(u64, Option<Bytes>)>,
    /// Ended jobs, oldest first.
    ended: VecDeque<u64>,
    next: u64,
    backlog: VecDeque<Op>,
}

pub struct Peer {
    jobs: Mutex<Jobs>,
    has_work: Condvar,
    commits: AtomicU64,
    kept: u64,
}

/// Calls that one thread answers together.
#[cfg(feature = "postgres")]
pub struct Queue<A, R> {
    calls: Mutex<Vec<(A, oneshot::Sender<R>)>>,
    has_work: Condvar,
}

#[cfg(feature = "postgres")]
impl<A, R> Default for Queue<A, R> {
    fn default() -> Self {
        Self { calls: Mutex::default(), has_work: Condvar::new() }
    }
}

#[cfg(feature = "postgres")]
impl<A, R> Queue<A, R> {
    pub async fn call(&self, asked: A) -> R {
        let (answer, answered) = oneshot::channel();
        self.calls.lock().push((asked, answer));
        self.has_work.notify_one();
        answered.await.unwrap()
    }

    /// Answers all waiting calls with one call of `answer`, which returns as many values, again and
    /// again.
    pub fn serve(&self, mut answer: impl FnMut(Vec<A>) -> Vec<R>) {
        loop {
            let calls = {
                let mut calls = self.calls.lock();
                while calls.is_empty() {
                    self.has_work.wait(&mut calls);
                }
                std::mem::take(&mut *calls)
            };
            let begun = Instant::now();
            let in_flight = calls.len();
            let (asked, callers): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
            let answers = answer(asked);
            assert_eq!(answers.len(), callers.len());
            for (caller, answer) in callers.into_iter().zip(answers) {
                let _ = caller.send(answer);
            }
            std::thread::sleep(pause(in_flight).saturating_sub(begun.elapsed()));
        }
    }
}

/// As in the store's settings.
const BATCH_JOBS_MAX: usize = 1_024;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// As in the store's writer.
fn pause(jobs_in_flight: usize) -> Duration {
    let us = (jobs_in_flight as u64 * 10).min(700);
    Duration::from_micros(if us < 60 { 0 } else { us })
}

impl Peer {
    pub fn open(engine: Box<dyn Engine>, kept: u64) -> (Arc<Self>, u64) {
        let ids = engine.waiting();
        let count = ids.len() as u64;
        let next = ids.last().map_or(0, |last| last + 1);
        let waiting = ids.into_iter().map(|id| (id, None)).collect();
        let jobs = Mutex::new(Jobs { waiting, next, ..Jobs::default() });
        let (has_work, commits) = (Condvar::new(), AtomicU64::new(0));
        let it = Arc::new(Self { jobs, has_work, commits, kept });
        let writer = it.clone();
        std::thread::spawn(move || writer.write(engine));
        (it, count)
    }

    fn push(&self, jobs: &mut Jobs, change: Change) -> oneshot::Receiver<()> {
        let (ack, done) = oneshot::channel();
        jobs.backlog.push_back(Op { change, ack });
        if jobs.backlog.len() == 1 {
            self.has_work.notify_one();
        }
        done
    }

    pub async fn submit(&self, input: Bytes) {
        let done = {
            let mut jobs = self.jobs.lock();
            let id = jobs.next;
            jobs.next += 1;
            jobs.waiting.push_back((id, Some(input.clone())));
            self.push(&mut jobs, Change::Submit(id, input))
        };
        done.await.unwrap();
    }

    pub async fn run(&self, result: Bytes) {
        let (id, done) = {
            let mut jobs = self.jobs.lock();
            let (id, input) = jobs.waiting.pop_front().unwrap();
            std::hint::black_box(&input);
            (id, self.push(&mut jobs, Change::Finish(id, result)))
        };
        done.await.unwrap();
        self.jobs.lock().ended.push_back(id);
    }

    pub async fn expire(&self) -> bool {
        let (done, more) = {
            let mut jobs = self.jobs.lock();
            let due = (jobs.ended.len() as u64).saturating_sub(self.kept);
            if due == 0 {
                return false;
            }
            let now = due.min(500) as usize;
            let ids = jobs.ended.drain(..now).collect();
            (self.push(&mut jobs, Change::Delete(ids)), due > 500)
        };
        done.await.unwrap();
        more
    }

    pub fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    fn write(&self, mut engine: Box<dyn Engine>) {
        loop {
            let (mut changes, mut acks) = (Vec::new(), Vec::new());
            let (mut count, mut bytes) = (0, 0);
            let in_flight = {
                let mut jobs = self.jobs.lock();
                while jobs.backlog.is_empty() {
                    self.has_work.wait(&mut jobs);
                }
                while count < BATCH_JOBS_MAX && bytes < BATCH_BYTES_MAX {
                    let Some(op) = jobs.backlog.pop_front() else { break };
                    match &op.change {
                        Change::Submit(_, payload) | Change::Finish(_, payload) => {
                            count += 1;
                            bytes += payload.len();
                        }
                        Change::Delete(ids) => count += ids.len(),
                    }
                    changes.push(op.change);
                    acks.push(op.ack);
                }
                count + jobs.backlog.len()
            };
            let begun = Instant::now();
            engine.write(&changes);
            self.commits.fetch_add(1, Relaxed);
            for ack in acks {
                let _ = ack.send(());
            }
            std::thread::sleep(pause(in_flight).saturating_sub(begun.elapsed()));
        }
    }
}
