//! The units of time that limits are configured in.

crate::named! {
    /// The units of time in rules files and in Envoy's protocol, shortest first. A month is 30 days
    /// and a year 365, as in Envoy's reference service.
    pub enum Unit {
        /// 1 second.
        Second = "second",
        /// 60 seconds.
        Minute = "minute",
        /// 3,600 seconds.
        Hour = "hour",
        /// 86,400 seconds; days begin at midnight UTC.
        Day = "day",
        /// 7 days; weeks begin on Thursday, as 1970 did.
        Week = "week",
        /// 30 days, counted from 1970.
        Month = "month",
        /// 365 days, counted from 1970.
        Year = "year",
    }
}

// === impl Unit ===

impl Unit {
    /// Length in seconds.
    #[inline]
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

    /// The unit with that name, in any case.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}
