//! The usage of the newest hours by template, as it is on disk, for templates' `runtimeInMin` and
//! `earned`. Reading it from the tables would occupy the database's thread for all rows of these
//! hours.
//!
//! **Bounds.** About 150 bytes for each template, owner and hour, of the present hour and
//! [`NEWEST_HOURS`] before it. **Cost.** A read examines only the sums of one template; a batch
//! takes one map lookup for each of its rows of usage.

use std::collections::HashMap;
use std::ops::Range;

use gristmill_core::billing::usage::{Hour, NEWEST_HOURS, UsageSum};
use gristmill_core::id::{OwnerId, TemplateId};

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct NewestUsage {
    hour: Hour,
    templates: HashMap<TemplateId, HashMap<(Hour, OwnerId), UsageSum>>,
}

impl NewestUsage {
    /// Adds usage of an hour, and removes hours that are too far from it.
    pub(crate) fn add(
        &mut self,
        hour: Hour,
        template: &TemplateId,
        owner: &OwnerId,
        sum: &UsageSum,
    ) {
        if hour != self.hour {
            self.hour = hour;
            self.templates.retain(|_, sums| {
                sums.retain(|(other, _), _| other.0.abs_diff(hour.0) <= NEWEST_HOURS);
                !sums.is_empty()
            });
        }
        if !self.templates.contains_key(template) {
            self.templates.insert(template.clone(), HashMap::new());
        }
        let sums = self.templates.get_mut(template);
        let sums = sums.expect("it has just been made");
        sums.entry((hour, owner.clone())).or_default().add(sum);
    }

    /// The usage of a template in these hours.
    pub(crate) fn of(
        &self,
        template: &TemplateId,
        hours: &Range<Hour>,
    ) -> Vec<(OwnerId, UsageSum)> {
        let sums = self.templates.get(template).into_iter().flatten();
        let wanted = sums.filter(|((hour, _), _)| hours.contains(hour));
        wanted.map(|((_, owner), sum)| (owner.clone(), *sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_hours_are_kept_by_template_and_owner() {
        let mut newest = NewestUsage::default();
        let template = |name: &str| TemplateId::new(name).unwrap();
        let owner = |name: &str| OwnerId::new(name).unwrap();
        let one = UsageSum { jobs: 1, ..UsageSum::default() };
        let jobs = |newest: &NewestUsage, name: &str, hours: Range<u32>| {
            let hours = Hour(hours.start)..Hour(hours.end);
            let sums = newest.of(&template(name), &hours);
            sums.iter().map(|(_, sum)| sum.jobs).sum::<u64>()
        };
        for (hour, name, who) in
            [(100, "t", "a"), (100, "t", "b"), (101, "t", "a"), (101, "u", "a"), (101, "t", "a")]
        {
            newest.add(Hour(hour), &template(name), &owner(who), &one);
        }
        let seen = [jobs(&newest, "t", 100..102), jobs(&newest, "t", 101..102)];
        assert_eq!((seen, jobs(&newest, "u", 0..999)), ([4, 2], 1));
        newest.add(Hour(102), &template("u"), &owner("a"), &one);
        assert_eq!(jobs(&newest, "t", 100..103), 4);
        newest.add(Hour(104), &template("u"), &owner("a"), &one);
        assert_eq!((jobs(&newest, "t", 0..999), jobs(&newest, "u", 0..999)), (0, 2));
        // The clock is set back.
        newest.add(Hour(50), &template("u"), &owner("a"), &one);
        assert_eq!((jobs(&newest, "u", 0..999), newest.templates.len()), (1, 1));
    }
}
