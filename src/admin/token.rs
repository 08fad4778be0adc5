//! Bearer token of the admin port.
//!
//! How: the token file is read for each request, which are few, so that a replaced token takes
//! effect at once. If it cannot be read, or holds no token, the last one stays in use. Tokens are
//! compared in constant time.
//!
//! What it deliberately does not do: users and roles. Client certificates are checked by TLS
//! (`tls`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq as _;

/// Shortest token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// Bytes of the file that are read.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// Token that requests must carry.
#[derive(Clone, Debug)]
pub struct AdminToken(Arc<TokenFile>);

struct TokenFile {
    path: PathBuf,
    last: Mutex<LastRead>,
}

/// Result of reading the file.
struct LastRead {
    /// The last good token.
    token: Vec<u8>,
    /// The last read failed, and that was logged.
    failed: bool,
}

// === impl AdminToken ===

impl AdminToken {
    /// Reads the token of a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or holds no token.
    pub fn read(path: &Path) -> io::Result<Self> {
        let token = read(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(Arc::new(TokenFile {
            path: path.to_owned(),
            last: Mutex::new(LastRead {
                token,
                failed: false,
            }),
        })))
    }

    /// The current token.
    async fn current(&self) -> Vec<u8> {
        let file = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || {
            let mut last = file.last.lock().unwrap_or_else(PoisonError::into_inner);
            match read(&file.path) {
                Ok(token) => {
                    last.token = token;
                    if std::mem::take(&mut last.failed) {
                        // At the level of the failure.
                        tracing::warn!(path = %file.path.display(), "the admin token was read again");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut last.failed, true) {
                        tracing::warn!(path = %file.path.display(), %error, "cannot read the admin token; the last one stays in use");
                    }
                }
            }
            last.token.clone()
        });
        // An empty token matches no request.
        read.await.unwrap_or_default()
    }

    /// Whether the headers carry the token.
    pub(super) async fn matches(&self, headers: &HeaderMap) -> bool {
        let given = headers
            .get(header::AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        let split = given.and_then(|given| given.split_at_checked(b"Bearer ".len()));
        let Some((scheme, given)) = split else {
            return false;
        };
        let token = self.current().await;
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && token.len() >= TOKEN_BYTES_MIN
            && bool::from(given.ct_eq(&token))
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Reads a token, without surrounding white space.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    crate::regular_file::open(path)?
        .take(TOKEN_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    let token = bytes.trim_ascii();
    if token.len() < TOKEN_BYTES_MIN {
        let words = format!("the file holds no token of at least {TOKEN_BYTES_MIN} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(token.to_vec())
}
