//! A model of the fence: hosts that begin sessions and commit batches, on a database with the
//! snapshots and row locks of PostgreSQL at `READ COMMITTED`. [`explore`] tries every order of
//! their statements, with connections that are lost at any moment, after which the server completes
//! or undoes what it had received.
//!
//! The first commit of each session is the end of an attempt on a third host, which each active
//! host goes on with, unless it has read that the attempt has ended.
//!
//! The statements are those of [`Session`](crate::postgres::session::Session) and
//! [`PostgresLog`](crate::postgres::log::PostgresLog); the advisory lock and the signs of life are
//! left out, since safety must not depend on them.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

const HOSTS: usize = 2;

/// The number of the commit with the end of the attempt.
const END: u8 = 1;

/// Added to the number of a commit that has another change in its place.
const OTHER: u8 = 50;

/// The bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelBounds {
    pub(super) sessions: u8,
    /// Commits of each session.
    pub(super) commits: u8,
    /// Connections that are lost.
    pub(super) losses: u8,
}

/// A commit of a session, by its number from 1; number 0 is the row that the begin of the session
/// adds.
pub(super) type Commit = (u8, u8);

/// The committed rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    /// The sessions, and whether they are alive.
    pub(super) sessions: BTreeMap<u8, bool>,
    pub(super) commit_log: BTreeSet<Commit>,
    /// The jobs, one for each commit.
    pub(super) jobs: BTreeSet<Commit>,
    /// Transactions of each commit that took effect. Not in the database.
    effects: BTreeMap<Commit, u8>,
}

/// A statement, in the order of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Statement {
    EndOthers,
    DeleteLog,
    AddSession(u8),
    AddFirst(u8),
    AddJob(Commit),
    Log(Commit),
    Fence(u8),
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Change {
    Ended(u8),
    Deleted(Commit),
    AddedSession(u8),
    Logged(Commit),
    AddedJob(Commit),
    /// A change that would be wrong if it were made twice, such as a sum.
    Summed(Commit),
}

/// Why a transaction has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Failed {
    Fenced,
    Duplicate,
}

/// A transaction in progress: a process of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelTransaction {
    pub(super) host: usize,
    /// Whether the host still waits for its answer.
    pub(super) has_client: bool,
    pub(super) left: VecDeque<Statement>,
    changes: Vec<Change>,
    shares: BTreeSet<u8>,
    pub(super) failed: Option<Failed>,
    /// The rows that a statement saw when it began to wait.
    pub(super) snapshot: Option<Rows>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Host {
    StandsBy,
    Begins(u8),
    /// It has the session, and reads the jobs.
    Loads(u8),
    Active {
        session: u8,
        committed: u8,
        /// Whether the outcome of the next commit is unknown.
        is_in_doubt: bool,
        progress: Progress,
    },
    /// Another host has taken over.
    Replaced,
    /// It has ended for a reason that must not occur.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    Idle,
    /// It has seen that the commit in doubt did not take place.
    Looked,
    /// It has seen that the commit in doubt took place, and a transaction that only has the fence
    /// is in progress: its commit waits for a synchronous standby, which the model does not have.
    Confirms,
    /// Its transaction is in progress; it was in doubt before.
    Commits {
        was_in_doubt: bool,
    },
}

/// The rules of the program. A test leaves each of them out, to see that the exploration finds a
/// fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) has_fence: bool,
    pub(super) has_log: bool,
    pub(super) looks_again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) rows: Rows,
    pub(super) transactions: Vec<ModelTransaction>,
    pub(super) hosts: [Host; HOSTS],
    /// The jobs that each session has read at its begin.
    loaded: BTreeMap<u8, BTreeSet<Commit>>,
    acknowledged: BTreeSet<Commit>,
    losses: u8,
}

/// A step of the exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ModelStep {
    /// A host without a session begins one.
    Begin(usize),
    /// A host reads the jobs.
    Load(usize),
    /// An active host begins its next commit.
    BeginCommit(usize),
    /// An active host looks for the outcome of a commit.
    Look(usize),
    /// The server carries out the next statement of a transaction, or finds that it must wait.
    Execute(usize),
    /// The host of a transaction loses its connection.
    Lose(usize),
    /// The server notices that a transaction has lost its host.
    Undo(usize),
}

