//! A file around any items, with a right checksum: what is below the checksum is read. Tests and
//! fuzz targets compile this file.

use std::io::{self, Write as _};

use super::checksum::Summed;
use super::{NAME, VERSION};

/// A file with these items, whatever they are.
///
/// # Errors
///
/// When zstd fails.
pub fn file_of(items: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = Summed::new(Vec::new());
    file.write_all(NAME)?;
    file.write_all(&VERSION.to_le_bytes())?;
    let mut zstd = zstd::Encoder::new(file, 1)?;
    zstd.write_all(items)?;
    Ok(zstd.finish()?.finish()?.0)
}
