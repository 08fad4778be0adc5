//! A limit: how many requests, in how long, and how many at once.
//!
//! Why it is built by a constructor: what the algorithms divide by can then never be zero, and what they multiply
//! always fits. How: a window is a whole number of microseconds, at most [`Timestamp::MAX_US`]; a rate is requests
//! over window reduced to lowest terms, so that 7 a second and 3 billion a second are both exact and a script's
//! products stay small.
//!
//! What only some algorithms ask for (a burst, segments, a calendar, what refused hits do) is here as well, so that a check
//! carries one value and a reload cannot pull half of it away.
//!
//! What it deliberately does not do: count anything, know which algorithm will use it, know when a month begins (a
//! [`Calendar`] does).

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use super::calendar::{Calendar, Span};
use super::timestamp::Timestamp;

/// The lengths of time that rules files and Envoy speak of. A month is 30 days and a year 365, as in Envoy's
/// reference service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unit {
    /// 1 second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3,600 seconds.
    Hour,
    /// 86,400 seconds; days begin at midnight UTC.
    Day,
    /// 7 days; weeks begin on Thursday, as 1970 did.
    Week,
    /// 30 days, counted from 1970.
    Month,
    /// 365 days, counted from 1970.
    Year,
}

/// The length of time a limit speaks of, in microseconds: at least 1, at most [`Timestamp::MAX_US`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Window(u64);

/// Hits per microsecond as a fraction in lowest terms.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rate {
    /// Hits that come in `per_us` microseconds. 0 for a limit of 0.
    pub hits: u64,
    /// Microseconds in which they come; never 0.
    pub per_us: u64,
    /// What the fraction was reduced by: window = `per_us` × `divisor`. A part of a hit kept in a register is
    /// counted in 1/window, which means the same after a reload changed the number of requests.
    pub divisor: u64,
}

/// What becomes of hits that were refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CountRefused {
    /// Only what passed is counted.
    None,
    /// The limit that refused counts them.
    Blocking,
    /// Every limit that was asked counts them, whoever refused.
    All,
}

/// How many requests a window may see, and how many may come at once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limit {
    requests_per_unit: u32,
    /// None when the limit is of how many are in flight.
    unit: Option<Unit>,
    unit_multiplier: NonZeroU32,
    burst: u32,
    window: Window,
    rate: Rate,
    /// In how many parts a window slides; none when it does so smoothly.
    segments: Option<NonZeroU16>,
    /// None: as the algorithm does unless told otherwise.
    count_refused: Option<CountRefused>,
    /// None: windows are of one length, counted from 1970.
    calendar: Option<&'static dyn Calendar>,
}

/// Why a limit cannot be built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LimitError {
    /// A burst of 0 would refuse everything for ever; a limit of 0 says that more plainly.
    ZeroBurst,
    /// A burst beside 0 requests per unit would never fill again once spent.
    BurstWithoutRate,
    /// A window longer than time itself, which ends in the year 2255.
    WindowTooLong,
}

// === impl Unit ===

impl Unit {
    /// Every unit, shortest first.
    pub const ALL: [Self; 7] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// Length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// The name in rules files, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

// === impl Window ===

impl Window {
    /// `multiplier` units, saturating.
    pub const fn new(unit: Unit, multiplier: NonZeroU32) -> Self {
        let seconds = unit.seconds().saturating_mul(multiplier.get() as u64);
        Self(Timestamp::from_seconds(seconds).as_us())
    }

    /// Length in microseconds; never 0.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// When the aligned window that holds `now` began: windows are counted from 1970.
    pub const fn start_of(self, now: Timestamp) -> Timestamp {
        now.minus_us(self.elapsed_us(now))
    }

