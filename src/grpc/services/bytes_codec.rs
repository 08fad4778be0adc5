//! Messages that a service receives and sends as bytes: received ones are decoded when it is their
//! turn, and sent ones were encoded before a connection asks for them.
//!
//! What it deliberately does not do: bound them (tonic and the services do).

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Messages are received as bytes, and sent as bytes.
#[derive(Debug, Default)]
pub(super) struct BytesCodec;

/// Copies an encoded message.
#[derive(Debug)]
pub(super) struct EncodedMessages;

/// Takes the bytes of a message.
#[derive(Debug)]
pub(super) struct WaitingMessages;

// === impl BytesCodec ===

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = EncodedMessages;
    type Decoder = WaitingMessages;

    fn encoder(&mut self) -> EncodedMessages {
        EncodedMessages
    }

    fn decoder(&mut self) -> WaitingMessages {
        WaitingMessages
    }
}

// === impl EncodedMessages ===

impl Encoder for EncodedMessages {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(message);
        Ok(())
    }
}

// === impl WaitingMessages ===

impl Decoder for WaitingMessages {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