/// What became of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Waits,
    Done,
    Failed(Failed),
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            rows: Rows::default(),
            transactions: Vec::new(),
            hosts: [Host::StandsBy; HOSTS],
            loaded: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            losses: 0,
        }
    }

    /// All steps that are possible.
    pub(super) fn steps(&self, bounds: ModelBounds) -> Vec<ModelStep> {
        let mut steps = Vec::new();
        for (n, host) in self.hosts.iter().enumerate() {
            match host {
                Host::StandsBy if self.newest() < bounds.sessions => {
                    steps.push(ModelStep::Begin(n))
                }
                Host::Loads(_) => steps.push(ModelStep::Load(n)),
                Host::Active { is_in_doubt: true, progress: Progress::Idle, .. } => {
                    steps.push(ModelStep::Look(n));
                }
                Host::Active { progress: Progress::Looked, .. } => {
                    steps.push(ModelStep::BeginCommit(n))
                }
                Host::Active { progress: Progress::Idle, committed, .. }
                    if *committed < bounds.commits =>
                {
                    steps.push(ModelStep::BeginCommit(n));
                }
                _ => {}
            }
        }
        for (n, transaction) in self.transactions.iter().enumerate() {
            if self.is_ready(n) {
                steps.push(ModelStep::Execute(n));
            }
            if transaction.has_client && self.losses < bounds.losses {
                steps.push(ModelStep::Lose(n));
            }
            if !transaction.has_client {
                steps.push(ModelStep::Undo(n));
            }
        }
        steps
    }

    fn newest(&self) -> u8 {
        self.rows.sessions.keys().next_back().copied().unwrap_or(0)
    }

    /// Whether a statement changes something: one that waits does so once.
    pub(super) fn is_ready(&self, n: usize) -> bool {
        let transaction = &self.transactions[n];
        transaction.snapshot.is_none() || !self.must_wait(n)
    }

    pub(super) fn take(&mut self, step: ModelStep, rules: Rules) -> Outcome {
        match step {
            ModelStep::Begin(n) => {
                let session = self.newest() + 1;
                let (added, first) = (Statement::AddSession(session), Statement::AddFirst(session));
                let left = [Statement::EndOthers, Statement::DeleteLog, added, first];
                self.begin(n, left.into_iter().collect());
                self.hosts[n] = Host::Begins(session);
            }
            ModelStep::Load(n) => {
                let Host::Loads(session) = self.hosts[n] else { return Outcome::Done };
                self.loaded.insert(session, self.rows.jobs.clone());
                let progress = Progress::Idle;
                self.hosts[n] =
                    Host::Active { session, committed: 0, is_in_doubt: false, progress };
            }
            ModelStep::Look(n) => self.look(n, rules),
            ModelStep::BeginCommit(n) => self.begin_commit(n, rules),
            ModelStep::Execute(n) => return self.execute(n, rules),
            ModelStep::Lose(n) => {
                self.losses += 1;
                let transaction = &mut self.transactions[n];
                transaction.has_client = false;
                let host = &mut self.hosts[transaction.host];
                *host = match *host {
                    Host::Active { session, committed, .. } => {
                        let progress = Progress::Idle;
                        Host::Active { session, committed, is_in_doubt: true, progress }
                    }
                    _ => Host::StandsBy,
                };
            }
            ModelStep::Undo(n) => drop(self.transactions.remove(n)),
        }
        Outcome::Done
    }

    fn begin(&mut self, host: usize, mut left: VecDeque<Statement>) {
        left.push_back(Statement::Commit);
        self.transactions.push(ModelTransaction {
            host,
            has_client: true,
            left,
            changes: Vec::new(),
            shares: BTreeSet::new(),
            failed: None,
            snapshot: None,
        });
    }

    fn begin_commit(&mut self, n: usize, rules: Rules) {
        let Host::Active { session, committed, is_in_doubt, progress } = &mut self.hosts[n] else {
            return;
        };
        *progress = Progress::Commits { was_in_doubt: *is_in_doubt };
        let (session, commit) = (*session, (*session, *committed + 1));
        let mut left = VecDeque::from([Statement::AddJob(self.change_of(commit))]);
        if rules.has_log {
            left.push_back(Statement::Log(commit));
        }
        if rules.has_fence {
            left.push_back(Statement::Fence(session));
        }
        self.begin(n, left);
    }

    /// The row that a commit adds.
    fn change_of(&self, (session, number): Commit) -> Commit {
        let has_ended = || self.loaded[&session].iter().any(|(_, number)| *number == END);
        let is_other = number == END && has_ended();
        (session, if is_other { number + OTHER } else { number })
    }

    fn look(&mut self, n: usize, rules: Rules) {
        let Host::Active { session, committed, .. } = self.hosts[n] else { return };
        if self.rows.sessions.get(&session) != Some(&true) {
            self.hosts[n] = Host::Replaced;
            return;
        }
        let of_session = self.rows.commit_log.iter().filter(|(of, _)| *of == session);
        let last = of_session.map(|(_, number)| *number).max().unwrap_or(0);
        let progress = if last == committed + 1 {
            let fence = rules.has_fence.then_some(Statement::Fence(session));
            self.begin(n, fence.into_iter().collect());
            Progress::Confirms
        } else if last == committed || !rules.has_log {
            Progress::Looked
        } else {
            self.hosts[n] = Host::Failed;
            return;
        };
        self.hosts[n] = Host::Active { session, committed, is_in_doubt: true, progress };
    }

    fn acknowledge(&mut self, session: u8, committed: u8) -> Host {
        let change = self.change_of((session, committed));
        self.acknowledged.insert(change);
        Host::Active { session, committed, is_in_doubt: false, progress: Progress::Idle }
    }

    fn others(&self, n: usize) -> impl Iterator<Item = &ModelTransaction> {
        let others = self.transactions.iter().enumerate().filter(move |(other, _)| *other != n);
        // The server has undone a failed one.
        others.map(|(_, other)| other).filter(|other| other.failed.is_none())
    }

    /// Whether the next statement of a transaction needs a row that another one has locked or
    /// added.
    fn must_wait(&self, n: usize) -> bool {
        let transaction = &self.transactions[n];
        if transaction.failed.is_some() {
            return false;
        }
        let seen = transaction.snapshot.as_ref().unwrap_or(&self.rows);
        let has = |change: Change| self.others(n).any(|other| other.changes.contains(&change));
        // A row that is being deleted keeps its key until then.
        let changes_log = |row| has(Change::Logged(row)) || has(Change::Deleted(row));
        let is_alive = |session: &u8| seen.sessions.get(session) == Some(&true);
        match transaction.left.front() {
            Some(Statement::EndOthers) => {
                seen.sessions.keys().filter(|it| is_alive(it)).any(|it| {
                    has(Change::Ended(*it)) || self.others(n).any(|other| other.shares.contains(it))
                })
            }
            Some(Statement::DeleteLog) => {
                seen.commit_log.iter().any(|it| has(Change::Deleted(*it)))
            }
            // Whether the key of a row that is being changed is free shows at the end of the
            // change.
            Some(Statement::AddSession(session)) => {
                has(Change::AddedSession(*session)) || has(Change::Ended(*session))
            }
            Some(Statement::AddFirst(session)) => changes_log((*session, 0)),
            Some(Statement::AddJob(commit)) => has(Change::AddedJob(*commit)),
            Some(Statement::Log((session, number))) => {
                let is_next = seen.commit_log.contains(&(*session, *number - 1));
                is_next && changes_log((*session, *number))
            }
            Some(Statement::Fence(session)) => is_alive(session) && has(Change::Ended(*session)),
            Some(Statement::Commit) | None => false,
        }
    }

    fn execute(&mut self, n: usize, rules: Rules) -> Outcome {
        if self.must_wait(n) {
            self.transactions[n].snapshot = Some(self.rows.clone());
            return Outcome::Waits;
        }
        let Self { rows, transactions, .. } = self;
        let transaction = &mut transactions[n];
        let Some(statement) = transaction.left.pop_front() else { return Outcome::Done };
        if statement == Statement::Commit {
            self.end(n, rules);
            return Outcome::Done;
        }
        if let Some(failed) = transaction.failed {
            return Outcome::Failed(failed);
        }
        let seen = transaction.snapshot.take().unwrap_or_else(|| rows.clone());
        let changes = &mut transaction.changes;
        let mut add = |is_there: bool, change: Change| match is_there {
            true => Some(Failed::Duplicate),
            false => {
                changes.push(change);
                None
            }
        };
        let failed = match statement {
            Statement::EndOthers => {
                // A row that has changed while the statement waited is looked at again.
                let alive = seen.sessions.iter().filter(|(_, is_alive)| **is_alive);
                let alive = alive.filter(|(it, _)| rows.sessions.get(it) == Some(&true));
                changes.extend(alive.map(|(it, _)| Change::Ended(*it)));
                None
            }
            Statement::DeleteLog => {
                let there = seen.commit_log.intersection(&rows.commit_log);
                changes.extend(there.map(|it| Change::Deleted(*it)));
                None
            }
            Statement::AddSession(session) => {
                add(rows.sessions.contains_key(&session), Change::AddedSession(session))
            }
            Statement::AddFirst(session) => {
                add(rows.commit_log.contains(&(session, 0)), Change::Logged((session, 0)))
            }
            // `ON CONFLICT DO NOTHING`.
            Statement::AddJob(commit) => {
                add(rows.jobs.contains(&commit), Change::AddedJob(commit));
                changes.push(Change::Summed(commit));
                None
            }
            Statement::Log((session, number)) => {
                match seen.commit_log.contains(&(session, number - 1)) {
                    true => {
                        let is_there = rows.commit_log.contains(&(session, number));
                        add(is_there, Change::Logged((session, number)))
                    }
                    false => None,
                }
            }
            Statement::Fence(session) => {
                let is_alive = |rows: &Rows| rows.sessions.get(&session) == Some(&true);
                match is_alive(&seen) && is_alive(rows) {
                    true => {
                        transaction.shares.insert(session);
                        None
                    }
                    false => Some(Failed::Fenced),
                }
            }
            Statement::Commit => None,
        };
        transaction.failed = failed;
        failed.map_or(Outcome::Done, Outcome::Failed)
    }

    /// Ends a transaction, and answers its host.
    fn end(&mut self, n: usize, rules: Rules) {
        let ModelTransaction { host, has_client, changes, failed, .. } =
            self.transactions.remove(n);
        if failed.is_none() {
            self.apply(&changes);
        }
        if !has_client {
            return;
        }
        let logged = changes.iter().any(|change| matches!(change, Change::Logged((_, 1..))));
        self.hosts[host] = match (self.hosts[host], failed) {
            (Host::Begins(session), None) => Host::Loads(session),
            (Host::Begins(_), Some(_)) => Host::StandsBy,
            (Host::Active { session, committed, progress, .. }, failed) => match failed {
                None if logged || !rules.has_log || progress == Progress::Confirms => {
                    self.acknowledge(session, committed + 1)
                }
                Some(Failed::Fenced) => Host::Replaced,
                Some(Failed::Duplicate)
                    if progress == (Progress::Commits { was_in_doubt: true })
                        && rules.looks_again =>
                {
                    Host::Active { session, committed, is_in_doubt: true, progress: Progress::Idle }
                }
                None | Some(Failed::Duplicate) => Host::Failed,
            },
            (host, _) => host,
        };
    }

    fn apply(&mut self, changes: &[Change]) {
        let Rows { sessions, commit_log, jobs, effects } = &mut self.rows;
        for change in changes {
            match *change {
                Change::Ended(session) => drop(sessions.insert(session, false)),
                Change::Deleted(commit) => drop(commit_log.remove(&commit)),
                Change::AddedSession(session) => drop(sessions.insert(session, true)),
                Change::Logged(commit) => drop(commit_log.insert(commit)),
                Change::AddedJob(commit) => drop(jobs.insert(commit)),
                Change::Summed(commit) => *effects.entry(commit).or_default() += 1,
            }
        }
    }

    /// The first property of each state that does not hold.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let alive = self.rows.sessions.values().filter(|is_alive| **is_alive).count();
        let has_late = self.loaded.iter().any(|(session, loaded)| {
            self.rows.jobs.iter().any(|commit| commit.0 < *session && !loaded.contains(commit))
        });
        let ends = self.rows.jobs.iter().filter(|(_, number)| *number == END).count();
        let faults = [
            (alive > 1, "two sessions are alive"),
            (has_late, "a commit of an ended session appears after the next one has read the jobs"),
            (!self.acknowledged.is_subset(&self.rows.jobs), "an acknowledged commit is lost"),
            (self.rows.effects.values().any(|count| *count > 1), "a commit took effect twice"),
            (ends > 1, "an attempt has ended twice"),
            (self.hosts.contains(&Host::Failed), "a host ended, and no commit was lost"),
        ];
        faults.into_iter().find_map(|(is_there, fault)| is_there.then_some(fault))
    }
}

