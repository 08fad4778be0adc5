//! Writes a snapshot: a header, blocks, an end.

use std::io::{self, Write};

use prost::Message as _;

use super::checksum::Summed;
use super::{Block, Header, ITEM_BYTES_MAX, NAME, VERSION};
use tollgate_wire::proto::tollgate::snapshot::v1 as proto;
use tollgate_wire::proto::tollgate::snapshot::v1::item::Item as Kind;

/// The level of compression: zstd's fastest but one. Keys are random, so higher levels gain little.
const LEVEL: i32 = 1;

/// Writes one snapshot.
pub struct Writer<W: Write> {
    zstd: zstd::Encoder<'static, Summed<W>>,
    item: Vec<u8>,
    buckets: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// Buckets in the file.
    pub buckets: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    /// Begins a snapshot in this file.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn new(file: W, header: &Header) -> io::Result<Self> {
        let mut file = Summed::new(file);
        file.write_all(NAME)?;
        file.write_all(&VERSION.to_le_bytes())?;
        let zstd = zstd::Encoder::new(file, LEVEL)?;
        let mut writer = Self {
            zstd,
            item: Vec::new(),
            buckets: 0,
        };
        writer.write_item(Kind::Header(proto::Header {
            hash_secret: header.hash_secret.to_vec(),
            written_at_us: header.written_at.as_us(),
            partitions: header.partitions,
            overrides: header.overrides.clone(),
        }))?;
        Ok(writer)
    }

    /// Adds the buckets of a block, and gives it back.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&mut self, block: Block) -> io::Result<Block> {
        if block.is_empty() {
            return Ok(block);
        }
        self.buckets = self.buckets.saturating_add(block.len() as u64);
        match self.write_item(Kind::Block(block.columns))? {
            Kind::Block(columns) => Ok(Block { columns }),
            Kind::Header(_) | Kind::End(_) => Ok(Block::default()),
        }
    }

    /// Ends the snapshot, and returns the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        let buckets = self.buckets;
        self.write_item(Kind::End(proto::End { buckets }))?;
        let (file, bytes) = self.zstd.finish()?.finish()?;
        Ok((file, Written { buckets, bytes }))
    }

    fn write_item(&mut self, kind: Kind) -> io::Result<Kind> {
        let item = proto::Item { item: Some(kind) };
        self.item.clear();
        if item.encoded_len() > ITEM_BYTES_MAX {
            return Err(io::Error::other("a bucket has too many marks"));
        }
        item.encode_length_delimited(&mut self.item)
            .map_err(io::Error::other)?;
        self.zstd.write_all(&self.item)?;
        item.item.ok_or_else(|| io::Error::other("an empty item"))
    }
}

/// A file around any items, with a right checksum: what is below the checksum is read. For tests
/// and fuzz targets.
///
/// # Errors
///
/// When zstd fails.
#[cfg(any(test, fuzzing))]
pub fn file_of(items: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = Summed::new(Vec::new());
    file.write_all(NAME)?;
    file.write_all(&VERSION.to_le_bytes())?;
    let mut zstd = zstd::Encoder::new(file, 1)?;
    zstd.write_all(items)?;
    Ok(zstd.finish()?.finish()?.0)
}
