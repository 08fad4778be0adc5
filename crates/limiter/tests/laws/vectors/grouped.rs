//! Which values share a bucket at a level that matches many: each has its own, all share one by
//! `share_threshold`, and addresses have one each or one for each network, however spelled.
//!
//! How: the keys of one rule for several values. An address and a whole level are hashed with tags,
//! so no text that a client sends has the same hash.
//!
//! What it deliberately does not do: match (`matching` does).

use std::collections::HashMap;
use std::sync::Mutex;

use allocation_counter::measure;
use tollgate_limiter::algorithm::from_name;
use tollgate_limiter::key::{BucketIdentity, label_key};
use tollgate_limiter::{
    Digest, Entry, Hits, Key, KeyHasher, Level, Plan, Prefix, Request, Unit, Values,
};

use tollgate_test_model::fixtures::{Tree, TwoHashes, limited, per};

fn level(values: Values) -> Level {
    Level {
        values: values.into(),
        ..Level::new("k", "")
    }
}

fn list() -> Values {
    Values::List(vec!["free".to_owned(), "trial".to_owned()])
}

fn prefixes(texts: &[&str]) -> Values {
    Values::Prefixes(
        texts
            .iter()
            .map(|text| Prefix::parse(text).unwrap())
            .collect(),
    )
}

fn regex() -> Values {
    Values::Regex("[a-z]+".to_owned())
}

fn tree(level: &Level) -> Tree {
    Tree::new().with_levels(std::slice::from_ref(level), limited(10, Unit::Second))
}

fn key(tree: &Tree, value: impl AsRef<[u8]>) -> Key {
    let mut request = Request::new(Tree::DOMAIN.as_bytes());
    let entry = Entry {
        key: b"k",
        value: value.as_ref(),
    };
    request.push_descriptor([entry], Hits::Take(1), None);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    plan.checks()[0].key
}

#[test]
fn each_value_has_its_bucket_unless_they_share_one() {
    for (values, one, other) in [
        (list(), "free", "trial"),
        (regex(), "abc", "xyz"),
        (prefixes(&["10.0.0.0/8", "fd00::/8"]), "10.0.0.1", "fd00::1"),
        (Values::from_text("a*"), "a1", "a2"),
    ] {
        let apart = tree(&level(values.clone()));
        assert_ne!(key(&apart, one), key(&apart, other), "{values:?}");
        let together = tree(&Level {
            share_threshold: true,
            ..level(values.clone())
        });
        assert_eq!(key(&together, one), key(&together, other), "{values:?}");
        assert_ne!(key(&together, one), key(&apart, one), "{values:?}");
    }
}

#[test]
fn levels_that_share_do_not_share_with_each_other() {
    let mut seen = HashMap::new();
    for values in [
        list(),
        Values::List(vec!["trial".to_owned(), "free".to_owned()]),
        Values::List(vec!["[a-z]+".to_owned()]),
        Values::List(vec!["~[a-z]+".to_owned()]),
        regex(),
        Values::Regex("~[a-z]+".to_owned()),
        Values::Regex("free".to_owned()),
        prefixes(&["10.0.0.0/8"]),
        prefixes(&["10.0.0.0/9"]),
        prefixes(&["::a00:0/104"]),
        Values::List(vec!["10.0.0.0/8".to_owned()]),
        Values::from_text("free*"),
    ] {
        let level = Level {
            share_threshold: true,
            ..level(values.clone())
        };
        let value = match &values {
            Values::List(values) => values[0].clone(),
            Values::Prefixes(prefixes) => prefixes[0].address().to_string(),
            Values::Regex(regex) if regex.starts_with('~') => "~abc".to_owned(),
            _ => "free".to_owned(),
        };
        if let Some(twin) = seen.insert(key(&tree(&level), value), values.clone()) {
            panic!("{values:?} and {twin:?} share a bucket");
        }
    }
    // The first item stands for all: a list that is extended at its end keeps its bucket.
    let longer = Values::List(vec!["free".to_owned(), "new".to_owned()]);
    let shared = |values| {
        tree(&Level {
            share_threshold: true,
            ..level(values)
        })
    };
    assert_eq!(key(&shared(list()), "free"), key(&shared(longer), "new"));
}

#[test]
fn one_address_is_one_bucket_however_spelled() {
    let tree = tree(&level(prefixes(&["10.0.0.0/8", "fd00::/8"])));
    let one = key(&tree, "10.1.2.3");
    for spelling in [
        "::ffff:10.1.2.3",
        "::FFFF:A01:203",
        "0:0:0:0:0:ffff:10.1.2.3",
    ] {
        assert_eq!(key(&tree, spelling), one, "{spelling}");
    }
    assert_ne!(key(&tree, "10.1.2.4"), one);
    let six = key(&tree, "fd00::1");
    for spelling in ["FD00::1", "fd00:0:0:0:0:0:0:1", "fd00::0.0.0.1"] {
        assert_eq!(key(&tree, spelling), six, "{spelling}");
    }
    assert_ne!(key(&tree, "fd00::2"), six);
}

