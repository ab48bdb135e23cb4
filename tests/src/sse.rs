//! The events of a whole answer.

use gristmill_client::{Event, EventParser};

/// All complete events of `text`.
pub fn parse_events(text: &str) -> Vec<Event> {
    EventParser::new(usize::MAX).push(text.as_bytes()).expect("an event of any size is read")
}
