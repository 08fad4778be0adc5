//! The settings of recordings, and the settings that a recording names.
//!
//! What it deliberately does not do: record (`capture`, `admin/record`).

use clap::Args;

use crate::settings::Settings;
use crate::settings::headings::LOGS;
use crate::settings::parse::word;

/// Recordings of requests.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = LOGS)]
pub struct CaptureSettings {
    /// What `tollgate record` may get of the values that callers send
    ///
    /// A recording has every request with its descriptors. Values of descriptors are personal data.
    #[arg(
        long,
        env = "TOLLGATE_RECORDINGS",
        default_value = "plain",
        value_name = "VALUES"
    )]
    pub recordings: RecordingValues,
}

/// What recordings may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum RecordingValues {
    /// Values as sent, or as hashes where the client asks for them
    Plain,
    /// Hashes of values, except of those that rules compare
    Hashed,
    /// No recordings
    Off,
}

// === impl Settings ===

impl Settings {
    /// The settings that verdicts depend on, as flags with their values.
    pub fn verdict_flags(&self) -> Vec<String> {
        let flags = [
            ("shadow-mode", self.shadow_mode.to_string()),
            ("quota-mode", self.quota_mode.to_string()),
            ("all-or-nothing", self.decision.all_or_nothing.to_string()),
            ("negative-hits", self.negative_hits.to_string()),
            ("overrides", self.overrides.to_string()),
            ("on-excess", self.on_excess.name().to_owned()),
            ("on-overload", self.on_overload.name().to_owned()),
            ("on-memory-full", word(&self.on_memory_full)),
            ("descriptors-max", self.descriptors_max.to_string()),
            ("entries-max", self.entries_max.to_string()),
        ];
        let flags = flags.map(|(name, value)| format!("--{name}={value}"));
        flags.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_recording_give_the_same_settings() {
        let flags = ["--quota-mode=true", "--on-excess=allow", "--entries-max=7"];
        let settings = Settings::from_flags(flags).unwrap();
        let written = settings.verdict_flags();
        for flag in flags {
            assert!(written.iter().any(|one| one == flag), "{flag} {written:?}");
        }
        let again = Settings::from_flags(&written).unwrap();
        assert_eq!(again.verdict_flags(), written);
    }
}
