//! What cursors find.

use agentvm_wire::observer::EventCategory;

use super::*;

fn event(seq: u64) -> ObserverEvent {
    numbered(seq, Kind::Started { adopted: false })
}

fn numbered(seq: u64, kind: Kind) -> ObserverEvent {
    let mut event = ObserverEvent::new(EventCategory::Lifecycle, kind);
    (event.seq, event.pid) = (seq, Some(u32::try_from(seq).unwrap()));
    event
}

fn overflow(count: u64) -> Kind {
    Kind::Loss { reason: Kind::OVERFLOW.to_owned(), count }
}

fn fill(ring: &mut Ring, numbers: impl IntoIterator<Item = u64>) {
    numbers.into_iter().for_each(|seq| ring.push(event(seq), &mut Vec::new()));
}

/// The pid of each event, or how many were lost; and that the numbers have no holes.
fn read_all(ring: &mut Ring, cursor: CursorId) -> Vec<Result<u32, u64>> {
    let mut found = Vec::new();
    while let Read::Event(event) = ring.read(cursor, None) {
        found.push(match event.kind {
            Kind::Loss { count, .. } => Err(count),
            _ => Ok(event.pid.unwrap()),
        });
    }
    found
}

#[test]
fn each_cursor_reads_for_itself_from_the_first_event_on() {
    let mut ring = Ring::new(10);
    let early = ring.subscribe();
    fill(&mut ring, 1..=3);
    assert_eq!(read_all(&mut ring, early), [Ok(1), Ok(2), Ok(3)]);
    let late = ring.subscribe();
    fill(&mut ring, 4..=4);
    assert_eq!(read_all(&mut ring, early), [Ok(4)]);
    assert_eq!(read_all(&mut ring, late), [Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert_eq!(ring.read(late, None), Read::Pending);
    ring.end(&mut Vec::new());
    assert_eq!(ring.read(late, None), Read::End);
}

#[test]
fn numbers_have_no_hole_over_a_loss() {
    let mut ring = Ring::new(2);
    let cursor = ring.subscribe();
    fill(&mut ring, 1..=100);
    let mut seqs = Vec::new();
    while let Read::Event(event) = ring.read(cursor, None) {
        seqs.push(event.seq);
    }
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn who_is_too_slow_finds_one_loss_with_the_count() {
    let mut ring = Ring::new(3);
    let cursor = ring.subscribe();
    fill(&mut ring, 1..=2);
    assert_eq!(ring.read(cursor, None), Read::Event(Box::new(event(1))));
    fill(&mut ring, 3..=100);
    assert_eq!(read_all(&mut ring, cursor), [Err(96), Ok(98), Ok(99), Ok(100)]);
}

#[test]
fn what_was_never_sent_counts_where_its_record_is_lost_too() {
    let mut ring = Ring::new(2);
    let cursor = ring.subscribe();
    let unsent = Kind::Loss { reason: Kind::UNSENT.to_owned(), count: 50 };
    ring.push(numbered(1, unsent), &mut Vec::new());
    assert_eq!(ring.reached(), 51);
    fill(&mut ring, [52, 53]);
    assert_eq!(read_all(&mut ring, cursor), [Err(51), Ok(52), Ok(53)]);
}

#[test]
fn what_the_sidecar_lost_counts_where_its_record_is_lost_too() {
    let mut ring = Ring::new(2);
    let cursor = ring.subscribe();
    ring.push(numbered(1, overflow(50)), &mut Vec::new());
    assert_eq!(ring.reached(), 50);
    fill(&mut ring, [51]);
    let other = ring.subscribe();
    assert_eq!(read_all(&mut ring, other), [Err(50), Ok(51)]);
    fill(&mut ring, 52..=53);
    assert_eq!(read_all(&mut ring, cursor), [Err(51), Ok(52), Ok(53)]);
}

#[test]
fn a_stopped_cursor_reads_what_was_there_and_no_more() {
    let mut ring = Ring::new(3);
    let (stopped, other) = (ring.subscribe(), ring.subscribe());
    fill(&mut ring, 1..=2);
    ring.stop(stopped, &mut Vec::new());
    assert!(!ring.is_forsaken());
    fill(&mut ring, 3..=3);
    assert_eq!(read_all(&mut ring, stopped), [Ok(1), Ok(2)]);
    assert_eq!(ring.read(stopped, None), Read::End);
    assert_eq!(read_all(&mut ring, other), [Ok(1), Ok(2), Ok(3)]);
    ring.stop(other, &mut Vec::new());
    assert!(ring.is_forsaken());
}

#[test]
fn a_stopped_cursor_is_told_only_of_losses_of_its_own() {
    let mut ring = Ring::new(3);
    let stopped = ring.subscribe();
    fill(&mut ring, 1..=2);
    ring.stop(stopped, &mut Vec::new());
    fill(&mut ring, 3..=100);
    assert_eq!(read_all(&mut ring, stopped), [Err(2)]);
    assert_eq!(ring.read(stopped, None), Read::End);
}

#[test]
fn a_line_that_cannot_be_read_counts() {
    let mut ring = Ring::new(3);
    fill(&mut ring, [1]);
    ring.skip();
    assert_eq!(ring.reached(), 2);
}
