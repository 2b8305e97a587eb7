//! More of something than the VM may have: see `limits` of the run.

use std::fs::{self, File};
use std::io::Write as _;
use std::thread;

use super::{Attempt, Got, done};
use crate::facts::facts;
use crate::sys::memory_file;

/// More than any limit of a VM under attack.
const THREADS: usize = 400;
const FILES: usize = 12_000;
const DISK_BYTES: usize = 96 << 20;
const MEMORY_BYTES: usize = 512 << 20;

pub(super) fn all() -> Vec<Attempt> {
    vec![
        Attempt::new("E65", threads),
        Attempt::new("E119", files),
        Attempt::new("E119 bytes", || filled(&mut File::create("/tmp/full")?, DISK_BYTES)),
        Attempt::new("E119 shm", || filled(&mut File::create("/dev/shm/full")?, DISK_BYTES))
            .instead(|| filled(&mut File::create("/tmp/full")?, DISK_BYTES)),
        Attempt::new("E121", || hog(|| filled(&mut memory_file()?, MEMORY_BYTES))),
        Attempt::new("E121 anonymous", || hog(|| done(Ok(std::hint::black_box(vec![1u8; MEMORY_BYTES]))))),
    ]
}

/// Takes memory, where it is limited, as the one that the kernel ends for it.
fn hog(take: fn() -> Got) -> Got {
    if !facts().memory_is_limited {
        return Ok("absent".to_owned());
    }
    fs::write("/proc/self/oom_score_adj", "1000")?;
    take()
}

/// Threads that all live at once.
fn threads() -> Got {
    let (gate, end) = std::sync::mpsc::channel::<()>();
    let end = std::sync::Arc::new(std::sync::Mutex::new(end));
    let mut threads = Vec::new();
    let mut failure = None;
    while threads.len() < THREADS && failure.is_none() {
        let end = end.clone();
        let waiting = move || drop(end.lock().map(|end| end.recv()));
        match thread::Builder::new().stack_size(64 << 10).spawn(waiting) {
            Ok(thread) => threads.push(thread),
            Err(error) => failure = Some(error),
        }
    }
    drop(gate);
    for thread in threads {
        // None of them panics.
        let _ = thread.join();
    }
    failure.map_or(Ok(String::new()), Err)
}

/// Empty files, all removed again.
fn files() -> Got {
    fs::create_dir("/tmp/many")?;
    let made = (0..FILES).try_for_each(|n| File::create(format!("/tmp/many/{n}")).map(drop));
    fs::remove_dir_all("/tmp/many")?;
    done(made)
}

/// Writes so much, and gives it back.
fn filled(file: &mut File, bytes: usize) -> Got {
    let chunk = vec![1u8; 1 << 20];
    let written = (0..bytes / chunk.len()).try_for_each(|_| file.write_all(&chunk));
    file.set_len(0)?;
    done(written)
}
