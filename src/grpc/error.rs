//! Why the gRPC server cannot start.

use std::io;

/// Why the gRPC server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The descriptors for reflection cannot be read: a mistake in the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The system gives no random number.
    #[error("no random number for this replica: {0}")]
    Random(getrandom::Error),
    /// Too little memory for one message.
    #[error(
        "--body-memory-max is {bytes} bytes, and the largest message needs {bytes_min}; raise it, or lower --message-size-max"
    )]
    BodyMemory {
        /// The value of the setting.
        bytes: u64,
        /// The least that it may say.
        bytes_min: u64,
    },
    /// Too little memory for one answer.
    #[error(
        "--answer-memory-max is {bytes} bytes, and the largest answer needs {bytes_min}; raise it, or lower --answer-size-max"
    )]
    AnswerMemory {
        /// The value of the setting.
        bytes: u64,
        /// The least that it may say.
        bytes_min: u64,
    },
    /// The system gives no thread, or no way to wait for sockets.
    #[error("cannot start a worker thread: {0}; set a smaller --cores")]
    Thread(#[from] io::Error),
}
