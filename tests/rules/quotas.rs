//! The field `rlqs`: every error with its message and position, and a valid form.
//!
//! How: rows as in `refused`.
//!
//! What it deliberately does not do: test what quotas do (`tests/service/quotas`).

use crate::reading::good;
use crate::refused::refused;

refused! {
    another_algorithm:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: second, requests_per_unit: 9, rlqs: true}
" => "FILE: rlqs with the algorithm fixed_window
  at FILE:4:60, descriptors[0].rate_limit
  help: write `algorithm: token_bucket`, which a proxy can enforce alone"

    a_burst:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, burst: 4, rlqs: true}
" => "FILE: 'burst' beside rlqs, which no proxy can obey
  at FILE:4:79, descriptors[0].rate_limit
  help: remove `burst`, or `rlqs`"

    unlimited:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, rlqs: true}
" => "FILE: 'rlqs' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `rlqs`, or `unlimited`"

    one_key_at_two_levels:
"domain: d
descriptors:
  - key: k
    descriptors:
      - key: k
        rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
" => "FILE: rlqs below two levels with the key 'k'
  at FILE:6:89, descriptors[0].descriptors[0]
  help: rename one of the keys: a bucket's id has each key once"

    a_pattern_of_keys:
"domain: d
descriptors:
  - key: k*
    rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
" => "FILE: rlqs below the pattern of keys 'k*'
  at FILE:4:85, descriptors[0]
  help: write the keys that bucket ids have"

    two_quotas_on_one_descriptor:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
      - {unit: hour, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
" => "FILE: two limits with rlqs on one descriptor
  at FILE:6:75, descriptors[0]
  help: keep one of them: a proxy is assigned one rate for a bucket"

    keys_in_two_orders:
"domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
  - key: b
    descriptors:
      - key: a
        rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
" => "FILE: rlqs below the keys of another such limit in another order
  at FILE:10:89, descriptors[1].descriptors[0]
  help: nest the keys in the same order: a bucket's id has no order, so it would fit both"
}

#[test]
fn quotas_of_other_keys_domains_and_values_are_apart() {
    let rules = good(
        "domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
      - key: b
        value: x
        rate_limit: {unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true}
    rate_limit: {unit: second, requests_per_unit: 9, algorithm: gcra, rlqs: true}
  - key: b
    rate_limit: {unit: second, requests_per_unit: 9, rlqs: false}
",
    );
    let quotas = rules.rules.rules().iter().filter(|rule| rule.rlqs);
    assert_eq!(quotas.count(), 3);
}
