//! What a feed gives to its stream.

use agentvm_wire::session::Limits;

use super::*;

fn link() -> Link {
    Link::new(Limits::default())
}

fn feed(waiting: &Arc<Waiting>) -> Arc<Feed> {
    let categories = vec![EventCategory::Lifecycle];
    Feed::new(Observe { stream: StreamId(1), categories, require_exact: false }, waiting.clone())
}

fn started(pid: u32) -> Arc<ObserverEvent> {
    let mut event = event_now(EventCategory::Lifecycle, Kind::Started { adopted: false });
    event.pid = Some(pid);
    Arc::new(event)
}

/// Everything that is there, read in pieces.
fn read(feed: &Feed, piece: usize) -> Vec<ObserverEvent> {
    let (mut text, mut buffer) = (Vec::new(), vec![0; piece]);
    while let Taken::Bytes(read) = feed.take(&mut buffer) {
        text.extend_from_slice(&buffer[..read]);
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| ObserverEvent::read_line(line).expect("it is a line")).collect()
}

#[test]
fn lines_come_in_order_however_they_are_cut() {
    for piece in [1, 7, 100, 1 << 16] {
        let feed = feed(&Arc::default());
        for pid in 1..=20 {
            feed.tell(&link(), &started(pid));
            assert_eq!(feed.told(), Some(Told { stream: StreamId(1), seq: u64::from(pid) }));
        }
        let events = read(&feed, piece);
        let found: Vec<_> = events.iter().map(|event| (event.seq, event.pid)).collect();
        let expected: Vec<_> = (1..=20).map(|pid| (u64::from(pid), Some(pid))).collect();
        assert_eq!(found, expected, "in pieces of {piece}");
        assert_eq!(feed.take(&mut [0; 10]), Taken::Nothing);
    }
}

#[test]
fn what_was_not_asked_for_is_not_told() {
    let feed = feed(&Arc::default());
    let other = event_now(EventCategory::File, Kind::FileWrite { bytes: 1 });
    feed.tell(&link(), &Arc::new(other));
    assert_eq!(feed.told(), None);
    assert!(read(&feed, 100).is_empty());
}

#[test]
fn the_oldest_are_lost_and_counted_once_too_many_wait() {
    let (waiting, link) = (Arc::default(), link());
    let feed = feed(&waiting);
    let all = agentvm_wire::observer::MAX_EVENTS as u64 + 1000;
    for pid in 1..=all {
        feed.tell(&link, &started(u32::try_from(pid).expect("it is small")));
    }
    let events = read(&feed, 1 << 16);
    assert_eq!(
        (events[0].seq, &events[0].kind),
        (1, &Kind::Loss { reason: "overflow".to_owned(), count: 1000 })
    );
    assert!(events[1..].iter().map(|event| event.seq).eq(1001..=all));

    let other = self::feed(&waiting);
    other.tell(&link, &started(1));
    assert_eq!(read(&other, 100).len(), 1, "what was read takes no room");
}

#[test]
fn what_was_never_sent_counts_where_its_record_is_lost_too() {
    let (waiting, link) = (Arc::default(), link());
    let feed = feed(&waiting);
    let unsent = Kind::Loss { reason: Kind::UNSENT.to_owned(), count: 500 };
    feed.tell(&link, &Arc::new(event_now(EventCategory::Lifecycle, unsent)));
    let all = agentvm_wire::observer::MAX_EVENTS;
    for pid in 1..=all {
        feed.tell(&link, &started(u32::try_from(pid).expect("it is small")));
    }
    let events = read(&feed, 1 << 16);
    let loss = Kind::Loss { reason: Kind::OVERFLOW.to_owned(), count: 501 };
    assert_eq!((events[0].seq, &events[0].kind), (1, &loss));
    assert_eq!((events[1].seq, events.len()), (502, all + 1));
}

#[test]
fn who_finds_no_room_at_all_is_told_what_was_lost() {
    let (waiting, link) = (Arc::default(), link());
    let greedy = feed(&waiting);
    for pid in 1..=agentvm_wire::observer::MAX_EVENTS {
        greedy.tell(&link, &started(u32::try_from(pid).expect("it is small")));
    }
    let late = feed(&waiting);
    late.tell(&link, &started(1));
    late.tell(&link, &started(2));
    drop(greedy);
    late.tell(&link, &started(3));
    let events = read(&late, 100);
    assert_eq!(events[0].kind, Kind::Loss { reason: "overflow".to_owned(), count: 2 });
    assert_eq!((events[1].seq, events[1].pid, events.len()), (3, Some(3), 2));
}

#[test]
fn the_end_comes_behind_complete() {
    let feed = feed(&Arc::default());
    feed.tell(&link(), &started(1));
    feed.complete(&link(), None);
    feed.tell(&link(), &started(2));
    let mut buffer = [0; 4096];
    let Taken::Bytes(read) = feed.take(&mut buffer) else { panic!("two events wait") };
    assert_eq!(buffer[..read].split(|byte| *byte == b'\n').count(), 2 + 1, "nothing follows");
    assert_eq!(feed.take(&mut buffer), Taken::End);
}