    /// How much of the aligned window that holds `now` has gone: less than its length.
    pub const fn elapsed_us(self, now: Timestamp) -> u64 {
        now.as_us() % self.0
    }
}

// === impl Rate ===

impl Rate {
    fn new(hits: u32, window: Window) -> Self {
        let divisor = greatest_common_divisor(u64::from(hits), window.as_us());
        Self {
            hits: u64::from(hits) / divisor,
            per_us: window.as_us() / divisor,
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
    /// `requests_per_unit` requests in `unit_multiplier` units, of which `burst` may come at once (as many as the
    /// requests unless said).
    ///
    /// # Errors
    ///
    /// A burst of 0, or a burst beside 0 requests.
    pub fn new(
        requests_per_unit: u32,
        unit: Unit,
        unit_multiplier: NonZeroU32,
        burst: Option<u32>,
    ) -> Result<Self, LimitError> {
        match burst {
            Some(0) => return Err(LimitError::ZeroBurst),
            Some(_) if requests_per_unit == 0 => return Err(LimitError::BurstWithoutRate),
            _ => {}
        }
        let seconds = unit.seconds().checked_mul(u64::from(unit_multiplier.get()));
        let us = seconds.and_then(|seconds| seconds.checked_mul(1_000_000));
        if us.is_none_or(|us| us > Timestamp::MAX_US) {
            return Err(LimitError::WindowTooLong);
        }
        let limit = Self::per(requests_per_unit, unit, unit_multiplier);
        Ok(Self {
            burst: burst.unwrap_or(requests_per_unit),
            ..limit
        })
    }

    /// At most `requests` in flight, each for no longer than `slot_seconds`: its window is how long a slot is held when
    /// nobody frees it. Longer than time itself counts as that.
    pub fn in_flight(requests: u32, slot_seconds: NonZeroU32) -> Self {
        Self {
            unit: None,
            ..Self::per(requests, Unit::Second, slot_seconds)
        }
    }

    /// The same limit, whose window slides in so many steps.
    #[must_use]
    pub const fn with_segments(self, segments: NonZeroU16) -> Self {
        Self {
            segments: Some(segments),
            ..self
        }
    }

    /// The same limit, with another answer to what becomes of refused hits.
    #[must_use]
    pub const fn with_count_refused(self, count_refused: CountRefused) -> Self {
        Self {
            count_refused: Some(count_refused),
            ..self
        }
    }

    /// The same limit in windows of this calendar. [`Limit::window`] is then the longest there can be.
    #[must_use]
    pub fn with_calendar(self, calendar: &'static dyn Calendar) -> Self {
        Self {
            window: Window(calendar.window_max_us().clamp(1, Timestamp::MAX_US)),
            calendar: Some(calendar),
            ..self
        }
    }

    /// `requests_per_unit` requests in `unit_multiplier` units, all of which may come at once.
    pub fn per(requests_per_unit: u32, unit: Unit, unit_multiplier: NonZeroU32) -> Self {
        let window = Window::new(unit, unit_multiplier);
        Self {
            requests_per_unit,
            unit: Some(unit),
            unit_multiplier,
            burst: requests_per_unit,
            window,
            rate: Rate::new(requests_per_unit, window),
            segments: None,
            count_refused: None,
            calendar: None,
        }
    }

    /// One of so many equal parts of this limit, rounded down but for 0: of what may pass at all, one passes everywhere.
    #[must_use]
    pub fn divided_by(self, parts: u32) -> Self {
        let part = |whole: u32| match whole.checked_div(parts.max(1)) {
            Some(0) | None => whole.min(1),
            Some(part) => part,
        };
        let requests_per_unit = part(self.requests_per_unit);
        Self {
            requests_per_unit,
            burst: part(self.burst),
            rate: Rate::new(requests_per_unit, self.window),
            ..self
        }
    }

    /// Requests per window, as the file or the caller said it.
    pub const fn requests_per_unit(&self) -> u32 {
        self.requests_per_unit
    }

    /// The unit, as the file or the caller said it; none when the limit is of how many are in flight.
    pub const fn unit(&self) -> Option<Unit> {
        self.unit
    }

    /// How many units make the window.
    pub const fn unit_multiplier(&self) -> NonZeroU32 {
        self.unit_multiplier
    }

    /// Requests per window.
    pub const fn requests(&self) -> u64 {
        self.requests_per_unit as u64
    }

    /// How many may come at once.
    pub const fn burst(&self) -> u64 {
        self.burst as u64
    }

    /// The window.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Requests over window, reduced.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// In how many steps the window slides, if it does not do so smoothly.
    pub const fn segments(&self) -> Option<NonZeroU16> {
        self.segments
    }

    /// What becomes of refused hits, if the limit says.
    pub const fn count_refused(&self) -> Option<CountRefused> {
        self.count_refused
    }

    /// Whose windows they are, if not counted from 1970.
    pub const fn calendar(&self) -> Option<&'static dyn Calendar> {
        self.calendar
    }

    /// The aligned window that holds `now`.
    pub fn window_at(&self, now: Timestamp) -> Span {
        if let Some(calendar) = self.calendar {
            return calendar.window_at(now);
        }
        let start = self.window.start_of(now);
        Span {
            start,
            end: start.plus_us(self.window.as_us()),
        }
    }

    /// How long the limit speaks of, for people: `15 minutes`, `1 month in Europe/Paris`; `any moment` when it is of how
    /// many are in flight.
    pub fn describe_window(&self) -> String {
        match (self.calendar, self.unit) {
            (Some(calendar), _) => calendar.name().to_owned(),
            (None, None) => "any moment".to_owned(),
            (None, Some(unit)) => match self.unit_multiplier.get() {
                1 => format!("1 {}", unit.name()),
                many => format!("{many} {}s", unit.name()),
            },
        }
    }
}

// === impl CountRefused ===

impl CountRefused {
    /// Every answer.
    pub const ALL: [Self; 3] = [Self::None, Self::Blocking, Self::All];

    /// Its name in rules files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Blocking => "blocking",
            Self::All => "all",
        }
    }

    /// The answer of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

// === impl LimitError ===

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroBurst => "burst must be at least 1",
            Self::BurstWithoutRate => "burst needs requests_per_unit of at least 1",
            Self::WindowTooLong => "the window is longer than 285 years",
        })
    }
}

impl std::error::Error for LimitError {}
