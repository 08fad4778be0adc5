//! Child processes of a test, which end with it.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};

use crate::polling::until;

/// A child process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command, and where to send the child.
type Start = (Command, Sender<io::Result<Child>>);

/// Starts children from a thread that lives as long as this process.
///
/// The kernel kills such a child when the thread that started it ends. A test's own thread or one
/// of tokio's may end sooner than the test.
static STARTER: LazyLock<Mutex<Sender<Start>>> = LazyLock::new(|| {
    let (sender, starts) = channel::<Start>();
    std::thread::spawn(move || {
        for (mut command, child) in starts {
            // The caller waits for it.
            let _ = child.send(command.spawn());
        }
    });
    Mutex::new(sender)
});

/// Starts a child that the kernel kills when this process ends, also if this process is killed.
pub trait SpawnTied {
    /// Takes the command, and leaves an empty one in its place.
    ///
    /// # Errors
    ///
    /// Those of [`Command::spawn`].
    fn spawn_tied(&mut self) -> io::Result<Child>;
}

impl SpawnTied for Command {
    fn spawn_tied(&mut self) -> io::Result<Child> {
        let mut command = std::mem::replace(self, Command::new(""));
        let parent = rustix::process::getpid();
        let tie = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have ended before the line above.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::Error::other("the test has ended"))
            }
        };
        // SAFETY: between fork and exec it makes two system calls; it takes no lock and does not
        // allocate, except for the error of a process that has nobody left to serve.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(tie);
        }
        let (sender, child) = channel();
        let starter = STARTER.lock().expect("no caller panicked").clone();
        starter.send((command, sender)).expect("the thread runs");
        child.recv().expect("the thread runs")
    }
}

/// Runs a command that ends by itself; returns its exit code, if it has one, and its stderr.
pub fn run_to_end(command: &mut Command) -> (Option<i32>, String) {
    let mut process = KillOnDrop(command.stderr(Stdio::piped()).spawn_tied().unwrap());
    let status = until("the command ends", || process.0.try_wait().unwrap());
    let mut said = String::new();
    let mut stderr = process.0.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (status.code(), said)
}
