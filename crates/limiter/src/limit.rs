//! A limit: how many requests, in how long, and how many at once.
//!
//! Why a constructor builds it: the algorithms never divide by zero, and their products always fit.
//! How: requests are at most [`Limit::REQUESTS_MAX`], and a window is a whole number of
//! microseconds, at most [`Timestamp::MAX_US`]. A rate is requests over window in lowest terms, so
//! that 7 a second and 3 billion a microsecond are both exact and a script's products stay small.
//!
//! Options that only some algorithms use (burst, segments, calendar, refused hits) are here as
//! well. So a check carries one value, and a reload cannot change half of it.
//!
//! What it deliberately does not do: count, know which algorithm will use it, know when a month
//! begins (a [`Calendar`] does).

use std::fmt::{self, Write as _};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};

use super::time::{Calendar, Span, Timestamp, Unit};

/// The length of a limit's window in microseconds: at least 1, at most [`Timestamp::MAX_US`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Window(u64);

/// Hits per microsecond as a fraction in lowest terms.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rate {
    /// Hits that come in `per_us` microseconds. 0 for a limit of 0.
    pub hits: u64,
    /// Microseconds in which they come; never 0.
    pub per_us: u64,
    /// The greatest common divisor that reduced the fraction: requests = `hits` × `divisor`, and
    /// window = `per_us` × `divisor`. A part of a hit in a register is counted in 1/window, which
    /// keeps its meaning after a reload changed the number of requests.
    pub divisor: u64,
}

/// Which limits count refused hits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CountRefused {
    /// None: only hits that passed are counted.
    None,
    /// The limit that refused.
    Blocking,
    /// Every limit that was asked, whichever refused. A bucket's debt is at most one burst.
    All,
    /// Every limit that was asked, in full: hits are the price of work that is done.
    InFull,
}

/// How many requests a window allows, and how many can come at once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limit {
    /// It holds the requests and the window as well: a limit is copied with every check.
    rate: Rate,
    burst: u64,
    /// None for a limit of requests in flight.
    unit: Option<Unit>,
    unit_multiplier: NonZeroU32,
    /// The number of steps in which a window slides; none when it slides continuously.
    segments: Option<NonZeroU16>,
    /// None: the algorithm's default.
    count_refused: Option<CountRefused>,
    /// None: windows have one length, counted from 1970.
    calendar: Option<&'static dyn Calendar>,
    /// None: a refusal has no consequences.
    penalty: Option<Penalty>,
}

/// Why a limit cannot be built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LimitError {
    /// A burst of 0 would refuse everything. A limit of 0 expresses that more plainly.
    ZeroBurst,
    /// A burst with 0 requests per unit would never refill.
    BurstWithoutRate,
    /// More requests, or a larger burst, than [`Limit::REQUESTS_MAX`].
    TooManyRequests,
    /// A window that ends after the last timestamp, in the year 2255.
    WindowTooLong,
}

// === impl Window ===

impl Window {
    /// `multiplier` units, saturating.
    #[inline]
    pub const fn new(unit: Unit, multiplier: NonZeroU32) -> Self {
        let seconds = unit.seconds().saturating_mul(multiplier.get() as u64);
        Self(Timestamp::from_seconds(seconds).as_us())
    }

    /// Length in microseconds; never 0.
    #[inline]
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// The start of the aligned window that contains `now`. Windows are counted from 1970.
    #[inline]
    pub const fn start_of(self, now: Timestamp) -> Timestamp {
        now.minus_us(self.elapsed_us(now))
    }

    /// The time elapsed in the aligned window that contains `now`: less than its length.
    #[inline]
    pub const fn elapsed_us(self, now: Timestamp) -> u64 {
        now.as_us() % self.0
    }
}

// === impl Rate ===

impl Rate {
    fn new(hits: u64, window: Window) -> Self {
        Self::reduced(hits, window, greatest_common_divisor(hits, window.as_us()))
    }

