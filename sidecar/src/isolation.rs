//! What holds a VM in: each file here is one concern, used by the zygote (what can be prepared once) and by init
//! (what is built anew for each VM).
//!
//! ```text
//!  zygote, once                      init, for each VM                            every guest process
//!  ------------                      -----------------                            -------------------
//!  base: read-only /usr, /dev,  ──►  root_filesystem: tmpfs, binds, pivot_root
//!        folders of /etc             etc: generated files
//!  seccomp: compiled programs        procfs: /proc, sysctls, masks
//!                                    network: loopback
//!                                    capabilities, seccomp: locked in        ──►  rlimits, identity, capabilities
//!                                    report: read back from inside
//! ```
//!
//! A VM without namespaces has less: `private_folder` and `landlock` stand for its root, `seccomp` refuses more, and
//! `rlimits` are the same.
//!
//! Every step can fail; a failure is a [`Fault`]: the step, the errno and the path it was about.

pub(crate) mod base;
pub(crate) mod capabilities;
pub(crate) mod cgroup;
pub(crate) mod devices;
pub(crate) mod etc;
pub(crate) mod fault;
pub(crate) mod identity;
pub(crate) mod kernel;
pub(crate) mod landlock;
pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod niceness;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod private_folder;
pub(crate) mod procfs;
pub(crate) mod report;
pub(crate) mod rlimits;
pub(crate) mod root_filesystem;
pub(crate) mod seccomp;
pub(crate) mod uid_ranges;

pub use fault::Step;
pub(crate) use fault::{At, Fault};
