//! Memory of the allocator.

/// Gives back to the kernel what is free. Every page a process has is one that its copies get, too.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain numbers; the allocator's own lock makes it safe at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
