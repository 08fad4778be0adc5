//! HPACK (RFC 7541): decodes the header blocks of clients and encodes those of responses.
//!
//! | file | content |
//! | --- | --- |
//! | `huffman` | Huffman code of strings |
//! | `table` | static and dynamic table |
//! | `decode` | header blocks, field by field |
//! | `skip` | header blocks that are too long to be kept |
//! | `encode` | header blocks of responses |
//!
//! Why no library: clients send the same header block again and again, and it need not be decoded
//! while the dynamic table is unchanged (`head`). No library tells whether its table has changed.

mod decode;
mod encode;
mod huffman;
mod skip;
mod table;

pub(crate) use self::decode::{Decoder, Fields};
pub(crate) use self::encode::Encoder;
pub(crate) use self::skip::BlockSkipper;
