//! `Batch`: the calls of one message, carried out one after the other.
//!
//! A batch waits as its bytes, and each call is decoded when it is its turn. Answers are encoded
//! one by one, up to the bound on an answer; a call whose answer would be larger fails, and is not
//! carried out. Now and then the other tasks of the thread run.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tonic::codegen::BoxFuture;
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};

use super::carry_out::{ApiCalls, CallSize};
use crate::grpc::services::api_call::invalid_field;
use crate::pipeline::{API_CALLS_MAX, give_way};
use crate::proto::tollgate::v1 as proto;
use tollgate_wire::fields::{Fields, Value};

/// Other tasks run after so many bytes of calls were read.
const READ_BYTES_PER_TURN: usize = 16 << 10;

/// The number of the field `calls`.
const CALLS: u64 = 1;

/// The calls of a batch that are not carried out yet.
struct WaitingCalls {
    message: Bytes,
    read_bytes: usize,
}

pub(super) fn malformed(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

// === impl WaitingCalls ===

impl WaitingCalls {
    /// The calls of a message, and what their answers can need in all. Each call is decoded once to
    /// know that.
    async fn read(message: Bytes) -> Result<(Self, CallSize), Status> {
        let waiting = Self {
            message,
            read_bytes: 0,
        };
        if let Some(size) = waiting.size().await? {
            return Ok((waiting, size));
        }
        // Messages with groups. prost leaves them out.
        let message = proto::BatchRequest::decode(waiting.message).map_err(malformed)?;
        let waiting = Self {
            message: message.encode_to_vec().into(),
            read_bytes: 0,
        };
        let size = waiting.size().await?;
        let size = size.ok_or_else(|| malformed("the batch cannot be decoded"))?;
        Ok((waiting, size))
    }

    /// None if the message is malformed, or unusual.
    async fn size(&self) -> Result<Option<CallSize>, Status> {
        let mut size = CallSize::default();
        let mut turn_bytes = 0_usize;
        let mut fields = Fields(&self.message);
        loop {
            let Some(field) = fields.next() else {
                return Ok(None);
            };
            match field {
                None => break,
                Some((CALLS, Value::Bytes(call))) => {
                    turn_bytes = turn_bytes.saturating_add(call.len());
                    if turn_bytes > READ_BYTES_PER_TURN {
                        turn_bytes = 0;
                        give_way().await;
                    }
                    let call = proto::Call::decode(call).map_err(malformed)?;
                    size.add(call.call.as_ref());
                }
                Some((CALLS, _)) => return Ok(None),
                Some(_) => {}
            }
        }
        let count = size.calls;
        if count > API_CALLS_MAX {
            let why = format!("has {count} calls; send at most {API_CALLS_MAX}");
            return Err(invalid_field("calls", &why));
        }
        // They wait as their bytes.
        size.request_bytes = self.message.len() as u64;
        Ok(Some(size))
    }

    /// The next call. It was decoded before.
    fn next(&mut self) -> Option<proto::Call> {
        let rest = self.message.get(self.read_bytes..)?;
        let mut fields = Fields(rest);
        let call = loop {
            if let (CALLS, Value::Bytes(call)) = fields.next()?? {
                break proto::Call::decode(call).ok()?;
            }
        };
        self.read_bytes = self.message.len().saturating_sub(fields.0.len());
        Some(call)
    }
}

// === impl ApiCalls ===

impl ApiCalls {
    /// Carries out a batch.
    pub(super) async fn batch(self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let (caller, connection) = (self.caller(&request), self.connection(&request));
        let (mut calls, size) = WaitingCalls::read(request.into_inner()).await?;
        let mut permit = self.reserve(&connection, caller, size).await?;
        let mut progress = self.begin_batch(size.calls)?;
        // Space that is not used is not resident. Growing would hold it twice.
        let mut encoded = Vec::with_capacity(permit.bytes());
        while let Some(call) = calls.next() {
            let left = progress.next_bytes_max(encoded.len());
            let answer = self.tagged(call, caller, left).await;
            let answers = vec![answer];
            // A vector grows as needed.
            let _ = proto::BatchResponse { answers }.encode(&mut encoded);
            progress.give_way(encoded.len()).await;
        }
        encoded.shrink_to_fit();
        permit.resize(encoded.len() as u64);
        let mut response = Response::new(encoded.into());
        response.extensions_mut().insert(Arc::new(permit));
        Ok(response)
    }
}

impl UnaryService<Bytes> for ApiCalls {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(self.clone().batch(request))
    }
}
