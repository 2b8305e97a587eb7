//! Records as the kernel writes them.

use proptest::prelude::*;

use super::*;

fn record(kind: u32, body: &[u32]) -> Vec<u8> {
    let length = u32::try_from(8 + 4 * body.len()).unwrap();
    [kind, length << 16].iter().chain(body).flat_map(|word| word.to_ne_bytes()).collect()
}

fn pid(raw: u32) -> Pid {
    pid_of(raw).unwrap()
}

#[test]
fn processes_are_told_and_threads_are_not() {
    let bytes = [
        record(FORK, &[70, 7, 70, 8, 5, 0]),
        record(FORK, &[70, 70, 71, 70, 6, 0]),
        record(EXIT, &[70, 7, 71, 7, 7, 0]),
        record(3, &[70, 70, 0x6873, 0]),
        record(LOST, &[1, 0, 9, 0]),
        record(EXIT, &[70, 7, 70, 7, 8, 1]),
    ];
    let found: Vec<_> = records(&bytes.concat()).into_iter().map(|(_, record)| record).collect();
    assert_eq!(
        found,
        [
            Record::Forked { pid: pid(70), parent: 7, at_ns: 5 },
            Record::Lost { count: 9 },
            Record::Ended { pid: pid(70), at_ns: 8 | 1 << 32 },
        ]
    );
}

#[test]
fn processors_are_listed_in_ranges() {
    assert_eq!(processors("0-1,3\n"), Some(vec![0, 1, 3]));
    assert_eq!(processors("0\n"), Some(vec![0]));
    for none in ["", "a", "0-", "0-4294967295", "0-63,64"] {
        assert_eq!(processors(none), None, "{none}");
    }
}

#[test]
fn who_is_made_and_ends_at_once_is_recorded() {
    let me = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let mut taken = match Records::of(rustix::thread::gettid()) {
        Ok(records) => records,
        Err(errno) => return eprintln!("skipped: perf_event_open(2): {errno}"),
    };
    let child = std::process::Command::new("/bin/true").spawn().and_then(|mut child| {
        child.wait()?;
        Ok(pid(child.id()))
    });
    let child = child.unwrap();
    let found = taken.take();
    let forked = |record: &Record| {
        matches!(record, Record::Forked { pid, parent, .. }
            if *pid == child && *parent == me)
    };
    let ended = |record: &Record| matches!(record, Record::Ended { pid, .. } if *pid == child);
    let (forked, ended) = (found.iter().position(forked), found.iter().position(ended));
    assert!(forked.is_some() && forked < ended, "{found:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(bytes: Vec<u8>) {
        let count = records(&bytes).len();
        prop_assert!(count <= bytes.len() / 8);
    }
}
