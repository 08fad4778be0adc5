//! Redirects of a cluster node: the slot of the call belongs, or will belong, to another node.
//!
//! In each case nothing has run, so the call may be sent again. `call/cluster_call` does that. An
//! unserved slot (`CLUSTERDOWN`) is not a redirect.

use redis::RedisError;

use crate::store::redis::target::Address;

/// Where to send a call instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Redirect {
    /// Another node serves the slot from now on; none when the node did not name it.
    Moved(Option<(u16, Address)>),
    /// The slot migrates to another node, which has this key or will create it.
    Ask(Option<Address>),
    /// The slot migrates, and the call's keys are on both nodes.
    TryAgain,
}

// === impl Redirect ===

impl Redirect {
    /// The redirect in an error of the node at `asked`; none when it is another error.
    pub(crate) fn of(error: &RedisError, asked: &Address) -> Option<Self> {
        Self::of_code(error.code()?, error.detail().unwrap_or_default(), asked)
    }

    fn of_code(code: &str, detail: &str, asked: &Address) -> Option<Self> {
        let named = || {
            let mut words = detail.split_ascii_whitespace();
            let slot = words.next()?.parse().ok()?;
            Some((slot, Address::reported_by(words.next()?, asked)?))
        };
        match code {
            "MOVED" => Some(Self::Moved(named())),
            "ASK" => Some(Self::Ask(named().map(|(_, address)| address))),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_server_and_a_slot() {
        let asked = Address::Tcp("asked".to_owned(), 1);
        let of = |code, detail| Redirect::of_code(code, detail, &asked);
        let other = Address::Tcp("10.0.0.2".to_owned(), 7);
        assert_eq!(
            of("MOVED", "3999 10.0.0.2:7"),
            Some(Redirect::Moved(Some((3999, other.clone()))))
        );
        assert_eq!(
            of("ASK", "3999 10.0.0.2:7"),
            Some(Redirect::Ask(Some(other)))
        );
        let same_host = Address::Tcp("asked".to_owned(), 7);
        assert_eq!(of("ASK", "3999 :7"), Some(Redirect::Ask(Some(same_host))));
        assert_eq!(of("MOVED", "3999 ?:7"), Some(Redirect::Moved(None)));
        let unstable = "Multiple keys request during rehashing of slot";
        assert_eq!(of("TRYAGAIN", unstable), Some(Redirect::TryAgain));
        assert_eq!(of("CLUSTERDOWN", "The cluster is down"), None);
    }
}
