//! Resource limits (`getrlimit(2)`): those of the whole VM, set once in init and inherited, and those of each guest
//! process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::plan::GuestLimits;
use super::{At as _, Fault, Step};
use crate::sys::signals;

/// Limits of init and everything it starts.
const EVERYWHERE: [(Resource, u64); 5] = [
    (Resource::Rtprio, 0),
    (Resource::Nice, 0),
    (Resource::Memlock, 64 << 10),
    (Resource::Msgqueue, 800 << 10),
    (Resource::Sigpending, 1024),
];

/// Makes this process, the sidecar, fit to live with the limits it was started under.
///
/// It may open as many files as the hard limit lets it: each VM and each live process takes some, and the usual soft
/// limit of 1024 is for programs that call `select(2)`. And a write beyond the file size limit is an error, not a death.
pub(crate) fn adapt_sidecar() {
    signals::ignore(libc::SIGXFSZ);
    raise_open_files();
}

/// As far as the hard limit lets it.
pub(crate) fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused only where it could not be had: the limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// `RLIMIT_CORE` where no core is wanted: not 0, because only 1 keeps a core handler behind a pipe (`core(5)`) from being
/// run by a crash.
const NO_CORE: u64 = 1;

/// Whether the host hands cores to a program of its own.
pub(crate) fn cores_are_piped() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/core_pattern").is_ok_and(|pattern| pattern.starts_with('|'))
}

/// Sets the limits of the whole VM. A hard limit that is already lower stays.
pub(crate) fn limit_vm(limits: &GuestLimits) -> Result<(), Fault> {
    let core = limits.core.unwrap_or(NO_CORE);
    lower(Resource::Core, core).at_path(Step::Rlimits, "Core")?;
    for (resource, value) in EVERYWHERE {
        lower(resource, value).at_path(Step::Rlimits, format!("{resource:?}"))?;
    }
    Ok(())
}

/// Sets the limits of a guest process: only there, so that init can still start a helper when the guest is at them.
pub(crate) fn limit_guest(limits: &GuestLimits) -> rustix::io::Result<()> {
    lower(Resource::Nofile, limits.open_files)?;
    limits.file_size.map_or(Ok(()), |bytes| lower(Resource::Fsize, bytes))?;
    limits.pids.map_or(Ok(()), |pids| lower(Resource::Nproc, pids))
}

/// Holds this process, and each descendant for itself, to so many bytes of data: all there is without a memory group.
pub(crate) fn limit_data(bytes: u64) -> rustix::io::Result<()> {
    lower(Resource::Data, bytes)
}

/// What a guest process really gets of a limit that was asked for.
pub(crate) fn clamp(resource: Resource, requested: u64) -> u64 {
    getrlimit(resource).maximum.map_or(requested, |hard| requested.min(hard))
}

fn lower(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let value = clamp(resource, value);
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_raised_to_the_hard_limit() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let Some(hard) = maximum else { return };
        // One less harms no test beside this one.
        setrlimit(Resource::Nofile, Rlimit { current: Some(hard - 1), maximum }).unwrap();
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
