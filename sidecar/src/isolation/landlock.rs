//! Landlock (`landlock(7)`), for VMs without a root of their own: which files of the host their processes may open, that
//! they use no TCP, and that they signal nobody outside.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::io::Errno;

use super::private_folder::PrivateFolder;
use super::{Fault, Step, devices, etc};

/// The newest version whose rules are used; an older kernel applies those it has.
const NEWEST: ABI = ABI::V6;

/// From this version on files are not cut short by their path.
pub(crate) const TRUNCATION: u32 = 3;

/// From this version on signals to processes outside are refused.
pub(crate) const SIGNALS: u32 = 6;

/// Folders of the host with its programs, and its process table.
const READABLE: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc"];

/// Restricts this process, and everything it starts, for good. The version that holds.
pub(crate) fn restrict(folder: &PrivateFolder) -> Result<u32, Fault> {
    let ruleset = ruleset(folder).map_err(|error| refused(&error))?;
    let status = ruleset.restrict_self().map_err(|error| refused(&error))?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => Err(Fault::new(Step::Landlock, Errno::OPNOTSUPP)),
        LandlockStatus::NotImplemented => Err(Fault::new(Step::Landlock, Errno::NOSYS)),
    }
}

fn refused(error: &RulesetError) -> Fault {
    Fault::about(Step::Landlock, Errno::INVAL, error.to_string())
}

fn ruleset(folder: &PrivateFolder) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read = AccessFs::from_read(NEWEST);
    let file = AccessFs::from_file(NEWEST);
    let etc = etc::allowed_of_host().into_iter().map(|path| (path, read));
    let devices = devices::NODES.map(|name| (format!("/dev/{name}"), file));
    let readable = READABLE.map(|path| (path.to_owned(), read));
    let own = (folder.path().to_owned(), AccessFs::from_all(NEWEST));
    for (path, access) in readable.into_iter().chain(etc).chain(devices).chain([own]) {
        ruleset = allow(ruleset, &path, access)?;
    }
    Ok(ruleset)
}

/// What is not there needs no rule.
fn allow(
    ruleset: RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(place) = PathFd::new(path) else { return Ok(ruleset) };
    let access =
        if std::path::Path::new(path).is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    ruleset.add_rule(PathBeneath::new(place, access))
}
