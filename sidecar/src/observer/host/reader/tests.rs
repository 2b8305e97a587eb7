//! Observations that take nothing.

use agentvm_wire::observer::{EventCategory, ObserverEventKind};

use super::*;

#[test]
fn what_nobody_takes_is_counted_and_told_before_what_follows() {
    let (events, mut taken) = mpsc::channel(2);
    let mut listener = Listener { events, lost: 0 };
    let event = ObserverEvent::new(EventCategory::Process, ObserverEventKind::Complete);
    let told = Told::Event(Arc::new(event));
    for _ in 0..5 {
        assert!(listener.tell(&told));
    }
    for _ in 0..2 {
        assert!(matches!(taken.try_recv(), Ok(Told::Event(_))));
    }
    assert!(listener.tell(&told));
    assert!(matches!(taken.try_recv(), Ok(Told::Lost(3))));
    assert!(matches!(taken.try_recv(), Ok(Told::Event(_))));
    drop(taken);
    assert!(!listener.tell(&told), "nobody listens any more");
}