/// Tries all orders of all steps. Returns the number of states, or the first fault with the steps
/// to it.
fn explore(rules: Rules, bounds: ModelBounds) -> Result<usize, (&'static str, Vec<ModelStep>)> {
    let hasher = RandomState::new();
    // Hashes of 64 bits take a fraction of the memory of the states: of a million states, two have
    // the same one with a probability of 3 in 10^8.
    let first = State::new();
    let mut known = HashSet::from([hasher.hash_one(&first)]);
    // Each state with the number of the path's end that leads to it.
    let mut queue = VecDeque::from([(first, usize::MAX)]);
    let mut paths: Vec<(usize, ModelStep)> = Vec::new();
    while let Some((state, path)) = queue.pop_front() {
        for step in state.steps(bounds) {
            let mut next = state.clone();
            next.take(step, rules);
            if !known.insert(hasher.hash_one(&next)) {
                continue;
            }
            paths.push((path, step));
            if let Some(fault) = next.fault() {
                let mut at = paths.len() - 1;
                let mut steps = Vec::new();
                while let Some((before, step)) = paths.get(at) {
                    steps.insert(0, *step);
                    at = *before;
                }
                return Err((fault, steps));
            }
            queue.push_back((next, paths.len() - 1));
        }
    }
    Ok(known.len())
}

