//! Stop sequences: text is held back while it may be the beginning of one.

/// Passes text on up to the first stop sequence.
pub struct StopFilter {
    stops: Vec<String>,
    held: String,
}

/// The output of a filter.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// This text, and there may be more.
    Text(String),
    /// This text, followed by a stop sequence.
    Last(String),
}

impl StopFilter {
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Adds text and returns the text that is decided.
    pub fn push(&mut self, text: &str) -> Passed {
        self.held.push_str(text);
        let stop = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = stop {
            self.held.truncate(at);
            return Passed::Last(self.finish());
        }
        let may_begin_a_stop = |tail: &str| self.stops.iter().any(|stop| stop.starts_with(tail));
        let certain = self
            .held
            .char_indices()
            .find(|(at, _)| self.held.get(*at..).is_some_and(may_begin_a_stop))
            .map_or(self.held.len(), |(at, _)| at);
        let rest = self.held.split_off(certain);
        Passed::Text(std::mem::replace(&mut self.held, rest))
    }

    /// Returns all text that was held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Passed {
        Passed::Text(text.to_owned())
    }

    #[test]
    fn the_first_stop_ends_the_text() {
        let mut filter = StopFilter::new(vec!["b c".to_owned(), "zz".to_owned()]);
        assert_eq!(filter.push("a b"), text("a "));
        assert_eq!(filter.push(" d b"), text("b d "));
        assert_eq!(filter.push(" cd zz"), Passed::Last(String::new()));
    }

    #[test]
    fn what_is_held_back_comes_at_the_end() {
        let mut filter = StopFilter::new(vec!["über alles".to_owned()]);
        assert_eq!(filter.push("x über"), text("x "));
        assert_eq!(filter.finish(), "über");
        assert_eq!(StopFilter::new(vec![]).push("all"), text("all"));
    }
}
