//! The one thread that makes batches durable.
//!
//! Group commit: changes that arrive during the sync of a batch form the next batch. An idle store
//! answers after one fsync; a busy store shares each fsync among many jobs, and the more jobs are
//! in progress the longer it collects them ([`pause`]). In each round the thread writes a batch,
//! syncs, publishes, and acknowledges. The database has its own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, info};

use crate::commit::compose::compose;
use crate::commit::log::{BatchLog, WriteError, Written};
use crate::error::{Failure, OpenError};
use crate::shared::Shared;
use crate::state::backlog::LINGER;
use crate::state::batch::NextBatch;
use crate::state::batch::{Batch, BatchMax};
use crate::state::index::{Index, Phase};
use crate::state::relay::{self, Relayed};
use crate::sync::thread::{self, Builder, JoinHandle};
use crate::sync::{self, MutexGuard};

/// Writes the decisions of the index.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    log: Box<dyn BatchLog>,
    /// When the last commit began.
    committed_at: Option<Instant>,
}

/// The writer's next step.
enum NextStep {
    Commit {
        batch: Box<Batch>,
        /// Jobs in the batch and in the backlog.
        jobs_in_flight: usize,
    },
    /// Begin a new segment of the journal, for the database's thread.
    BeginSegment,
    End,
}

/// After this time a batch that found no space is written again.
const SPACE_PAUSE: Duration = Duration::from_millis(100);

/// Number of pauses after which a store that is being opened or closed gives up waiting for space:
/// 5 s.
const SPACE_PAUSES_MAX: u32 = 50;

/// Writes a batch; waits while the medium has no space for it. Callers that wait for the batch get
/// no answer before, and new work is refused meanwhile.
fn write(log: &mut dyn BatchLog, shared: &Shared, batch: &Batch) -> Result<Written, Failure> {
    let mut space_wait = None;
    let mut pauses = 0;
    loop {
        match log.write(batch) {
            Err(WriteError::NoSpace(error)) => {
                if space_wait.is_none() {
                    error!("the journal waits for space on the disk: {error}");
                    space_wait = Some(shared.settings.disk_space.wait_for_space());
                }
                match shared.index().phase() {
                    Phase::Open if shared.is_serving() => {}
                    Phase::Open | Phase::Closing if pauses < SPACE_PAUSES_MAX => pauses += 1,
                    Phase::Closed => return Err(Failure::Ended),
                    Phase::Open | Phase::Closing | Phase::Drained => return Err(error.into()),
                }
                thread::sleep(SPACE_PAUSE);
            }
            // The log has refused new work; everything that is accepted waits. The batch of a store
            // that is being opened or closed does not.
            Err(WriteError::Unavailable(reason)) => {
                match shared.index().phase() {
                    Phase::Open if shared.is_serving() => {}
                    Phase::Open | Phase::Closing if pauses < SPACE_PAUSES_MAX => pauses += 1,
                    Phase::Closed => return Err(Failure::Ended),
                    Phase::Open | Phase::Closing | Phase::Drained => {
                        return Err(Failure::Server(reason));
                    }
                }
                thread::sleep(SPACE_PAUSE);
            }
            written => {
                if space_wait.is_some() {
                    info!("the journal continues: the disk has space again");
                }
                return Ok(written?);
            }
        }
    }
}