    /// The rate, given the divisor of both numbers.
    #[inline]
    fn reduced(hits: u64, window: Window, divisor: u64) -> Self {
        let part = |whole: u64| whole.checked_div(divisor).unwrap_or(whole);
        Self {
            hits: part(hits),
            per_us: part(window.as_us()),
            divisor,
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

// === impl Limit ===

impl Limit {
    /// The most requests and the largest burst: what a double holds exactly, so that a script can
    /// count them.
    pub const REQUESTS_MAX: u64 = Timestamp::MAX_US;

    /// `requests_per_unit` requests in `unit_multiplier` units, of which `burst` can come at once
    /// (default: `requests_per_unit`).
    ///
    /// # Errors
    ///
    /// A burst of 0, a burst with 0 requests, a number that is too large, or a window that is too
    /// long.
    pub fn new(
        requests_per_unit: u64,
        unit: Unit,
        unit_multiplier: NonZeroU32,
        burst: Option<u64>,
    ) -> Result<Self, LimitError> {
        match burst {
            Some(0) => return Err(LimitError::ZeroBurst),
            Some(_) if requests_per_unit == 0 => return Err(LimitError::BurstWithoutRate),
            _ => {}
        }
        let burst = burst.unwrap_or(requests_per_unit);
        if requests_per_unit.max(burst) > Self::REQUESTS_MAX {
            return Err(LimitError::TooManyRequests);
        }
        let seconds = unit.seconds().checked_mul(u64::from(unit_multiplier.get()));
        let us = seconds.and_then(|seconds| seconds.checked_mul(1_000_000));
        if us.is_none_or(|us| us > Timestamp::MAX_US) {
            return Err(LimitError::WindowTooLong);
        }
        let limit = Self::per(requests_per_unit, unit, unit_multiplier);
        Ok(Self { burst, ..limit })
    }

    /// At most `requests` in flight, each for at most `slot_seconds`. The window is the time until
    /// a slot expires that is not freed. It saturates at the largest window.
    #[inline]
    pub fn in_flight(requests: u64, slot_seconds: NonZeroU32) -> Self {
        Self {
            unit: None,
            ..Self::per(requests, Unit::Second, slot_seconds)
        }
    }

    /// The same limit, with a window that slides in this many steps.
    #[must_use]
    #[inline]
    pub const fn with_segments(self, segments: NonZeroU16) -> Self {
        Self {
            segments: Some(segments),
            ..self
        }
    }

    /// The same limit, with another rule for refused hits.
    #[must_use]
    #[inline]
    pub const fn with_count_refused(self, count_refused: CountRefused) -> Self {
        Self {
            count_refused: Some(count_refused),
            ..self
        }
    }

    /// The same limit, with a penalty for callers that it refuses often.
    #[must_use]
    #[inline]
    pub const fn with_penalty(self, penalty: Penalty) -> Self {
        Self {
            penalty: Some(penalty),
            ..self
        }
    }

    /// The same limit in windows of this calendar. [`Limit::window`] is then an upper bound.
    #[must_use]
    #[inline]
    pub fn with_calendar(self, calendar: &'static dyn Calendar) -> Self {
        let window = Window(calendar.window_max_us().clamp(1, Timestamp::MAX_US));
        Self {
            rate: Rate::new(self.requests(), window),
            calendar: Some(calendar),
            ..self
        }
    }

    /// `requests_per_unit` requests in `unit_multiplier` units, all of which can come at once. Both
    /// numbers saturate.
    #[inline]
    pub fn per(requests_per_unit: u64, unit: Unit, unit_multiplier: NonZeroU32) -> Self {
        let requests = requests_per_unit.min(Self::REQUESTS_MAX);
        Self {
            rate: Rate::new(requests, Window::new(unit, unit_multiplier)),
            burst: requests,
            unit: Some(unit),
            unit_multiplier,
            segments: None,
            count_refused: None,
            calendar: None,
            penalty: None,
        }
    }

    /// One of this many equal parts of the limit, rounded down, but at least 1 where the limit is
    /// not 0.
    #[must_use]
    #[inline]
    pub fn divided_by(self, parts: u32) -> Self {
        let part = |whole: u64| match whole.checked_div(parts.max(1).into()) {
            Some(0) | None => whole.min(1),
            Some(part) => part,
        };
        self.with_requests(part(self.requests()), part(self.burst))
    }

    /// The same limit with another number of requests and another burst, in the same window. Both
    /// numbers saturate.
    #[must_use]
    #[inline]
    pub fn with_requests(self, requests: u64, burst: u64) -> Self {
        let requests = requests.min(Self::REQUESTS_MAX);
        Self {
            rate: Rate::new(requests, self.window()),
            burst: burst.min(Self::REQUESTS_MAX),
            ..self
        }
    }

    /// The same limit with the numbers of another one of the same window: its requests, its burst
    /// and the divisor of its rate (0 for a limit of 0), so that no greatest common divisor is
    /// computed.
    #[inline]
    pub(super) fn with_numbers(self, requests: u64, burst: u64, divisor: u64) -> Self {
        let window = self.window();
        let divisor = if divisor == 0 {
            window.as_us()
        } else {
            divisor
        };
        Self {
            rate: Rate::reduced(requests, window, divisor),
            burst,
            ..self
        }
    }

    /// Whether both have the same unit and as many of it. A limit of requests in flight has no
    /// window.
    pub(super) fn has_window_of(&self, other: &Self) -> bool {
        self.unit == other.unit && self.unit_multiplier == other.unit_multiplier
    }

    /// The unit, as configured or sent; none for a limit of requests in flight.
    #[inline]
    pub const fn unit(&self) -> Option<Unit> {
        self.unit
    }

    /// The number of units in the window.
    #[inline]
    pub const fn unit_multiplier(&self) -> NonZeroU32 {
        self.unit_multiplier
    }

    /// Requests per window, as configured or sent.
    #[inline]
    pub const fn requests(&self) -> u64 {
        // It was divided by the divisor, so the product fits.
        self.rate.hits.wrapping_mul(self.rate.divisor)
    }

    /// How many hits can come at once.
    #[inline]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The window; an upper bound where it follows a calendar.
    #[inline]
    pub const fn window(&self) -> Window {
        Window(self.rate.per_us.wrapping_mul(self.rate.divisor))
    }

    /// Requests over window, reduced.
    #[inline]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The number of steps in which the window slides; none when it slides continuously.
    #[inline]
    pub const fn segments(&self) -> Option<NonZeroU16> {
        self.segments
    }

    /// Which limits count refused hits; none for the algorithm's default.
    #[inline]
    pub const fn count_refused(&self) -> Option<CountRefused> {
        self.count_refused
    }

    /// The calendar of its windows; none when they are counted from 1970.
    #[inline]
    pub const fn calendar(&self) -> Option<&'static dyn Calendar> {
        self.calendar
    }

    /// The penalty for callers that it refuses often.
    #[inline]
    pub const fn penalty(&self) -> Option<&Penalty> {
        self.penalty.as_ref()
    }

    /// The aligned window that contains `now`.
    #[inline]
    pub fn window_at(&self, now: Timestamp) -> Span {
        if let Some(calendar) = self.calendar {
            return calendar.window_at(now);
        }
        let window = self.window();
        let start = window.start_of(now);
        Span {
            start,
            end: start.plus_us(window.as_us()),
        }
    }

    /// The window in words: `15 minutes`, `1 month in Europe/Paris`, or `any moment` for a limit of
    /// requests in flight.
    pub fn describe_window(&self) -> String {
        let mut words = String::new();
        self.write_window(&mut words);
        words
    }

    /// Appends the window in words, as [`Limit::describe_window`] gives it.
    pub fn write_window(&self, into: &mut String) {
        match (self.calendar, self.unit) {
            (Some(calendar), _) => into.push_str(calendar.name()),
            (None, None) => into.push_str("any moment"),
            (None, Some(unit)) => match self.unit_multiplier.get() {
                1 => {
                    into.push_str("1 ");
                    into.push_str(unit.name());
                }
                many => {
                    // A string grows as needed.
                    let _ = write!(into, "{many} {}s", unit.name());
                }
            },
        }
    }
}

// === impl CountRefused ===

impl CountRefused {
    /// Every variant, from the weakest to the strongest.
    pub const ALL: [Self; 4] = [Self::None, Self::Blocking, Self::All, Self::InFull];

    /// The values of `count_refused` in rules files.
    pub const NAMES: [&'static str; 3] = ["none", "blocking", "all"];

    /// The field of rules files that chooses it, and its value there.
    #[inline]
    pub const fn field(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("count_refused", "none"),
            Self::Blocking => ("count_refused", "blocking"),
            Self::All => ("count_refused", "all"),
            Self::InFull => ("charged", "afterwards"),
        }
    }

    /// The variant with that value of `count_refused`.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.field() == ("count_refused", name))
    }

    /// Whether hits that one limit refuses stay taken in the others, `all_or_nothing` included.
    #[inline]
    pub const fn keeps_all(self) -> bool {
        matches!(self, Self::All | Self::InFull)
    }

    /// Whether it counts fewer refused hits than `other`.
    #[inline]
    pub fn is_weaker_than(self, other: Self) -> bool {
        let strength = |one| Self::ALL.iter().position(|each| *each == one);
        strength(self) < strength(other)
    }
}

// === impl LimitError ===

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroBurst => "burst must be at least 1",
            Self::BurstWithoutRate => "burst needs requests_per_unit of at least 1",
            Self::TooManyRequests => "requests_per_unit or burst is larger than 9007199254740991",
            Self::WindowTooLong => "the window is longer than 285 years",
        })
    }
}

impl std::error::Error for LimitError {}

/// After how many refusals callers are blocked, and for how long. Times are seconds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Penalty {
    /// How many refusals begin a block.
    pub after: NonZeroU16,
    /// How much longer the next block is.
    pub factor: NonZeroU8,
    /// The span in which refusals are counted; never 0.
    pub within_s: u32,
    /// The length of the first block; never 0.
    pub block_s: u32,
    /// The length of the longest block, and how long after a block the next one is longer.
    pub max_s: u32,
}

/// The longest time of a penalty, in seconds: 365 days.
pub const PENALTY_SECONDS_MAX: u32 = 365 * 86_400;

// === impl Penalty ===

/// The fields, as a rules file has them.
impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [within, block, max] = [self.within_s, self.block_s, self.max_s].map(text);
        let Self { after, factor, .. } = self;
        write!(
            f,
            "after: {after}, within: {within}, block: {block}, factor: {factor}, max: {max}"
        )
    }
}

/// A time in the largest unit in which it is whole.
fn text(seconds: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units
        .into_iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}
