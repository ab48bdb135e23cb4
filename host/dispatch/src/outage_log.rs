//! Which errors of the store are worth a line in the log: an outage of the database may last for
//! minutes, and is met by every try.

use gristmill_core::store::StoreError;

/// Remembers whether the last try met an outage.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    is_unreachable: bool,
}

impl OutageLog {
    /// A try succeeded.
    pub(crate) fn end(&mut self) {
        self.is_unreachable = false;
    }

    /// Whether to log the error of a try: an outage is logged once, and other errors each time.
    pub(crate) fn is_news(&mut self, error: &StoreError) -> bool {
        let is_outage = *error == StoreError::Unavailable;
        let was_outage = std::mem::replace(&mut self.is_unreachable, is_outage);
        !(was_outage && is_outage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_and_other_errors_each_time() {
        let mut log = OutageLog::default();
        let damaged = StoreError::Damaged("d".to_owned());
        let tries = [&StoreError::Unavailable, &StoreError::Unavailable, &damaged, &damaged];
        assert_eq!(tries.map(|error| log.is_news(error)), [true, false, true, true]);
        assert!(log.is_news(&StoreError::Unavailable));
        log.end();
        assert!(log.is_news(&StoreError::Unavailable));
    }
}
