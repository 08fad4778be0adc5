//! Where a cluster's server sends whoever asks for a slot that is not, or not wholly, its own.
//!
//! In each of these cases nothing has run: asking again is safe.
//!
//! What it deliberately does not do: go there (`spread` does), take a slot that nobody serves for one that has moved.

use redis::RedisError;

use crate::store::redis::target::Address;

/// Where to ask instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Redirect {
    /// The slot is another's, from now on; none when it did not say whose.
    Moved(Option<(u16, Address)>),
    /// The slot is about to be another's, and this key is there or is to be made there.
    Ask(Option<Address>),
    /// The slot is about to be another's, and some keys are here and some there.
    TryAgain,
}

// === impl Redirect ===

impl Redirect {
    /// What an error of the server at `asked` says of where to ask; none when it is another error.
    pub(crate) fn of(error: &RedisError, asked: &Address) -> Option<Self> {
        Self::of_code(error.code()?, error.detail().unwrap_or_default(), asked)
    }

    fn of_code(code: &str, detail: &str, asked: &Address) -> Option<Self> {
        let named = || {
            let mut words = detail.split_ascii_whitespace();
            let slot = words.next()?.parse().ok()?;
            Some((slot, Address::said_by(words.next()?, asked)?))
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
