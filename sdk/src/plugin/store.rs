//! Where snapshots outlive the program: [`SnapshotStore`], and the default, one JSON file.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use async_trait::async_trait;

use super::snapshot::HostSnapshot;

/// Keeps one session's snapshot. Called on the SDK's own threads, which it may block, one call at a time.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// What was saved last; `None` if nothing was.
    async fn load(&self) -> io::Result<Option<HostSnapshot>>;

    /// Replaces what was saved. Whoever loads afterwards gets the one or the other, never a part.
    async fn save(&self, snapshot: &HostSnapshot) -> io::Result<()>;
}

/// One JSON file that only its owner can read, replaced by rename.
#[derive(Debug, Clone)]
pub struct FileStore(PathBuf);

impl FileStore {
    /// A store at `path`; its folder must exist, the file need not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is written before it is renamed, and the folder of both.
    fn draft(&self) -> io::Result<(PathBuf, &Path)> {
        let name = self.0.file_name().ok_or_else(|| io::Error::other("the state's path names no file"))?;
        let folder =
            self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(".new");
        Ok((folder.join(draft), folder))
    }
}

#[async_trait]
impl SnapshotStore for FileStore {
    async fn load(&self) -> io::Result<Option<HostSnapshot>> {
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let snapshot = serde_json::from_slice(&text).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", self.0.display()))
        })?;
        Ok(Some(snapshot))
    }

    async fn save(&self, snapshot: &HostSnapshot) -> io::Result<()> {
        let (draft, folder) = self.draft()?;
        // Left by a program that was killed. A new file follows no link that somebody has put there.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&serde_json::to_vec(snapshot)?)?;
        file.sync_all()?;
        fs::rename(&draft, &self.0)?;
        File::open(folder)?.sync_all()
    }
}