#[test]
fn networks_of_version_6_are_one_bucket_each() {
    let grouped = Level {
        ipv6_prefix: Some(64),
        ..level(prefixes(&["0.0.0.0/0", "::/0"]))
    };
    // With a prefix and without, where a text that is not an address stays as it is.
    for level in [
        grouped.clone(),
        Level {
            values: Values::Any.into(),
            ..grouped.clone()
        },
    ] {
        let tree = tree(&level);
        let one = key(&tree, "2001:db8::1");
        assert_eq!(key(&tree, "2001:DB8:0:0:ffff::"), one);
        assert_ne!(key(&tree, "2001:db8:0:1::1"), one);
        assert_ne!(key(&tree, "10.0.0.1"), key(&tree, "10.0.0.2"));
        assert_eq!(key(&tree, "10.0.0.1"), key(&tree, "::ffff:10.0.0.1"));
    }
    let alone = tree(&Level {
        values: Values::Any.into(),
        ..grouped.clone()
    });
    assert_ne!(key(&alone, "bob"), key(&alone, "eve"));
    assert_ne!(key(&alone, "2001:db8::/64"), key(&alone, "2001:db8::"));
    assert_eq!(
        key(&alone, "bob"),
        key(&tree(&level(Values::Any)), "bob"),
        "as it is"
    );
    // Another network size is another bucket, like another window.
    let smaller = tree(&Level {
        ipv6_prefix: Some(65),
        ..grouped.clone()
    });
    assert_ne!(
        key(&smaller, "2001:db8::1"),
        key(&tree(&grouped), "2001:db8::1")
    );
    let whole = tree(&Level {
        ipv6_prefix: Some(128),
        ..grouped
    });
    let none = tree(&level(prefixes(&["::/0"])));
    assert_eq!(key(&whole, "2001:db8::1"), key(&none, "2001:db8::1"));
}

#[test]
fn label_sets_are_compared_by_content_without_allocation() {
    let entry = [Entry {
        key: b"k",
        value: b"as it came",
    }];
    let told = |values| {
        let tree = tree(&level(values));
        let rule = &tree.rules.rules()[0];
        let mut key = None;
        let cost = measure(|| {
            let domain = Tree::DOMAIN.as_bytes();
            key = Some(label_key(Some(rule), domain, &entry, (2, 64), &TwoHashes));
        });
        assert_eq!(cost.count_total, 0, "{:?}", rule.path[0]);
        key.unwrap()
    };
    let long = "~".to_owned() + &"a".repeat(64);
    for (values, text) in [
        (Values::Any, ""),
        (Values::from_text("a*"), "a*"),
        (list(), "free|trial"),
        (prefixes(&["10.0.0.0/8", "fd00::/8"]), "10.0.0.0/8|fd00::/8"),
        (regex(), "~[a-z]+"),
        // The label is cut to its maximum.
        (Values::Regex("a".repeat(300)), &long[..64]),
    ] {
        let shown = format!("{values:?}");
        assert_eq!(told(values), told(Values::from_text(text)), "{shown}");
    }
    assert_ne!(told(list()), told(regex()));
}

/// Records what is hashed.
#[derive(Clone, Copy)]
struct Keeping<'k>(&'k Mutex<Vec<u8>>);

impl KeyHasher for Keeping<'_> {
    type Digest = Self;

    fn start(&self) -> Self {
        *self
    }
}

impl Digest for Keeping<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }

    fn finish(self) -> u128 {
        0
    }
}

#[test]
fn no_text_is_an_address_or_a_whole_level() {
    let bytes = |level: &Level, value: &[u8]| {
        let tree = tree(level);
        let limit = per(10, Unit::Second);
        let identity = BucketIdentity {
            domain: b"",
            entries: &[Entry { key: b"", value }],
            algorithm: from_name("fixed_window").unwrap(),
            limit: &limit,
            rule: tree.rules.rules().first(),
        };
        let kept = Mutex::new(Vec::new());
        identity.key(&Keeping(&kept));
        kept.into_inner().unwrap()
    };
    let any = level(Values::Any);
    let empty = bytes(&any, b"");
    let before_value = empty.len() - 8;
    for (level, value) in [
        (level(prefixes(&["10.0.0.0/8"])), &b"10.0.0.1"[..]),
        (level(prefixes(&["fd00::/8"])), b"fd00::1"),
        (
            Level {
                share_threshold: true,
                ..level(list())
            },
            b"free",
        ),
        (
            Level {
                share_threshold: true,
                ..level(regex())
            },
            b"abc",
        ),
    ] {
        // A text begins with its length, and none is so long.
        let length = bytes(&level, value)[before_value..][..8]
            .try_into()
            .unwrap();
        assert!(u64::from_le_bytes(length) >= u64::MAX - 1, "{value:?}");
    }
}
