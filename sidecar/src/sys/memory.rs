//! Memory of the allocator.

/// Gives back to the kernel what is free. Every page a process has is one that its copies get, too.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain numbers; the allocator's own lock makes it safe at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Reads memory of another process (`process_vm_readv(2)`): as much as there is from `address` on.
pub(crate) fn read_other(
    pid: rustix::process::Pid,
    address: u64,
    buffer: &mut [u8],
) -> rustix::io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to the buffer; the remote address is only a number here.
    let read = super::check(unsafe {
        libc::process_vm_readv(pid.as_raw_nonzero().get(), &raw const local, 1, &raw const remote, 1, 0)
            as libc::c_long
    })?;
    Ok(usize::try_from(read).unwrap_or(0))
}
