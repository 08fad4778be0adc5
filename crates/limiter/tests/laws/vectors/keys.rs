//! The identity of a bucket: another domain, entries, algorithm, window, name or origin is another
//! bucket; another number of requests is not.
//!
//! How: the test hash depends only on the bytes, not on how they are split, so that texts which run
//! into each other would show.
//!
//! What it deliberately does not do: judge a hash.

use std::collections::HashMap;
use std::num::NonZeroU32;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_limiter::algorithm::from_name;
use tollgate_limiter::key::BucketIdentity;
use tollgate_limiter::{Digest, Entry, Key, KeyHasher, Limit, Unit};

use tollgate_test_model::fixtures::{TwoHashes, called, limited, per, with_burst};
use tollgate_test_model::random_cases;

/// An identity that owns its texts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Bucket {
    domain: Vec<u8>,
    texts: Vec<(Vec<u8>, Vec<u8>)>,
    algorithm: &'static str,
    window: (Unit, u32),
    name: String,
    is_override: bool,
}

impl Bucket {
    fn limit(&self) -> Limit {
        let (unit, multiplier) = self.window;
        Limit::per(10, unit, NonZeroU32::new(multiplier).unwrap())
    }

    /// A limit that came with the request has no name.
    fn sound(mut self) -> Self {
        if self.is_override {
            self.name.clear();
        }
        self
    }

    fn key(&self) -> Key {
        self.key_with(&self.limit())
    }

    fn key_with(&self, limit: &Limit) -> Key {
        let entries: Vec<Entry<'_>> = self
            .texts
            .iter()
            .map(|(key, value)| Entry { key, value })
            .collect();
        let rule = called(&self.name, limited(1, Unit::Minute));
        BucketIdentity {
            domain: &self.domain,
            entries: &entries,
            algorithm: from_name(self.algorithm).unwrap(),
            limit,
            rule: (!self.is_override).then_some(&rule),
        }
        .key(&TwoHashes)
    }
}

/// Each text distinct from its neighbours, none empty.
fn bucket() -> Bucket {
    let text = |text: &str| text.as_bytes().to_vec();
    Bucket {
        domain: text("domain"),
        texts: vec![(text("key"), text("value")), (text("deep"), text("er"))],
        algorithm: "fixed_window",
        window: (Unit::Minute, 1),
        name: "name".to_owned(),
        is_override: false,
    }
}

/// The same bucket with one change.
fn but(change: impl FnOnce(&mut Bucket)) -> Bucket {
    let mut bucket = bucket();
    change(&mut bucket);
    bucket
}

#[test]
fn the_hash_here_minds_bytes_and_not_pieces() {
    let hash = |pieces: &[&[u8]]| {
        let mut digest = TwoHashes.start();
        for piece in pieces {
            digest.write(piece);
        }
        digest.finish()
    };
    assert_eq!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    assert_ne!(hash(&[b"abc"]), hash(&[b"abd"]));
}

#[test]
fn any_change_is_another_bucket() {
    let others = [
        bucket(),
        but(|b| b.domain.push(b'x')),
        but(|b| b.domain.clear()),
        but(|b| b.texts[0].0.push(b'x')),
        but(|b| b.texts[0].1.push(b'x')),
        but(|b| b.texts[0].1.clear()),
        but(|b| b.texts[1].0.make_ascii_uppercase()),
        but(|b| b.texts.swap(0, 1)),
        but(|b| b.texts.truncate(1)),
        but(|b| b.texts.clear()),
        but(|b| b.texts.push((vec![], vec![]))),
        but(|b| {
            let (key, value) = b.texts[0].clone();
            b.texts[0] = (value, key);
        }),
        but(|b| b.algorithm = "sliding_window"),
        but(|b| b.algorithm = "token_bucket"),
        but(|b| b.window.0 = Unit::Hour),
        but(|b| b.window.1 = 2),
        but(|b| b.name.push('x')),
        but(|b| b.name.clear()),
        but(|b| b.is_override = true),
    ];
    let mut seen = HashMap::new();
    for other in others {
        if let Some(twin) = seen.insert(other.key(), other.clone()) {
            panic!("{other:?} and {twin:?} share a bucket");
        }
    }
}

#[test]
fn another_number_of_requests_or_burst_is_the_same_bucket() {
    let key = bucket().key();
    for limit in [
        per(0, Unit::Minute),
        per(10, Unit::Minute),
        per(u32::MAX.into(), Unit::Minute),
        with_burst(10, Unit::Minute, 99),
        Limit::per(10, Unit::Second, NonZeroU32::new(60).unwrap()), // the same window
    ] {
        assert_eq!(bucket().key_with(&limit), key, "{limit:?}");
    }
}

