//! Messages that a service receives and sends as bytes: received ones are decoded when it is their
//! turn, and sent ones were encoded before a connection asks for them.
//!
//! What it deliberately does not do: bound them (tonic and the services do).

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{
    Codec, CompressionEncoding, DecodeBuf, Decoder, EnabledCompressionEncodings, EncodeBuf, Encoder,
};
use tonic::server::Grpc;

/// Messages are received as bytes, and sent as bytes.
#[derive(Debug, Default)]
pub(super) struct BytesCodec;

/// Serves methods whose messages are bytes, and whose requests may be compressed.
pub(super) fn bytes_methods(message_size_max: usize) -> Grpc<BytesCodec> {
    let mut accepted = EnabledCompressionEncodings::default();
    accepted.enable(CompressionEncoding::Gzip);
    Grpc::new(BytesCodec)
        .apply_compression_config(accepted, EnabledCompressionEncodings::default())
        .apply_max_message_size_config(Some(message_size_max), None)
}

// === impl BytesCodec ===

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
