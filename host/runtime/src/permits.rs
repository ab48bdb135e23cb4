//! Permits for sandboxes: bounds their number, and their memory together.
//!
//! A job needs a permit before it is claimed, for one sandbox and for all the memory that its
//! endpoint allows. **Fairness:** waiting endpoints take turns, and the workers of an endpoint are
//! served in their order of arrival. An endpoint keeps its turn until there is room for it, so that
//! a stream of small sandboxes does not starve a large one. **Bounds:** the sum of all permits
//! never exceeds the limits. **Cost:** taking a free permit costs one uncontended lock, and
//! returning it another; a waiting worker also needs a channel.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gristmill_core::id::EndpointId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The permits of a sandbox host. A clone shares them.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Shared>);

struct Shared {
    sandboxes_max: usize,
    memory_bytes_max: u64,
    state: Mutex<State>,
}

struct State {
    free_sandboxes: usize,
    free_bytes: u64,
    /// The waiting endpoints, in the order of their turns.
    turns: VecDeque<EndpointId>,
    /// The waiting workers, by endpoint; never empty.
    queues: HashMap<EndpointId, VecDeque<Waiter>>,
    next_waiter: u64,
    /// Number of waiting workers, of all endpoints.
    waiting: usize,
}

struct Waiter {
    number: u64,
    bytes: u64,
    grant: oneshot::Sender<Permit>,
}

/// The right to one sandbox with this much memory. Dropping it returns it.
#[must_use]
pub(crate) struct Permit {
    permits: Permits,
    bytes: u64,
}

impl Permits {
    /// Permits for this many sandboxes, with this many bytes of memory together.
    pub(crate) fn new(sandboxes_max: usize, memory_bytes_max: u64) -> Self {
        let state = State {
            free_sandboxes: sandboxes_max,
            free_bytes: memory_bytes_max,
            turns: VecDeque::new(),
            queues: HashMap::new(),
            next_waiter: 0,
            waiting: 0,
        };
        Self(Arc::new(Shared { sandboxes_max, memory_bytes_max, state: Mutex::new(state) }))
    }

    /// All the memory that sandboxes may have together, in bytes.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.0.memory_bytes_max
    }

    /// Number of permits in use.
    pub(crate) fn taken(&self) -> usize {
        self.0.sandboxes_max - self.0.state.lock().free_sandboxes
    }

    /// Number of workers that wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// A permit for a sandbox of this many bytes, if there is one and no worker waits for it.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        (state.turns.is_empty() && state.take(bytes)).then(|| self.permit(bytes))
    }

    /// Joins the queue for a permit. The future resolves to it; dropping the future leaves the
    /// queue. A request for more than the whole memory is treated as one for the whole memory, so
    /// that every wait can end.
    pub(crate) fn queue(
        &self,
        endpoint: &EndpointId,
        bytes: u64,
    ) -> impl Future<Output = Permit> + Send + use<> {
        let bytes = bytes.min(self.0.memory_bytes_max);
        let (grant, granted) = oneshot::channel();
        let number = self.0.state.lock().push(endpoint, bytes, grant);
        let place = Place { permits: self.clone(), endpoint: endpoint.clone(), number };
        // There may be room by now, and the queue may have been empty.
        self.serve();
        async move {
            let permit = granted.await.expect("only its own future removes a waiter");
            drop(place);
            permit
        }
    }

    fn permit(&self, bytes: u64) -> Permit {
        Permit { permits: self.clone(), bytes }
    }

    /// Grants permits while there is room.
    fn serve(&self) {
        loop {
            let mut state = self.0.state.lock();
            let Some(waiter) = state.next() else { return };
            drop(state);
            // Outside the lock: if the waiter has just been dropped, its permit is returned at
            // once.
            drop(waiter.grant.send(self.permit(waiter.bytes)));
        }
    }
}

impl State {
    /// Takes a sandbox with this many bytes, if there is room for it.
    fn take(&mut self, bytes: u64) -> bool {
        let has_room = self.free_sandboxes > 0 && self.free_bytes >= bytes;
        if has_room {
            self.free_sandboxes -= 1;
            self.free_bytes -= bytes;
        }
        has_room
    }

    /// Adds a waiter, and returns its number.
    fn push(&mut self, endpoint: &EndpointId, bytes: u64, grant: oneshot::Sender<Permit>) -> u64 {
        let number = self.next_waiter;
        self.next_waiter += 1;
        self.waiting += 1;
        let queue = self.queues.entry(endpoint.clone()).or_default();
        if queue.is_empty() {
            self.turns.push_back(endpoint.clone());
        }
        queue.push_back(Waiter { number, bytes, grant });
        number
    }

    /// The next waiter, if a sandbox and enough memory are free for it; both are then in use.
    fn next(&mut self) -> Option<Waiter> {
        let endpoint = self.turns.front()?.clone();
        let bytes = self.queues.get(&endpoint)?.front()?.bytes;
        if !self.take(bytes) {
            return None;
        }
        self.turns.pop_front();
        self.waiting -= 1;
        let queue = self.queues.get_mut(&endpoint)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&endpoint);
        } else {
            self.turns.push_back(endpoint);
        }
        waiter
    }

    /// Removes a waiter, if it still waits.
    fn remove(&mut self, endpoint: &EndpointId, number: u64) {
        let Some(queue) = self.queues.get_mut(endpoint) else { return };
        let before = queue.len();
        queue.retain(|waiter| waiter.number != number);
        self.waiting -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(endpoint);
            self.turns.retain(|waiting| waiting != endpoint);
        }
    }
}