/// The rules of this program.
pub(super) const RULES: Rules = Rules { has_fence: true, has_log: true, looks_again: true };

mod tests {
    use super::*;

    fn holds(bounds: ModelBounds) {
        match explore(RULES, bounds) {
            Ok(states) => {
                println!("{states} states, {bounds:?}");
                assert!(states > 500, "{states} states");
            }
            Err((fault, steps)) => panic!("{fault}: {steps:?}"),
        }
    }

    #[test]
    fn no_order_of_statements_breaks_the_fence() {
        holds(ModelBounds { sessions: 2, commits: 2, losses: 1 });
        holds(ModelBounds { sessions: 3, commits: 1, losses: 0 });
    }

    #[test]
    #[ignore = "takes a minute: 1.8 million states"]
    fn no_order_of_statements_with_two_lost_connections_breaks_the_fence() {
        holds(ModelBounds { sessions: 2, commits: 1, losses: 2 });
    }

    /// Each rule is there for a fault, which the exploration finds without it.
    #[test]
    fn each_rule_is_needed() {
        let without_both = Rules { has_fence: false, has_log: false, ..RULES };
        for (rules, losses, expected) in [
            (without_both, 0, "a commit of an ended session appears"),
            (Rules { has_fence: false, ..RULES }, 0, "a host ended"),
            (Rules { has_log: false, ..RULES }, 1, "a commit took effect twice"),
            (Rules { looks_again: false, ..RULES }, 1, "a host ended"),
        ] {
            let bounds = ModelBounds { sessions: 2, commits: 1, losses };
            let (fault, steps) = explore(rules, bounds).expect_err("a fault");
            assert!(fault.starts_with(expected), "{rules:?}: {fault}: {steps:?}");
        }
    }
}
