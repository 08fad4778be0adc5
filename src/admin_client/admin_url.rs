//! The URL of an admin listener.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// The URL of the admin listener of a service on this machine with default settings.
pub const ADMIN_URL_DEFAULT: &str = "http://127.0.0.1:6070";

/// Port of the admin listener, if the URL has none.
const PORT_DEFAULT: u16 = 6070;

/// The URL of an admin listener: scheme, host and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdminUrl {
    https: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
}

// === impl AdminUrl ===

impl AdminUrl {
    /// Whether the connection uses TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The host, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("write a URL such as {ADMIN_URL_DEFAULT} or https://tollgate-admin:6070");
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri = Uri::try_from(whole).map_err(|_| wrong())?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(
                "a URL with a user name is not supported; set --admin-token-file".to_owned(),
            );
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(format!("{}: remove the path", wrong()));
        }
        let host = authority.host();
        let after_host = authority.as_str().get(host.len()..).unwrap_or_default();
        let port = match (after_host.strip_prefix(':'), authority.port_u16()) {
            (None, _) => PORT_DEFAULT,
            (Some(_), Some(port)) => port,
            (Some(_), None) => return Err(wrong()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            https,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

/// Host and port as a URL and the header Host have them.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> AdminUrl {
        text.parse().unwrap()
    }

    #[test]
    fn urls_have_a_scheme_a_host_and_a_port() {
        for (text, shown, https) in [
            ("http://127.0.0.1:6070", "http://127.0.0.1:6070", false),
            ("https://edge:1/", "https://edge:1", true),
            ("edge", "http://edge:6070", false),
            ("edge:80", "http://edge:80", false),
            ("http://[::1]:7", "http://[::1]:7", false),
            ("https://[::1]", "https://[::1]:6070", true),
        ] {
            assert_eq!(url(text).to_string(), shown, "{text}");
            assert_eq!(url(text).is_https(), https, "{text}");
        }
        for text in [
            "",
            "http://",
            "ftp://edge",
            "http://edge/top",
            "http://edge?x",
            "http://user:password@edge",
            "edge:port",
            "edge:99999",
            "edge:",
            "a b",
        ] {
            assert!(text.parse::<AdminUrl>().is_err(), "{text}");
        }
    }
}
