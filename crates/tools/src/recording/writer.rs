//! Writes a recording in compressed blocks.
//!
//! zstd at its default level: about a tenth of the bytes for some hundred megabytes a second. Each
//! block is a frame of its own, so that a file that ends early has lost its last block at most.

use std::io::{self, Write};

use prost::Message as _;

use crate::proto::tollgate::recording::v1::Item;

/// The level of compression: zstd's default.
const LEVEL: i32 = 3;

/// How many bytes of items make a block.
const BLOCK_BYTES: usize = 1 << 20;

/// Writes items to a file.
pub struct Writer<W> {
    file: W,
    block: Vec<u8>,
    bytes: u64,
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    /// Writes to this file.
    pub fn new(file: W) -> Self {
        Self {
            file,
            block: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an item.
    ///
    /// # Errors
    ///
    /// When the file cannot be written. What is in it stays readable.
    pub fn write(&mut self, item: &Item) -> io::Result<()> {
        self.write_encoded(&item.encode_length_delimited_to_vec())
    }

    /// Adds items that are encoded, each after its length.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn write_encoded(&mut self, items: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(items);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes what was added so far, as a block.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = zstd::bulk::compress(&self.block, LEVEL)?;
        self.block.clear();
        self.file.write_all(&block)?;
        self.file.flush()?;
        self.bytes = self.bytes.saturating_add(block.len() as u64);
        Ok(())
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the last block, and returns the file.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn finish(mut self) -> io::Result<W> {
        self.end_block()?;
        Ok(self.file)
    }
}
