//! A minimal parser of server-sent events.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; `message` when the server named none.
    pub event: String,
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its data; lines are joined by `\n`.
    pub data: String,
}

/// Parses all complete events of `text`. Comments are left out.
pub fn parse_events(text: &str) -> Vec<SseEvent> {
    let complete = text.rfind("\n\n").map_or("", |end| text.get(..end).unwrap_or_default());
    complete.split("\n\n").filter_map(parse_event).collect()
}

fn parse_event(block: &str) -> Option<SseEvent> {
    let mut event = SseEvent { event: "message".to_owned(), ..SseEvent::default() };
    let mut data = vec![];
    let mut has_fields = false;
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        has_fields = true;
        match field {
            "event" => value.clone_into(&mut event.event),
            "id" => event.id = Some(value.to_owned()),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.data = data.join("\n");
    has_fields.then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_type_an_id_and_data() {
        let text = ": hello\n\nid: 4\ndata: {\"a\":\ndata: 1}\n\nevent: end\ndata:x\n\ndata: cut";
        let events = parse_events(text);
        assert_eq!(events.len(), 2);
        let first =
            SseEvent { event: "message".into(), id: Some("4".into()), data: "{\"a\":\n1}".into() };
        assert_eq!(events[0], first);
        assert_eq!((events[1].event.as_str(), events[1].data.as_str()), ("end", "x"));
    }
}
