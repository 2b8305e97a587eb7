//! What was dropped, against the plain way to count it.

use proptest::prelude::*;

use crate::plugin::monitor::dropped::Dropped;

#[derive(Debug, Clone)]
enum Event {
    /// So many more numbers come, of which the oldest kept are dropped until so many are.
    Come {
        new: u64,
        kept: usize,
    },
    Return,
    /// One of what was returned and is not settled.
    Settle(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..5_u64, 0..6_usize).prop_map(|(new, kept)| Event::Come { new, kept }),
        Just(Event::Return),
        any::<prop::sample::Index>().prop_map(Event::Settle),
    ];
    prop::collection::vec(event, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_not_settled_is_counted_exactly(events in events()) {
        let (mut counted, mut newest) = (Dropped::default(), 0);
        let (mut kept, mut dropped, mut returned) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Come { new, kept: room } => {
                    kept.extend(newest + 1..=newest + new);
                    newest += new;
                    for sequence in kept.drain(..kept.len().saturating_sub(room)) {
                        counted.add(sequence);
                        dropped.push(sequence);
                    }
                }
                Event::Return => {
                    counted.returned(newest);
                    returned.push(newest);
                }
                Event::Settle(index) if !returned.is_empty() => {
                    let through = *index.get(&returned);
                    counted.settle(through);
                    kept.retain(|sequence| *sequence > through);
                    dropped.retain(|sequence| *sequence > through);
                    returned.retain(|sequence| *sequence > through);
                }
                Event::Settle(_) => {}
            }
            prop_assert_eq!(counted.count(), dropped.len() as u64);
        }
    }
}

#[test]
fn many_returned_parts_are_bounded_and_nothing_is_counted_less() {
    let mut dropped = Dropped::default();
    for sequence in 1..=1000 {
        dropped.add(sequence);
        dropped.returned(sequence);
    }
    assert_eq!(dropped.count(), 1000);
    let saved = serde_json::to_value(&dropped).unwrap();
    assert_eq!(saved["returned"].as_array().unwrap().len(), 64);
    dropped.settle(1000);
    assert_eq!(dropped.count(), 0);
}
