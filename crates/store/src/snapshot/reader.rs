//! Reads a snapshot. Nothing that it gives is certain before [`Reader::next_block`] has returned
//! none: the checksum is at the end.

use std::io::{self, BufReader, ErrorKind, Read};

use prost::Message as _;

use super::checksum::{CHECKSUM_BYTES, Verified};
use super::{Block, Header, ITEM_BYTES_MAX, NAME, ReadError, VERSION};
use tollgate_limiter::Timestamp;
use tollgate_wire::proto::tollgate::snapshot::v1 as proto;
use tollgate_wire::proto::tollgate::snapshot::v1::item::Item as Kind;

/// The largest window of zstd that a file may ask for: 8 MiB. The writer's has 512 KiB.
const WINDOW_LOG_MAX: u32 = 23;

/// The longest length of an item, as a varint.
const LENGTH_BYTES_MAX: u32 = 4;

const CHANGED: ReadError = ReadError::Damaged("its bytes are not those that were written");

const CUT_OFF: ReadError = ReadError::Damaged("it is cut off");

/// Reads one snapshot.
pub struct Reader<R: Read> {
    items: zstd::Decoder<'static, BufReader<Verified<R>>>,
    header: Header,
    item: Vec<u8>,
    buckets: u64,
}

// === impl Reader ===

impl<R: Read> Reader<R> {
    /// Opens a snapshot: reads its header.
    ///
    /// # Errors
    ///
    /// When it is no snapshot of this version.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut file = Verified::new(file);
        let mut name = [0; NAME.len()];
        let mut version = [0; size_of::<u32>()];
        for bytes in [name.as_mut_slice(), version.as_mut_slice()] {
            file.read_exact(bytes).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => ReadError::Foreign,
                _ => ReadError::Unreadable(error),
            })?;
        }
        if name != *NAME {
            return Err(ReadError::Foreign);
        }
        match u32::from_le_bytes(version) {
            VERSION => {}
            version => return Err(ReadError::Version(version)),
        }
        let mut items = zstd::Decoder::new(file).map_err(ReadError::Unreadable)?;
        items
            .window_log_max(WINDOW_LOG_MAX)
            .map_err(ReadError::Unreadable)?;
        let mut reader = Self {
            items: items.single_frame(),
            header: Header {
                hash_secret: [0; 16],
                written_at: Timestamp::default(),
                partitions: 0,
                overrides: Vec::new(),
            },
            item: Vec::new(),
            buckets: 0,
        };
        let Kind::Header(header) = reader.next_item()? else {
            return Err(ReadError::Damaged("it does not begin with a header"));
        };
        reader.header = Header {
            hash_secret: header
                .hash_secret
                .try_into()
                .map_err(|_| ReadError::Damaged("its hash key has not 16 bytes"))?,
            written_at: Timestamp::from_us(header.written_at_us),
            partitions: header.partitions,
            overrides: header.overrides,
        };
        Ok(reader)
    }

    /// What the snapshot says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next buckets; none at the end, once the checksum was right.
    ///
    /// # Errors
    ///
    /// When the file is damaged. There are no blocks after an error.
    pub fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        match self.next_item()? {
            Kind::Header(_) => Err(ReadError::Damaged("it has two headers")),
            Kind::Block(columns) => {
                let block = Block { columns };
                self.buckets = self.buckets.saturating_add(block.len() as u64);
                Ok(Some(block))
            }
            Kind::End(end) => {
                if end.buckets != self.buckets {
                    return Err(ReadError::Damaged("it has not the buckets that it names"));
                }
                self.end()?;
                Ok(None)
            }
        }
    }

    /// Reads to the end of the file, and compares the checksum.
    fn end(&mut self) -> Result<(), ReadError> {
        let mut more = [0; 1];
        if self.items.read(&mut more).map_err(of_zstd)? > 0 {
            return Err(ReadError::Damaged("it goes on after its end"));
        }
        let rest = self.items.get_mut();
        let mut checksum = [0; CHECKSUM_BYTES];
        rest.read_exact(&mut checksum).map_err(of_zstd)?;
        if rest.read(&mut more).map_err(of_zstd)? > 0 || !rest.get_ref().is_right() {
            return Err(CHANGED);
        }
        Ok(())
    }

    fn next_item(&mut self) -> Result<Kind, ReadError> {
        let length = self.next_length()?;
        if length > ITEM_BYTES_MAX {
            return Err(ReadError::Damaged("an item is too long"));
        }
        self.item.clear();
        // Grows with what is there, not with what the length promises.
        let limit = length as u64;
        let read = (&mut self.items).take(limit).read_to_end(&mut self.item);
        if read.map_err(of_zstd)? < length {
            return Err(CUT_OFF);
        }
        let item = proto::Item::decode(self.item.as_slice());
        let item = item.map_err(|_| ReadError::Damaged("an item cannot be decoded"))?;
        item.item
            .ok_or(ReadError::Damaged("an item is of an unknown kind"))
    }

    /// The varint before an item.
    fn next_length(&mut self) -> Result<usize, ReadError> {
        let mut length = 0_usize;
        for place in 0..LENGTH_BYTES_MAX {
            let mut byte = [0; 1];
            self.items.read_exact(&mut byte).map_err(of_zstd)?;
            let bits = usize::from(byte[0] & 0x7f);
            length |= bits.checked_shl(7 * place).unwrap_or_default();
            if byte[0] & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(ReadError::Damaged("an item is too long"))
    }
}

/// What an error of the decoder means: one of the system has a number, one of zstd has none.
fn of_zstd(error: io::Error) -> ReadError {
    if error.raw_os_error().is_some() {
        return ReadError::Unreadable(error);
    }
    match error.kind() {
        ErrorKind::UnexpectedEof => CUT_OFF,
        _ => CHANGED,
    }
}