#[test]
fn bytes_moved_to_a_neighbouring_text_are_another_bucket() {
    // Algorithm and domain have the limit's name between them, and there are only three algorithms;
    // of the others every cut of one long text is tried.
    let all = b"aaaaaa";
    let mut seen = HashMap::new();
    for cuts in increasing_cuts(all.len(), 5) {
        let piece = |n: usize| all[cuts[n]..cuts[n + 1]].to_vec();
        let cut = but(|b| {
            b.name = String::from_utf8(piece(0)).unwrap();
            b.domain = piece(1);
            b.texts = vec![(piece(2), piece(3)), (piece(4), piece(5))];
        });
        if let Some(twin) = seen.insert(cut.key(), cut.clone()) {
            panic!("{cut:?} and {twin:?} share a bucket");
        }
    }
    assert_eq!(seen.len(), 462); // 11 over 5: five cuts among six letters
}

/// All ways to cut a text of `len` at `count` places, with both ends.
fn increasing_cuts(len: usize, count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![0]];
    for _ in 0..count {
        all = all
            .into_iter()
            .flat_map(|cuts| {
                let last = *cuts.last().unwrap();
                (last..=len).map(move |cut| [cuts.clone(), vec![cut]].concat())
            })
            .collect();
    }
    for cuts in &mut all {
        cuts.push(len);
    }
    all
}

#[test]
fn no_byte_within_a_text_separates() {
    // If that byte separated the texts, both would read a, it, b, it, c.
    for byte in 0..=u8::MAX {
        let texts = |key: &[u8], value: &[u8]| {
            but(|b| b.texts = vec![(key.to_vec(), value.to_vec())]).key()
        };
        assert_ne!(
            texts(b"a", &[b'b', byte, b'c']),
            texts(&[b'a', byte, b'b'], b"c"),
            "{byte}"
        );
    }
}

#[test]
fn texts_that_look_like_lengths_are_another_bucket() {
    // If a length had only one byte, or two, a text could hold the next one's length and look like
    // two: both of these would read 0, 1, x…x, 1, y.
    for width in [1, 2] {
        let one = &1_u64.to_le_bytes()[..width];
        let filling = vec![b'x'; (1 << (8 * width)) - width];
        let texts = |key: &[&[u8]], value: &[&[u8]]| {
            but(|b| b.texts = vec![(key.concat(), value.concat())]).key()
        };
        assert_ne!(
            texts(&[], &[&filling, one, b"y"]),
            texts(&[one, &filling], &[b"y"]),
            "{width}"
        );
    }
}

#[test]
fn values_are_bytes_of_any_kind_and_length() {
    let value = |value: &[u8]| but(|b| b.texts[0].1 = value.to_vec()).key();
    let long = vec![b'x'; 60 * 1_024];
    let mut longer = long.clone();
    longer.push(b'x');
    let mut other = long.clone();
    *other.last_mut().unwrap() = b'y';
    let keys = [
        value(&[0xff, 0xfe]),
        value(&[0xff]),
        value(&[0xc3]), // half of an ä
        value("ä".as_bytes()),
        value(&[0]),
        value(&[0, 0]),
        value(&long),
        value(&longer),
        value(&other),
    ];
    let distinct: std::collections::HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
}

fn buckets() -> impl Strategy<Value = Bucket> {
    // Few letters, and bytes that occur in lengths, so that two buckets are often almost the same.
    let text = || vec(select(&[0_u8, 1, 2, b'a', b'_'][..]), 0..=3);
    let name = select(&["", "a", "\u{1}", "aa"][..]).prop_map(str::to_owned);
    (
        text(),
        vec((text(), text()), 0..=2),
        select(&["fixed_window", "sliding_window", "token_bucket"][..]),
        (select(&[Unit::Second, Unit::Minute][..]), 1..=2_u32),
        name,
        any::<bool>(),
    )
        .prop_map(|(domain, texts, algorithm, window, name, is_override)| {
            let bucket = Bucket {
                domain,
                texts,
                algorithm,
                window,
                name,
                is_override,
            };
            bucket.sound()
        })
}

proptest! {
    #![proptest_config(random_cases(300))]

    #[test]
    fn two_buckets_share_a_key_only_when_they_are_one(buckets_seen in vec(buckets(), 2..=50)) {
        let mut seen = HashMap::new();
        for bucket in buckets_seen {
            let key = bucket.key();
            if let Some(twin) = seen.insert(key, bucket.clone()) {
                prop_assert_eq!(bucket, twin);
            }
        }
    }
}
