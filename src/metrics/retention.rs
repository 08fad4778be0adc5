//! How long the label set of a limit that is no longer in use is kept: until every reader has read
//! its last counts.
//!
//! Why readings and not seconds: a counter that is freed before it was read loses its last hits,
//! and the interval of a reader is unknown. Why two: with two servers that scrape in turn, or a
//! scrape whose response is lost, one reading is not enough. `rule_sets` and `request_sets` bound
//! how many label sets are kept.

/// How many times each reader reads a label set that is no longer in use before it is freed.
const READINGS: u8 = 2;

/// What reads the counters of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reader {
    /// `/metrics`: a reading is a response.
    Scrape,
    /// statsd: a reading is a flush that sent all there was.
    Flush,
}

/// The readers seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readers {
    scrapes: bool,
    flushes: bool,
}

/// How often a label set was read since it was last in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retention {
    scrapes: u8,
    flushes: u8,
}

// === impl Readers ===

impl Readers {
    pub(super) fn add(&mut self, reader: Reader) {
        match reader {
            Reader::Scrape => self.scrapes = true,
            Reader::Flush => self.flushes = true,
        }
    }
}

// === impl Retention ===

impl Retention {
    /// Counts a reading.
    pub(super) fn count(&mut self, reader: Reader) {
        let readings = match reader {
            Reader::Scrape => &mut self.scrapes,
            Reader::Flush => &mut self.flushes,
        };
        *readings = readings.saturating_add(1);
    }

    /// Whether every reader has read it often enough.
    pub(super) fn is_over(self, readers: Readers) -> bool {
        (readers.scrapes || readers.flushes)
            && (!readers.scrapes || self.scrapes >= READINGS)
            && (!readers.flushes || self.flushes >= READINGS)
    }
}
