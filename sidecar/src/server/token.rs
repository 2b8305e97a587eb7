//! The secret a client of a listener must know.

use std::{fmt, fs, io, os::unix::fs::MetadataExt as _, path::Path};

use subtle::ConstantTimeEq as _;

/// A token, from a file. Compared in constant time, never shown.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Why a token file is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file: {0}")]
    Read(#[from] io::Error),
    /// Group or others may read or write it.
    #[error("the token file has mode {mode:04o}: nobody but its owner may read or write it (chmod 600)")]
    Exposed {
        /// Its permissions.
        mode: u32,
    },
    /// Too little to be a secret.
    #[error("the token has {length} bytes, the least is {}", Token::MIN_BYTES)]
    Short {
        /// How long it is.
        length: usize,
    },
}

impl Token {
    /// What a token has at least: 16 bytes.
    pub const MIN_BYTES: usize = 16;

    /// Reads a token; white space around it does not count.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let mode = fs::metadata(path)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed { mode });
        }
        let token = fs::read(path)?.trim_ascii().to_vec();
        if token.len() < Self::MIN_BYTES {
            return Err(TokenError::Short { length: token.len() });
        }
        Ok(Self(token))
    }

    pub(crate) fn is(&self, offered: Option<&str>) -> bool {
        offered.is_some_and(|offered| self.0.ct_eq(offered.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
