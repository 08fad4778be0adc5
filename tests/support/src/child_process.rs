//! Child processes of a test.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use crate::polling::{PATIENCE, wait_for};

/// A child process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command; returns its exit code, if it ended in time, and its stderr.
pub fn run_to_end(command: &mut Command) -> (Option<i32>, String) {
    let mut process = KillOnDrop(command.stderr(Stdio::piped()).spawn().unwrap());
    let status = wait_for(PATIENCE, || process.0.try_wait().unwrap());
    let _ = process.0.kill(); // or stderr would never end
    let mut said = String::new();
    let mut stderr = process.0.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (status.and_then(|status| status.code()), said)
}
