//! Threads that decide for tests and benches without a server.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{self, LocalOptions};

use crate::ended::RequestError;
use crate::pipeline::Pipeline;
use crate::pipeline::batcher::Batcher;
use crate::pipeline::encode::EncodedResponse;
use crate::pipeline::encode::Responder;
use crate::pipeline::threads::{LocalBatcher, set_local};

impl Pipeline {
    /// Starts one thread that decides, for tests and benches without a server. It runs until the
    /// process ends.
    ///
    /// # Errors
    ///
    /// When the system cannot start a thread.
    #[doc(hidden)]
    pub fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let pipeline = Arc::clone(self);
        let submissions = pipeline.add_thread();
        let run = move || {
            let mut runtime = runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
            runtime.block_on(async move {
                let batcher = Rc::new(Batcher::<NoStream>::new(&pipeline));
                batcher.serve(submissions).await;
            });
            Ok::<_, io::Error>(())
        };
        std::thread::Builder::new().spawn(run)?;
        Ok(())
    }
}

/// The batcher of this thread, for tests that choose the order of everything: whatever tasks of
/// this thread submit is decided when the future is polled.
#[doc(hidden)]
pub fn local_thread(pipeline: &Arc<Pipeline>) -> impl Future<Output = Infallible> + use<> {
    let batcher = Rc::new(Batcher::<NoStream>::new(pipeline));
    let local: Rc<dyn LocalBatcher> = batcher.clone();
    set_local(&local);
    batcher.run()
}

/// The responder of a batcher that only tasks use.
pub(crate) enum NoStream {}

impl Responder for NoStream {
    fn respond(self, _: Result<EncodedResponse<'_>, RequestError>) {
        match self {}
    }

    fn release(self) {
        match self {}
    }

    fn is_cancelled(&self) -> bool {
        match *self {}
    }
}
