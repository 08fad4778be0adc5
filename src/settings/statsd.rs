//! The settings of counters sent by statsd, by the reference's names.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::parse::{boolean, nonzero_duration};

/// The settings of statsd.
#[derive(Args, Clone, Debug)]
pub struct StatsdSettings {
    /// Whether counters are sent by statsd; unless said they are where STATSD_HOST says where to
    #[arg(long, env = "USE_STATSD", value_parser = boolean, action = ArgAction::Set)]
    pub use_statsd: Option<bool>,

    /// The statsd server; localhost unless said
    #[arg(long, env = "STATSD_HOST")]
    pub statsd_host: Option<String>,

    /// Its port
    #[arg(long, env = "STATSD_PORT", default_value_t = 8125)]
    pub statsd_port: u16,

    /// How it is spoken to: tcp, as the reference does unless told otherwise, or udp
    #[arg(
        long,
        env = "STATSD_PROTOCOL",
        default_value = "tcp",
        ignore_case = true
    )]
    pub statsd_protocol: StatsdProtocol,

    /// What is written behind every name that goes to statsd, NAME:VALUE, several with commas
    /// between
    #[arg(long, env = "EXTRA_TAGS", default_value = "", value_parser = tags)]
    pub extra_tags: Tags,

    /// How often statsd is told
    #[arg(long, env = "STATS_FLUSH_INTERVAL", default_value = "10s", value_parser = nonzero_duration)]
    pub stats_flush_interval: Duration,
}

/// The protocol of statsd.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StatsdProtocol {
    /// A stream
    Tcp,
    /// Datagrams
    Udp,
}

/// Tags: names and values, sorted by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tags(pub Vec<(String, String)>);

fn tags(text: &str) -> Result<Tags, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    let mut pairs: Vec<_> = pairs
        .collect::<Option<_>>()
        .ok_or("give NAME:VALUE, several with commas between")?;
    pairs.sort();
    Ok(Tags(pairs))
}

// === impl StatsdSettings ===

impl StatsdSettings {
    /// Where counters are to be sent: host and port; none when nothing says so.
    pub fn server(&self) -> Option<(&str, u16)> {
        // What is set to nothing is not set.
        let host = self.statsd_host.as_deref().filter(|host| !host.is_empty());
        let said = self.use_statsd.unwrap_or(host.is_some());
        said.then(|| {
            let host = host.unwrap_or("localhost");
            (host, self.statsd_port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_names_and_values_in_the_order_of_names() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let two = Tags(vec![pair("env", "prod"), pair("zone", "a:b")]);
        assert_eq!(tags("zone:a:b, env:prod,"), Ok(two));
        assert_eq!(tags(""), Ok(Tags::default()));
        for text in ["env", ":prod", "env:prod,zone"] {
            assert!(tags(text).is_err(), "{text}");
        }
    }
}
