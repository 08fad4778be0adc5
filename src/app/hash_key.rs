//! Hash keys from files, and how values are shown.

use std::path::Path;

use super::error::AppError;
use crate::regular_file;
use crate::settings::TopKeysSettings;
use crate::value_hash::ShownValues;

/// The shortest hash key, in bytes.
const HASH_KEY_BYTES_MIN: usize = 16;

/// The longest hash key with the white space at its end, in bytes.
const HASH_KEY_BYTES_MAX: u64 = 1 << 20;

/// Reads the hash key in the file that `flag` names, without white space at its end.
pub(super) fn read_hash_key(file: &Path, flag: &str) -> Result<Vec<u8>, AppError> {
    let path = file.display();
    let mut key = regular_file::read(file, HASH_KEY_BYTES_MAX + 1)
        .map_err(|error| AppError::Setting(format!("{path}: {error}; {flag} names this file")))?;
    if key.len() as u64 > HASH_KEY_BYTES_MAX {
        return Err(AppError::Setting(format!(
            "{path}: a key has at most {HASH_KEY_BYTES_MAX} bytes; {flag} names this file"
        )));
    }
    key.truncate(key.trim_ascii_end().len());
    if key.len() < HASH_KEY_BYTES_MIN {
        return Err(AppError::Setting(format!(
            "{path}: a key of {} bytes is too short; {flag} needs at least {HASH_KEY_BYTES_MIN}",
            key.len()
        )));
    }
    Ok(key)
}

/// How values are shown, as the settings say.
pub(super) fn shown_values(settings: &TopKeysSettings) -> Result<ShownValues, AppError> {
    let mode = settings.mode;
    match &settings.value_hash_key_file {
        None => ShownValues::random(mode).map_err(AppError::Randomness),
        Some(file) => {
            let key = read_hash_key(file, "--value-hash-key-file")?;
            Ok(ShownValues::derived_from(mode, &key))
        }
    }
}
