//! The state of the connection to the xDS server, for `/readyz?verbose`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::visible_text::visible;
use crate::xds::endpoint::XdsError;
use crate::xds::truncate;

/// The state of the connection to the xDS server.
#[derive(Debug)]
pub struct XdsStatus {
    server: String,
    /// Why there is no stream. None when there is one.
    error: ArcSwapOption<String>,
}

// === impl XdsStatus ===

impl XdsStatus {
    /// Not yet connected to this server.
    pub(super) fn new(server: String) -> Self {
        let error = "the first attempt is in progress".to_owned();
        Self {
            server,
            error: ArcSwapOption::from_pointee(error),
        }
    }

    /// The address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Why there is no stream. None when there is one.
    pub fn error(&self) -> Option<Arc<String>> {
        self.error.load_full()
    }

    pub(super) fn set_connected(&self) {
        self.error.store(None);
    }

    /// Keeps why there is no stream, on one line and within a bound: the server chose the words.
    pub(super) fn set_disconnected(&self, error: &XdsError) {
        let words = match error {
            XdsError::Connect(words) => words.clone(),
            error => error.to_string(),
        };
        self.error.store(Some(Arc::new(visible(&truncate(words)))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_one_line_within_a_bound() {
        let status = XdsStatus::new("xds:18000".to_owned());
        assert!(status.error().is_some());
        status.set_connected();
        assert_eq!(status.error(), None);
        let words = format!("no\n[+] xds: {}", "x".repeat(1 << 20));
        status.set_disconnected(&XdsError::Ended(words));
        let error = status.error().unwrap();
        let start = "the xDS server ended the stream: no\\n[+] xds: xxx";
        assert!(error.starts_with(start), "{error}");
        assert!(error.len() < 9 << 10, "{}", error.len());
    }
}
