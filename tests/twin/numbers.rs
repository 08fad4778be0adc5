//! The script's arithmetic against 128 bits, at random and near the limits of exactness.
//!
//! The histories reach such numbers too, but not every one that a double might round.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use redis::Value;
use tollgate_limiter::Timestamp;
use tollgate_test_support::redis_server::RedisServer;

use super::connection::Connection;

/// Returns for each line of four numbers a quotient and a remainder, then the limbs of a sum.
const HARNESS: &str = "
local out = {}
for place = 1, #ARGV do
  local a, b, c, d = struct.unpack('<I7I7I7I7', ARGV[place])
  local quotient, rest = 0, 0
  if d == 1 then quotient, rest = multiply_divide(a, b, c) end
  local low, above = wide(a, b, c, b)
  out[place] = struct.pack('<I7I7I7I2', quotient, rest, low, above)
end
return table.concat(out)";

/// The names that `script::text` replaces with numbers.
const NAMES: &str = "
local SPLITTER, TWO_13, TWO_40, TWO_53, MAX = 2 ^ 27 + 1, 2 ^ 13, 2 ^ 40, 2 ^ 53, 2 ^ 53 - 1
local NOT_COUNTED = 0
";

const CALLS: usize = 40;
const LINES: usize = 500;
const ANSWER_LEN: usize = 23;

#[derive(Clone, Copy, Debug)]
struct Line {
    a: u64,
    b: u64,
    c: u64,
}

// === impl Line ===

impl Line {
    /// Whether the quotient is defined.
    fn divides(self) -> bool {
        self.c > 0 && self.product() / u128::from(self.c) <= u128::from(Timestamp::MAX_US)
    }

    fn product(self) -> u128 {
        u128::from(self.a) * u128::from(self.b)
    }

    fn packed(self) -> Vec<u8> {
        [self.a, self.b, self.c, u64::from(self.divides())]
            .iter()
            .flat_map(|number| number.to_le_bytes()[..7].to_vec())
            .collect()
    }

    /// The right answer.
    fn answer(self) -> [u128; 3] {
        let (quotient, rest) = if self.divides() {
            let c = u128::from(self.c);
            (self.product() / c, self.product() % c)
        } else {
            (0, 0)
        };
        let sum = self.product() + u128::from(self.c) + u128::from(self.b);
        [quotient, rest, sum.min(u64::MAX.into())]
    }
}

fn lines() -> impl Strategy<Value = Line> {
    let any_of = |bits: std::ops::RangeInclusive<u32>| {
        (bits, any::<u64>(), 0..=2_u64, any::<bool>()).prop_map(|(bits, number, near, round)| {
            let most = (1_u64 << bits) - 1;
            // Doubles round at powers of two and their neighbours.
            if round {
                most.saturating_add(1)
                    .saturating_sub(near)
                    .min(Timestamp::MAX_US)
            } else {
                number & most
            }
        })
    };
    let plain =
        (any_of(1..=53), any_of(1..=53), any_of(1..=53)).prop_map(|(a, b, c)| Line { a, b, c });
    // A product that is a multiple of the divisor, and its neighbours.
    let even = (any_of(1..=53), any_of(1..=38), any_of(1..=20)).prop_map(|(b, c, times)| Line {
        a: (c * times).min(Timestamp::MAX_US),
        b,
        c,
    });
    prop_oneof![3 => plain, 1 => even]
}

fn asked(connection: &mut Connection, text: &str, lines: &[Line]) -> Vec<[u128; 3]> {
    let packed: Vec<_> = lines.iter().map(|line| line.packed()).collect();
    let mut words = vec![b"EVAL".as_slice(), text.as_bytes(), b"0"];
    words.extend(packed.iter().map(Vec::as_slice));
    let Value::BulkString(reply) = connection.ask(&words) else {
        panic!("the script failed");
    };
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u128::from(*byte))
    };
    let answers = reply.chunks(ANSWER_LEN).map(|answer| {
        let sum = number(&answer[14..21]) | number(&answer[21..]) << 53;
        [number(&answer[..7]), number(&answer[7..14]), sum]
    });
    answers.collect()
}

#[test]
fn products_quotients_and_sums_are_exact() {
    let text = format!(
        "{NAMES}{}{HARNESS}",
        include_str!("../../crates/store-redis/src/script/numbers.lua")
    );
    let server = RedisServer::start(&[]);
    let mut connection = Connection::open(&server);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut divided = 0;
    for _ in 0..CALLS {
        let asking = proptest::collection::vec(lines(), LINES);
        let lines = asking.new_tree(&mut runner).unwrap().current();
        divided += lines.iter().filter(|line| line.divides()).count();
        let answers = asked(&mut connection, &text, &lines);
        assert_eq!(answers.len(), LINES);
        for (line, answer) in lines.iter().zip(answers) {
            assert_eq!(answer, line.answer(), "{line:?}");
        }
    }
    assert!(divided > CALLS * LINES / 4, "only {divided} were divided");
}
