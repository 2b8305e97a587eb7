//! The kernel a sandbox needs at least. What needs a newer one degrades as reported.

use rustix::io::Errno;
use rustix::system::uname;

use super::{Fault, Step};

/// Linux 5.14: mounts by descriptor with attributes, and process limits counted per user namespace.
const FLOOR: (u32, u32) = (5, 14);

/// Refuses an older kernel by name, rather than failing somewhere on the way.
pub(crate) fn check() -> Result<(), Fault> {
    let release = uname().release().to_string_lossy().into_owned();
    if is_new_enough(&release) { Ok(()) } else { Err(Fault::about(Step::Kernel, Errno::NOSYS, release)) }
}

/// A release that is not numbered as Linux is (`uname(2)`) shows what it can by itself.
fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= FLOOR,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn kernels_from_5_14_on_are_new_enough() {
        for release in
            ["5.14", "5.14.0-503.el9.x86_64", "5.15.0-1-amd64", "6.1.0", "6.18.44-fc-v657", "10.0-rc1"]
        {
            assert!(is_new_enough(release), "{release}");
        }
        for release in ["5.13.19", "5.4.0-200-generic", "4.18.0-513.el8", "3.10"] {
            assert!(!is_new_enough(release), "{release}");
        }
        assert!(is_new_enough("unnumbered"));
    }
}
