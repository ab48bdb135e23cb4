//! The agenda by tables.

use gristmill_core::id::{EndpointId, OwnerId, ScheduleId};
use gristmill_core::schedule::TicksDefinition;
use gristmill_core::schedule::record::{CatchUp, Overlap};

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn schedule(number: u64) -> Arc<Schedule> {
    Arc::new(Schedule {
        id: ScheduleId::new(&format!("s{number}")).unwrap(),
        name: String::new(),
        owner: OwnerId::operator(),
        endpoint: EndpointId::new("mill").unwrap(),
        times: TicksDefinition::default(),
        input: "{}".to_owned(),
        policy: Default::default(),
        overlap: Overlap::default(),
        catch_up: CatchUp::default(),
        paused: false,
        number: ScheduleNumber(number),
        begins_at: at(0),
        created_at: at(0),
    })
}

#[test]
fn each_schedule_decides_at_its_time_and_once_at_a_time() {
    let (one, two) = (schedule(1), schedule(2));
    let mut agenda = Agenda::default();
    assert_eq!(agenda.next(), Timestamp::NEVER);
    agenda.follow(&[one.clone(), two.clone()]);
    assert_eq!(agenda.take_due(at(5)).unwrap().number, one.number);
    assert_eq!(agenda.take_due(at(5)).unwrap().number, two.number);
    assert!(agenda.take_due(at(5)).is_none(), "both are deciding");
    agenda.decided(&two, at(30));
    agenda.decided(&one, at(20));
    assert_eq!(agenda.next(), at(20));
    assert!(agenda.take_due(at(19)).is_none());
    assert_eq!(agenda.take_due(at(40)).unwrap().number, one.number);
    assert_eq!(agenda.take_due(at(40)).unwrap().number, two.number);
}

#[test]
fn a_changed_schedule_has_something_to_do_at_once() {
    let mut agenda = Agenda::default();
    let (old, new) = (schedule(1), schedule(1));
    agenda.follow(std::slice::from_ref(&old));
    agenda.take_due(at(0)).unwrap();
    // It is changed while it decides, and then while it waits.
    agenda.follow(std::slice::from_ref(&new));
    assert!(agenda.take_due(at(9)).is_none());
    agenda.decided(&old, at(50));
    assert!(Arc::ptr_eq(&agenda.take_due(at(0)).unwrap(), &new));
    agenda.decided(&new, at(50));
    agenda.follow(std::slice::from_ref(&new));
    assert_eq!(agenda.next(), at(50), "nothing has changed");
    agenda.follow(std::slice::from_ref(&old));
    assert!(Arc::ptr_eq(&agenda.take_due(at(0)).unwrap(), &old));
    // It is deleted while it decides.
    agenda.follow(&[]);
    agenda.decided(&old, at(60));
    assert_eq!(agenda.next(), Timestamp::NEVER);
}