/// A waiter's position in the queue, which it leaves on drop.
struct Place {
    permits: Permits,
    endpoint: EndpointId,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permits.0.state.lock().remove(&self.endpoint, self.number);
        // It may have been a large one that blocked the others.
        self.permits.serve();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let is_wanted = {
            let mut state = self.permits.0.state.lock();
            state.free_sandboxes += 1;
            state.free_bytes += self.bytes;
            !state.turns.is_empty()
        };
        if is_wanted {
            self.permits.serve();
        }
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (taken, waiting) = (self.taken(), self.waiting());
        f.debug_struct("Permits").field("taken", &taken).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn id(name: &str) -> EndpointId {
        EndpointId::new(name).unwrap()
    }

    /// Workers that wait, by the names of their endpoints.
    struct Queue {
        permits: Permits,
        waiting: Vec<(&'static str, BoxFuture<'static, Permit>)>,
        held: Vec<Permit>,
    }

    impl Queue {
        fn new(permits: &Permits) -> Self {
            Self { permits: permits.clone(), waiting: Vec::new(), held: Vec::new() }
        }

        fn join(&mut self, endpoint: &'static str, bytes: u64) {
            self.waiting.push((endpoint, self.permits.queue(&id(endpoint), bytes).boxed()));
        }

        /// Takes the granted permits, and returns their endpoints.
        fn granted(&mut self) -> Vec<&'static str> {
            let mut granted = Vec::new();
            let held = &mut self.held;
            self.waiting.retain_mut(|(endpoint, wait)| match wait.now_or_never() {
                Some(permit) => {
                    held.push(permit);
                    granted.push(*endpoint);
                    false
                }
                None => true,
            });
            granted
        }
    }

    #[test]
    fn permits_are_bounded_by_number_and_by_memory() {
        let permits = Permits::new(3, 10 * MIB);
        let small = permits.try_take(4 * MIB).unwrap();
        let _large = permits.try_take(6 * MIB).unwrap();
        assert!(permits.try_take(1).is_none(), "no memory");
        let _empty = permits.try_take(0).unwrap();
        assert_eq!(permits.taken(), 3);
        assert!(permits.try_take(0).is_none(), "no sandbox");
        drop(small);
        assert!(permits.try_take(5 * MIB).is_none());
        assert!(permits.try_take(4 * MIB).is_some());
    }

    #[test]
    fn endpoints_take_turns_and_their_workers_queue() {
        let permits = Permits::new(1, MIB);
        let mut last = permits.try_take(1);
        let mut queue = Queue::new(&permits);
        for _ in 0..100 {
            queue.join("many", 1);
        }
        queue.join("few", 1);
        queue.join("few", 1);
        assert_eq!((permits.waiting(), permits.taken()), (102, 1));
        let mut order = Vec::new();
        for _ in 0..6 {
            drop(last.take());
            order.extend(queue.granted());
            last = queue.held.pop();
        }
        assert_eq!(order, ["many", "few", "many", "few", "many", "many"]);
    }

    #[test]
    fn a_large_sandbox_is_not_starved_by_small_ones() {
        let permits = Permits::new(10, 10 * MIB);
        let mut running: VecDeque<_> = (0..10).filter_map(|_| permits.try_take(MIB)).collect();
        let mut queue = Queue::new(&permits);
        queue.join("large", 9 * MIB);
        for _ in 0..50 {
            queue.join("small", MIB);
        }
        assert!(permits.try_take(0).is_none(), "nobody passes those who wait");
        for _ in 0..8 {
            running.pop_front();
            assert!(queue.granted().is_empty(), "the large one has the turn");
        }
        running.pop_front();
        assert_eq!(queue.granted(), ["large"]);
        running.pop_front();
        assert_eq!(queue.granted(), ["small"]);
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_others_pass() {
        let permits = Permits::new(10, 10 * MIB);
        let first = permits.try_take(MIB).unwrap();
        let mut queue = Queue::new(&permits);
        queue.join("large", 10 * MIB);
        queue.join("small", MIB);
        assert!(queue.granted().is_empty());
        drop(queue.waiting.remove(0));
        assert_eq!(queue.granted(), ["small"]);
        // A waiter that is dropped after it was served, and before it received the permit.
        queue.join("large", 10 * MIB);
        drop((first, std::mem::take(&mut queue.held)));
        assert_eq!(permits.taken(), 1);
        queue.waiting.clear();
        assert_eq!((permits.taken(), permits.waiting()), (0, 0));
        assert!(permits.try_take(10 * MIB).is_some(), "nothing is lost");
    }

    #[test]
    fn a_request_for_more_than_there_is_gets_all_of_it() {
        let permits = Permits::new(2, MIB);
        assert!(permits.try_take(2 * MIB).is_none());
        let mut queue = Queue::new(&permits);
        queue.join("huge", 2 * MIB);
        assert_eq!(queue.granted(), ["huge"]);
        assert!(permits.try_take(1).is_none());
    }
}
