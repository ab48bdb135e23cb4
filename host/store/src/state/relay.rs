//! Messages to several callers that wait on the same threads: one caller gets all of them, and
//! passes the others on.
//!
//! A wake-up by another thread takes the lock of these threads' common queue, and may need a system
//! call. With this, the thread that sends causes one wake-up, and the caller wakes the others from
//! its own thread.
//!
//! **Promise.** Every caller gets its message, also if the caller that has those of the others
//! leaves: they are sent when [`Others`] is dropped. **Cost.** A caller may have to wait until the
//! first one runs, so only callers of the same priority belong together.

use tokio::sync::oneshot;

/// A message, and those to pass on.
#[derive(Debug)]
pub(crate) struct Relayed<T> {
    pub(crate) message: T,
    /// To be dropped by the caller as soon as it is woken.
    pub(crate) others: Others<T>,
}

/// Messages to other callers, which are sent when this is dropped.
#[derive(Debug)]
pub(crate) struct Others<T>(Vec<(Sender<T>, T)>);

/// The way to a caller that waits.
pub(crate) type Sender<T> = oneshot::Sender<Relayed<T>>;

/// Sends the messages. A caller that has left needs no message any more.
pub(crate) fn send<T>(mut messages: Vec<(Sender<T>, T)>) {
    while let Some((sender, message)) = messages.pop() {
        match sender.send(Relayed { message, others: Others(messages) }) {
            Ok(()) => return,
            Err(mut unsent) => messages = std::mem::take(&mut unsent.others.0),
        }
    }
}

impl<T> Relayed<T> {
    /// A message to one caller.
    pub(crate) fn alone(message: T) -> Self {
        Self { message, others: Others(Vec::new()) }
    }
}

impl<T> Drop for Others<T> {
    fn drop(&mut self) {
        for (sender, message) in self.0.drain(..) {
            let _ = sender.send(Relayed::alone(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Receivers = Vec<Option<oneshot::Receiver<Relayed<usize>>>>;

    fn messages(count: usize) -> (Vec<(Sender<usize>, usize)>, Receivers) {
        let channels = (0..count).map(|number| {
            let (sender, receiver) = oneshot::channel();
            ((sender, number), Some(receiver))
        });
        channels.unzip()
    }

    fn sent(receivers: &mut Receivers) -> Vec<bool> {
        let is_sent = |receiver: &oneshot::Receiver<_>| !receiver.is_empty();
        receivers.iter().map(|receiver| receiver.as_ref().is_some_and(is_sent)).collect()
    }

    #[test]
    fn one_caller_passes_the_messages_of_the_others_on() {
        let (messages, mut receivers) = messages(3);
        send(messages);
        assert_eq!(sent(&mut receivers), [false, false, true]);
        let Relayed { message, others } = receivers[2].take().unwrap().try_recv().unwrap();
        assert_eq!(message, 2);
        drop(others);
        assert_eq!(sent(&mut receivers), [true, true, false]);
        assert_eq!(receivers[1].as_mut().unwrap().try_recv().unwrap().message, 1);
    }

    #[test]
    fn a_caller_that_leaves_takes_no_message_with_it() {
        let (messages, mut receivers) = messages(4);
        // Before it is woken.
        receivers[3] = None;
        send(messages);
        assert_eq!(sent(&mut receivers), [false, false, true, false]);
        // When it has been woken.
        receivers[2] = None;
        assert_eq!(sent(&mut receivers), [true, true, false, false]);
    }

    #[test]
    fn all_callers_may_have_left() {
        let (messages, receivers) = messages(3);
        drop(receivers);
        send(messages);
        send(Vec::<(Sender<usize>, usize)>::new());
    }
}
