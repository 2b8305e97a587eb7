//! The floor: what the system itself takes, without any library between.

use std::{
    ffi::CString,
    io::Read as _,
    process::{Command, Stdio},
    ptr,
    time::{Duration, Instant},
};

/// Starts a program with `posix_spawn(3)`.
pub(crate) fn spawn(path: &str, args: &[&str]) -> libc::pid_t {
    let text = |text: &str| CString::new(text).expect("no NUL");
    let path = text(path);
    let args: Vec<CString> = args.iter().map(|arg| text(arg)).collect();
    let mut vector: Vec<*mut libc::c_char> = args.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    vector.push(ptr::null_mut());
    let environment = [ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: path, vector and environment are NUL-terminated and outlive the call; no attributes are passed.
    let status = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            ptr::null(),
            ptr::null(),
            vector.as_ptr(),
            environment.as_ptr(),
        )
    };
    assert_eq!(status, 0, "posix_spawn");
    pid
}

/// Waits for a child.
pub(crate) fn wait(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` is valid for the call, and `pid` is a child of ours that nobody else waits for.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0), "waitpid");
}

/// Both.
pub(crate) fn spawn_and_wait(path: &str, args: &[&str]) {
    wait(spawn(path, args));
}

/// Reads all a program writes through a plain pipe, and returns how long that took.
pub(crate) fn read_all(program: &str, args: &[&str], expected: u64) -> Duration {
    let begun = Instant::now();
    let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = child.stdout.take().expect("piped");
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        match output.read(&mut buffer).expect("a pipe reads") {
            0 => break,
            read => total += read as u64,
        }
    }
    assert!(child.wait().expect("it ends").success());
    assert_eq!(total, expected);
    begun.elapsed()
}
