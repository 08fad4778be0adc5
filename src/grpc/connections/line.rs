//! Who goes on next of those connections that always have more to do.
//!
//! Why: turns are short, but where many connections always have another, whoever asks now and then waits for one of each. How:
//! a connection that went on for several turns stands in a line, first come first served, and only a few of those in the
//! line have a turn before sockets and timers are looked at again. Whoever has little to do goes past the line.
//!
//! What it deliberately does not do: look at what is done in a turn, or bound how many stand in line (the port does).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// After how many turns in a row a connection stands in line.
const TURNS_IN_A_ROW_MAX: u32 = 2;

/// How many of them are remembered. Each time that there is no more to do half are forgotten, so that whoever comes with a
/// crowd every few milliseconds does not begin anew each time.
const TURNS_KNOWN_MAX: u32 = 8;

/// The line of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<Semaphore>);

/// One connection's place.
pub(crate) struct Place {
    line: Line,
    turns: u32,
    waits: Option<Pin<Box<dyn Future<Output = Acquired> + Send>>>,
    /// Given back when the others have been looked at.
    goes: Option<OwnedSemaphorePermit>,
}

type Acquired = Result<OwnedSemaphorePermit, AcquireError>;

// === impl Line ===

impl Line {
    /// So many go on at the same time.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// A place for one connection.
    pub(crate) fn place(&self) -> Place {
        Place {
            line: self.clone(),
            turns: 0,
            waits: None,
            goes: None,
        }
    }
}

// === impl Place ===

impl Place {
    /// Waits until it is the connection's turn, which begins.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The others were looked at since.
        self.goes = None;
        if self.waits.is_none() && self.turns < TURNS_IN_A_ROW_MAX {
            return Poll::Ready(());
        }
        let line = &self.line.0;
        let waits = self
            .waits
            .get_or_insert_with(|| Box::pin(Arc::clone(line).acquire_owned()));
        // It is never closed.
        self.goes = ready!(waits.as_mut().poll(cx)).ok();
        self.waits = None;
        Poll::Ready(())
    }

    /// The turn is over, and there is more to do. The caller comes again when the others were looked at.
    pub(crate) fn goes_on(&mut self) {
        self.turns = self.turns.saturating_add(1).min(TURNS_KNOWN_MAX);
    }

    /// The turn is over, and there is nothing more to do.
    pub(crate) fn rests(&mut self) {
        self.turns /= 2;
        self.goes = None;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn has_a_turn(place: &mut Place) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        place.poll_turn(&mut cx).is_ready()
    }

    /// Goes on until it stands in line, and has its turn there.
    fn busy(line: &Line) -> Place {
        let mut place = line.place();
        for _ in 0..5 {
            assert!(has_a_turn(&mut place));
            place.goes_on();
        }
        place
    }

    #[test]
    fn those_who_always_go_on_have_turns_one_after_the_other() {
        let line = Line::new(1);
        let mut first = busy(&line);
        let mut second = line.place();
        for _ in 0..TURNS_IN_A_ROW_MAX {
            assert!(has_a_turn(&mut second));
            second.goes_on();
        }
        for _ in 0..10 {
            // The first has its turn until it comes again.
            assert!(!has_a_turn(&mut second));
            assert!(!has_a_turn(&mut first));
            assert!(has_a_turn(&mut second));
            second.goes_on();
            assert!(!has_a_turn(&mut second));
            assert!(has_a_turn(&mut first));
            first.goes_on();
        }
    }

    #[test]
    fn whoever_has_little_to_do_goes_past_the_line() {
        let line = Line::new(1);
        let _first = busy(&line);
        let mut other = line.place();
        for _ in 0..10 {
            assert!(has_a_turn(&mut other));
            other.goes_on();
            assert!(has_a_turn(&mut other));
            other.rests();
        }
    }

    #[test]
    fn a_crowd_is_remembered_for_a_while_and_whoever_leaves_takes_no_turn_along() {
        let line = Line::new(1);
        let first = busy(&line);
        let mut second = line.place();
        for _ in 0..TURNS_KNOWN_MAX {
            second.goes_on();
        }
        for _ in 0..2 {
            second.rests();
            assert!(!has_a_turn(&mut second));
        }
        drop(first);
        assert!(has_a_turn(&mut second));
        second.rests();
        drop(busy(&line));
        assert!(has_a_turn(&mut second));
    }
}
