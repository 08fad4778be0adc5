//! The settings of counters sent by statsd, by the reference's names.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::help::STATSD;
use crate::settings::parse::{boolean, nonzero_duration, sink_port};
use crate::statsd::StatsdTarget;
use crate::visible_text::Hidden;

/// The default port of a StatsD server.
const STATSD_PORT: u16 = 8125;

/// The settings of StatsD.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = STATSD)]
pub struct StatsdSettings {
    /// Send counters to a StatsD server; default: true if --statsd-host is set
    #[arg(long, env, value_parser = boolean, action = ArgAction::Set)]
    pub use_statsd: Option<bool>,

    /// Host of the StatsD server; default: localhost
    ///
    /// Example: statsd.example.org
    #[arg(long, env, value_name = "HOST")]
    pub statsd_host: Option<Hidden>,

    /// Port of the StatsD server
    ///
    /// 0 means the default. So does the address that Kubernetes sets for a Service named statsd.
    #[arg(long, env, default_value_t = STATSD_PORT, value_parser = sink_port, value_name = "PORT")]
    pub statsd_port: u16,

    /// Protocol of the StatsD server
    ///
    /// The default is that of envoyproxy/ratelimit.
    #[arg(
        long,
        env,
        default_value = "tcp",
        ignore_case = true,
        value_name = "PROTOCOL"
    )]
    pub statsd_protocol: StatsdProtocol,

    /// Tags appended to every StatsD name, NAME:VALUE, separated by commas
    ///
    /// Example: env:prod,zone:a
    #[arg(long, env, default_value = "", value_parser = tags, value_name = "TAGS")]
    pub extra_tags: Tags,

    /// Replace dots in keys and values by underscores, in names of StatsD and labels of /metrics
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub sanitize_descriptor_metric_dots: bool,

    /// Interval at which counters are sent to StatsD
    ///
    /// Range: above 0
    #[arg(long, env, default_value = "10s", value_parser = nonzero_duration)]
    pub stats_flush_interval: Duration,
}

/// The protocol of statsd.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StatsdProtocol {
    /// A TCP connection
    Tcp,
    /// UDP datagrams
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
        .ok_or("use NAME:VALUE, separated by commas, such as env:prod,zone:a")?;
    pairs.sort();
    Ok(Tags(pairs))
}

// === impl StatsdSettings ===

impl StatsdSettings {
    /// Where counters are to be sent; none when nothing says so.
    pub fn target(&self) -> Option<StatsdTarget> {
        // What is set to nothing is not set.
        let host = self.statsd_host.as_ref().map(|host| host.0.as_str());
        let host = host.filter(|host| !host.is_empty());
        let said = self.use_statsd.unwrap_or(host.is_some());
        said.then(|| StatsdTarget {
            host: host.unwrap_or("localhost").to_owned(),
            port: match self.statsd_port {
                0 => STATSD_PORT,
                port => port,
            },
            is_udp: self.statsd_protocol == StatsdProtocol::Udp,
            tags: self.extra_tags.0.clone(),
            interval: self.stats_flush_interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_link_of_kubernetes_is_no_port() {
        let settings = |flags: &[&str]| {
            let flags = [&["--statsd-port", "tcp://10.0.0.1:9125"], flags].concat();
            crate::settings::Settings::from_flags(flags).unwrap().statsd
        };
        assert!(settings(&[]).target().is_none());
        let on = settings(&["--statsd-host", "statsd"]).target().unwrap();
        assert_eq!((on.host.as_str(), on.port), ("statsd", 8125));
    }

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
