//! The reference's rules errors, row by row: its exact message, then position, path and advice.
//!
//! How: each row is a test. Its text is the file; the position is that of the text to fix, counted
//! from 1, like in an editor.
//!
//! Where the reference repeats an error of its YAML library, only the beginning is equal. The
//! reference reports a random one of several invalid names; tollgate reports all.
//!
//! What it deliberately does not do: several problems in one file (`misplaced`), fields that only
//! tollgate has (`limits`).

use tollgate_test_support::rules_grammar::with_names;

use crate::reading::{APART, bad, source, words};

/// Asserts the printed problems of a file, usually one; `FILE` is its name.
pub(crate) fn is_refused(text: &str, expected: &str) {
    let problems = bad(text);
    let told: Vec<_> = problems.iter().map(words).collect();
    let expected = with_names(&expected.replace("FILE", "rules.yaml"));
    assert_eq!(told.join("\n"), expected, "{text}");
}

/// One test per row: its name, the file, the printed problems.
macro_rules! refused {
    ($($name:ident: $text:literal => $expected:literal)*) => {$(
        #[test]
        fn $name() {
            $crate::refused::is_refused($text, $expected);
        }
    )*};
}
pub(crate) use refused;

refused! {
    a_syntax_error_is_reported_at_the_parsers_position:
"domain: d
descriptors: [{key: k
" => "FILE: error loading config file: yaml: while parsing a flow mapping, did not find expected ',' or '}'
  at FILE:3:1
  help: fix the YAML syntax here"

    a_root_that_is_a_list:
"- domain: d
" => "FILE: error loading config file: yaml: cannot read a list as a mapping
  at FILE:1:1
  help: write `key: value` pairs here"

    a_root_that_is_a_scalar:
"domain
" => "FILE: error loading config file: yaml: cannot read domain as a mapping
  at FILE:1:1
  help: write `key: value` pairs here"

    descriptors_that_are_no_list:
"domain: d
descriptors: {key: k}
" => "FILE: error loading config file: yaml: descriptors is not a list
  at FILE:2:14
  help: write a list: `- key: NAME`"

    a_negative_number_of_requests:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: -1}
" => "FILE: error loading config file: yaml: requests_per_unit is not a whole number from 0 to 4294967295
  at FILE:4:48, descriptors[0].rate_limit
  help: write a number from 0 to 4294967295"

    a_number_beyond_32_bits:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 4294967296}
" => "FILE: error loading config file: yaml: requests_per_unit is not a whole number from 0 to 4294967295
  at FILE:4:48, descriptors[0].rate_limit
  help: write a number from 0 to 4294967295"

    a_number_in_quotes:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: '5'}
" => "FILE: error loading config file: yaml: requests_per_unit is not a whole number from 0 to 4294967295
  at FILE:4:48, descriptors[0].rate_limit
  help: write `5`"

    a_boolean_in_quotes:
"domain: d
descriptors:
  - key: k
    shadow_mode: 'true'
" => "FILE: error loading config file: yaml: shadow_mode is not true or false
  at FILE:4:18, descriptors[0]
  help: write `true`"

    a_boolean_that_is_a_number:
"domain: d
descriptors:
  - key: k
    quota_mode: 1
" => "FILE: error loading config file: yaml: quota_mode is not true or false
  at FILE:4:17, descriptors[0]
  help: write `true`"

    a_text_that_is_a_mapping:
"domain: d
descriptors:
  - key: k
    value: {a: b}
" => "FILE: config error, unknown key 'a'
  at FILE:4:13, descriptors[0].value
  help: remove it"

    an_alias_without_an_anchor:
"domain: *d
" => "FILE: error loading config file: yaml: while parsing node, found unknown anchor
  at FILE:1:9
  help: define the anchor first: `&name`; put the value in quotes if the `*` is text"

    a_merge_of_a_scalar:
"domain: d
descriptors:
  - <<: x
    key: k
" => "FILE: error loading config file: yaml: map merge requires map or sequence of maps as the value
  at FILE:3:9, descriptors[0]
  help: write the alias of a mapping: `<<: *name`"

    a_key_that_is_a_number:
"domain: d
descriptors:
  - key: k
    5: five