/// The minimal time of a batch and the pause after it, by the number of jobs in progress: 10 µs for
/// each, up to 0.7 ms; zero for a few jobs.
///
/// A sync of 0.1 ms ends before many jobs have arrived, and costs the host some 30 µs of processor
/// time, however many jobs share it. With 64 waiting callers, the pause raises the rate from 28,300
/// to 34,700 jobs/s, and reduces the processor time of a job from 51 to 40 µs, and the median from
/// 2.2 to 1.8 ms.
fn pause(jobs_in_flight: usize) -> Duration {
    const FOR_EACH_US: u64 = 10;
    const MAX_US: u64 = 700;
    const MIN_US: u64 = 60;
    let us = (jobs_in_flight as u64).saturating_mul(FOR_EACH_US).min(MAX_US);
    Duration::from_micros(if us < MIN_US { 0 } else { us })
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, log: impl BatchLog + 'static) -> Self {
        Self { shared, log: Box::new(log), committed_at: None }
    }

    /// Starts the thread. It ends when the index is closed, or when it is closing and everything is
    /// written.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, OpenError> {
        let builder = Builder::new().name("store-writer".to_owned());
        builder.spawn(move || self.run()).map_err(OpenError::Thread)
    }

    /// Writes everything that is queued now.
    pub(crate) fn drain(&mut self) -> Result<(), Failure> {
        loop {
            let now = self.shared.clock.now();
            let batch = self.shared.index().take_batch(self.batch_max(), true, now);
            if batch.is_empty() {
                return Ok(());
            }
            self.commit(batch)?;
        }
    }

    fn run(mut self) {
        let shared = self.shared.clone();
        shared.serve();
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => {}
            // The thread that ended first has reported the reason.
            Ok(Err(Failure::Ended)) => shared.end(None),
            Ok(Err(error)) => shared.end(Some(error.to_string())),
            Err(_) => shared.end(Some("the writer thread panicked".to_owned())),
        }
    }

    fn serve(&mut self) -> Result<(), Failure> {
        loop {
            // Called without a taken batch, since the medium's thread may wait for a batch.
            self.log.wait_for_room();
            match self.next_work() {
                NextStep::Commit { batch, jobs_in_flight } => {
                    let begun = Instant::now();
                    self.committed_at = Some(begun);
                    self.commit(*batch)?;
                    thread::sleep(pause(jobs_in_flight).saturating_sub(begun.elapsed()));
                }
                NextStep::BeginSegment => self.begin_segment()?,
                NextStep::End => return Ok(()),
            }
        }
    }

    /// Without space no segment is begun, and the database's thread asks again.
    fn begin_segment(&mut self) -> Result<(), Failure> {
        let begun = match self.log.begin_segment() {
            Err(WriteError::NoSpace(error)) => {
                error!("the journal has no space for a new segment: {error}");
                None
            }
            begun => Some(begun?),
        };
        self.shared.index().answer_new_segment(begun);
        if begun.is_some() {
            self.shared.wake_medium();
        }
        Ok(())
    }

    fn batch_max(&self) -> BatchMax {
        let settings = &self.shared.settings;
        BatchMax::new(settings.batch_jobs_max, settings.batch_bytes_max)
    }

    /// Waits for work. A slice of a purge is done meanwhile, and changes the queue.
    fn next_work(&self) -> NextStep {
        let mut index = self.shared.index();
        let step = self.await_work(&mut index);
        let demands = index.take_demands();
        drop(index);
        self.shared.tell(demands);
        step
    }

    fn await_work(&self, index: &mut MutexGuard<'_, Index>) -> NextStep {
        let max = self.batch_max();
        loop {
            match index.next_batch(max, self.shared.clock.now()) {
                NextBatch::Commit { batch, jobs_in_flight } => {
                    return NextStep::Commit { batch, jobs_in_flight };
                }
                NextBatch::BeginSegment => return NextStep::BeginSegment,
                NextBatch::Wait(time) => {
                    let time = time.or_else(|| self.alarm());
                    index.has_alarm = time.is_some();
                    self.shared.wait(index, time);
                    index.has_alarm = false;
                }
                NextBatch::Drained => {
                    self.shared.wake_medium();
                    return NextStep::End;
                }
                NextBatch::Ended => return NextStep::End,
            }
        }
    }

    /// After a commit the writer looks again, although nothing waits, before a later change could
    /// have lingered for too long. So a single caller wakes it once for each job, and not for its
    /// submission and its claim too: the writer takes 62 us for each call instead of 98.
    fn alarm(&self) -> Option<Duration> {
        LINGER.checked_sub(self.committed_at?.elapsed()).filter(|_| sync::HAS_TIME)
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), Failure> {
        #[cfg(test)]
        if let Some(hold) = &batch.hold {
            let _ = hold.recv();
        }
        let shared = &self.shared;
        let room = std::mem::take(&mut batch.room);
        let written = if batch.is_empty() {
            Written::nothing(batch.jobs.len())
        } else {
            compose(&mut batch, shared)?;
            #[cfg(test)]
            if batch.is_broken {
                return Err(std::io::Error::other("broken by a test").into());
            }
            let begun = Instant::now();
            let written = write(&mut *self.log, shared, &batch)?;
            shared.count_commit(batch.operations, begun.elapsed());
            written
        };
        let Written { segment, locations, has_ended_segment } = written;
        let (published, is_awaited) = {
            let mut index = shared.index();
            let published = index.publish(batch, (segment, locations), &shared.caches());
            (published, index.take_commit_awaited())
        };
        if has_ended_segment || is_awaited || published.has_ask {
            shared.wake_medium();
        }
        shared.notify_changed(&published.changed);
        if published.has_deliveries {
            shared.signals.delivery_added();
        }
        // These callers all run on the threads that serve HTTP. A handler that submits a job may
        // run on a thread of low priority, for which no other caller must wait.
        relay::send(published.awaited);
        // A dropped receiver means that the caller does not need the answer any more.
        for sender in published.submitted {
            let _ = sender.send(Relayed::alone(None));
        }
        for ack in published.acks {
            let _ = ack.send(());
        }
        shared.free(&room);
        Ok(())
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
