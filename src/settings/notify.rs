//! The settings of the webhook of limits.

use std::path::PathBuf;

use clap::Args;

use crate::settings::headings::LOGS;
use crate::visible_text::Hidden;

/// The webhook of limits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = LOGS)]
pub struct NotifySettings {
    /// URL that gets the events of limits with `notify`; default: no webhook
    ///
    /// Each event is a POST of JSON, and is tried again with a backoff.
    ///
    /// Example: https://hooks.example.com/limits
    #[arg(
        long,
        env = "TOLLGATE_NOTIFY_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub notify_url: Option<Hidden>,

    /// File with the secret that signs events of --notify-url
    ///
    /// The header tollgate-signature then has an HMAC-SHA256. The file is read at the start.
    ///
    /// Example: /etc/tollgate/notify-secret
    #[arg(long, env = "TOLLGATE_NOTIFY_SECRET_FILE", requires = "notify_url")]
    pub notify_secret_file: Option<PathBuf>,

    /// CA bundle (PEM) for --notify-url; default: system roots
    #[arg(long, env = "TOLLGATE_NOTIFY_CACERT", requires = "notify_url")]
    pub notify_cacert: Option<PathBuf>,
}
