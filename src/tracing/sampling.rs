//! Which decisions are sampled.

use crate::settings::TracingSettings;

/// Which decisions are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The client's sampling flag comes first.
    pub parent_based: bool,
    /// Ratio of sampled decisions when the client has no flag or it is ignored; from 0 to 1.
    pub share: f64,
}

// === impl Sampling ===

impl Sampling {
    /// Reads the settings; adds a warning for each value that is ignored.
    pub(super) fn from_settings(settings: &TracingSettings, warnings: &mut Vec<String>) -> Self {
        if let Some(share) = settings.tracing_sampling_rate {
            return Sampling {
                parent_based: true,
                share: f64::from(share),
            };
        }
        let mut share = |usual: f64| {
            let value = settings.otel.get("OTEL_TRACES_SAMPLER_ARG");
            let read = value.map(|value| value.trim().parse::<f64>().ok());
            match read {
                None => usual,
                Some(Some(share)) if (0.0..=1.0).contains(&share) => share,
                Some(_) => {
                    let words = "OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; 1 is used";
                    warnings.push(words.to_owned());
                    1.0
                }
            }
        };
        let sampler = settings.otel.get("OTEL_TRACES_SAMPLER");
        let (parent_based, share) = match sampler.unwrap_or("parentbased_always_on") {
            "always_on" => (false, 1.0),
            "always_off" => (false, 0.0),
            "traceidratio" => (false, share(1.0)),
            "parentbased_always_on" => (true, 1.0),
            "parentbased_always_off" => (true, 0.0),
            "parentbased_traceidratio" => (true, share(1.0)),
            other => {
                warnings.push(format!(
                    "OTEL_TRACES_SAMPLER: {other:?} is not supported; parentbased_always_on is used"
                ));
                (true, 1.0)
            }
        };
        Sampling {
            parent_based,
            share,
        }
    }
}