" => "FILE: config error, key is not of type string: 5
  at FILE:4:5, descriptors[0]
  help: write a name, or put it in quotes"

    a_key_that_is_true:
"domain: d
yes: no
" => "FILE: config error, key is not of type string: yes
  at FILE:2:1
  help: write a name, or put it in quotes"

    a_key_that_is_a_list:
"domain: d
? [a]
: b
" => "FILE: config error, key is not of type string: a list or a mapping
  at FILE:2:3
  help: write a name, or put it in quotes"

    an_unknown_name:
"domain: d
descriptors:
  - key: k
    ratelimit: {unit: day}
" => "FILE: config error, unknown key 'ratelimit'
  at FILE:4:5, descriptors[0]
  help: did you mean `rate_limit`?"

    a_name_in_capitals_is_unknown:
"Domain: d
domain: d
" => "FILE: config error, unknown key 'Domain'
  at FILE:1:1
  help: remove it; `domain` is set as well"

    an_unknown_name_in_a_limit:
"domain: d
descriptors:
  - key: k
    rate_limit:
      unit: day
      requests_per_units: 5
" => "FILE: config error, unknown key 'requests_per_units'
  at FILE:6:7, descriptors[0].rate_limit
  help: did you mean `requests_per_unit`?"

    a_list_of_scalars:
"domain: d
descriptors:
  - key
" => "FILE: config error, yaml file contains list of type other than map: key
  at FILE:3:5, descriptors[0]
  help: write `key: value` pairs here"

    a_float:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 1.5}
" => "FILE: error checking config
  at FILE:4:48, descriptors[0].rate_limit
  help: requests_per_unit is a whole number"

    a_float_where_text_belongs:
"domain: d
descriptors:
  - key: version
    value: 1.5
" => "FILE: error checking config
  at FILE:4:12, descriptors[0]
  help: put it in quotes if it is text: `value: \"1.5\"`"

    infinity:
"domain: .inf
" => "FILE: error checking config
  at FILE:1:9
  help: put it in quotes if it is text: `domain: \".inf\"`"

    a_number_with_an_exponent:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 1e3}
" => "FILE: error checking config
  at FILE:4:48, descriptors[0].rate_limit
  help: write `1000`"

    an_integer_beyond_64_bits:
"domain: d
descriptors:
  - key: k
    value: 9223372036854775808
" => "FILE: error checking config
  at FILE:4:12, descriptors[0]
  help: put it in quotes if it is text: `value: \"9223372036854775808\"`"

    an_empty_file:
"" => "FILE: config file cannot have empty domain
  at FILE:1:1
  help: add `domain: NAME`, the domain that Envoy's rate limit filter names"

    a_file_of_comments:
"# nothing
---
# yet
" => "FILE: config file cannot have empty domain
  at FILE:1:1
  help: add `domain: NAME`, the domain that Envoy's rate limit filter names"

    no_domain:
"descriptors:
  - key: k
" => "FILE: config file cannot have empty domain
  at FILE:1:1
  help: add `domain: NAME`, the domain that Envoy's rate limit filter names"

    an_empty_domain:
"domain: ''
" => "FILE: config file cannot have empty domain
  at FILE:1:9
  help: add `domain: NAME`, the domain that Envoy's rate limit filter names"

    a_null_domain:
"domain: ~
" => "FILE: config file cannot have empty domain
  at FILE:1:9
  help: add `domain: NAME`, the domain that Envoy's rate limit filter names"

    a_descriptor_without_a_key:
"domain: d
descriptors:
  - value: v
" => "FILE: descriptor has empty key
  at FILE:3:5, descriptors[0]
  help: add `key: NAME`, the descriptor key that Envoy sends"

    a_descriptor_with_an_empty_key:
"domain: d
descriptors:
  - key: k
    descriptors:
      - key: ''
" => "FILE: descriptor has empty key
  at FILE:5:14, descriptors[0].descriptors[0]
  help: add `key: NAME`, the descriptor key that Envoy sends"

    duplicate_siblings:
"domain: d
descriptors:
  - key: a
    descriptors:
      - {key: b, value: c}
      - {key: b}
      - {key: b, value: c}
" => "FILE: duplicate descriptor composite key 'd.a.b_c'
  at FILE:7:25, descriptors[0].descriptors[2]
  help: merge the two descriptors, or give one of them another value"

    an_unknown_unit:
"domain: d
descriptors:
  - key: k
    rate_limit:
      unit: fortnight
      requests_per_unit: 1
" => "FILE: invalid rate limit unit 'fortnight'
  at FILE:5:13, descriptors[0].rate_limit
  help: use one of second, minute, hour, day, week, month, year"

    a_unit_called_unknown:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: UNKNOWN}
" => "FILE: invalid rate limit unit 'UNKNOWN'
  at FILE:4:24, descriptors[0].rate_limit
  help: use one of second, minute, hour, day, week, month, year"

    an_empty_limit:
"domain: d
descriptors:
  - key: k
    rate_limit: {}
" => "FILE: invalid rate limit unit ''
  at FILE:4:17, descriptors[0].rate_limit
  help: add `unit`: one of second, minute, hour, day, week, month, year"

    a_limit_without_a_unit:
"domain: d
descriptors:
  - key: k
    rate_limit:
      requests_per_unit: 5
" => "FILE: invalid rate limit unit ''
  at FILE:5:7, descriptors[0].rate_limit
  help: add `unit`: one of second, minute, hour, day, week, month, year"

    unlimited_with_a_unit:
"domain: d
descriptors:
  - key: k
    rate_limit:
      unlimited: true
      unit: Day
" => "FILE: should not specify rate limit unit when unlimited
  at FILE:6:13, descriptors[0].rate_limit
  help: remove `unit`, or remove `unlimited`"

    an_empty_replaces_entry:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, replaces: [{name: other}, {name: }]}
" => "FILE: should not have an empty replaces entry
  at FILE:4:55, descriptors[0].rate_limit.replaces[1]
  help: name the rule to replace, or remove the entry"

    a_rule_that_replaces_itself:
"domain: d
descriptors:
  - key: k
    rate_limit:
      unit: day
      name: me
      replaces:
        - name: me
" => "FILE: replaces should not contain name of same descriptor
  at FILE:8:11, descriptors[0].rate_limit.replaces[0]
  help: remove the entry: a rule cannot replace itself"

    share_threshold_without_a_star:
"domain: d
descriptors:
  - key: files
    value: a
    share_threshold: true
" => "FILE: share_threshold can only be used with wildcard values (containing '*'), but found key 'files_a'
  at FILE:5:22, descriptors[0]
  help: remove share_threshold, or match several values: by a pattern such as `files/*`, by `values`, `cidr` or `regex`"

    share_threshold_without_a_value:
"domain: d
descriptors:
  - {key: files, share_threshold: true}
" => "FILE: share_threshold can only be used with wildcard values (containing '*'), but found key 'files'
  at FILE:3:35, descriptors[0]
  help: remove share_threshold, or match several values: by a pattern such as `files/*`, by `values`, `cidr` or `regex`"

    metadata_that_does_not_fit_a_struct:
"domain: d
descriptors:
  - key: k
    metadata:
      deep: {[5]: five}
" => "FILE: error parsing metadata: a key is not of type string
  at FILE:5:14, descriptors[0].metadata
  help: write a name as the key"

    metadata_that_is_no_mapping:
"domain: d
descriptors:
  - key: k
    metadata: [a]
" => "FILE: error loading config file: yaml: metadata is not a mapping
  at FILE:4:15, descriptors[0].metadata
  help: write `key: value` pairs"
}

#[test]
fn two_files_of_one_domain() {
    let files = [
        source("one.yaml", "domain: d\n"),
        source("two.yaml", "# the same\ndomain: d\n"),
    ];
    let problems = tollgate::rules::file::load(&files, APART)
        .unwrap_err()
        .errors;
    let expected = "two.yaml: duplicate domain 'd' in config file
  at two.yaml:2:9
  help: keep all rules of a domain in one file, or set MERGE_DOMAIN_CONFIG=true";
    assert_eq!(problems.len(), 1);
    assert_eq!(words(&problems[0]), expected);
}

#[test]
fn pairs_that_are_equal_only_when_joined_are_two_rules() {
    // The reference rejects these, because it joins key and value by `_`. tollgate compares keys.
    crate::reading::good(
        "domain: d\ndescriptors: [{key: a, value: b_c}, {key: a_b, value: c}, {key: a_b_c}]\n",
    );
}
