//! Planted bugs in the script: each must be found, or the twin tests do not work.
//!
//! How: a bug replaces one piece of the script. The test fails if the piece is missing, so a change
//! of the script cannot silently disable a bug. (In the text that is sent, names of numbers are
//! replaced by the numbers.)
//!
//! | bug | algorithm tested |
//! | --- | --- |
//! | a quotient is not corrected after the first guess | sliding window |
//! | products keep no lower limb | token bucket |
//! | bits above 2^53 of a time are lost | token bucket in steps |
//! | the sum of a time and its delay wraps | fixed window |
//! | the first clock law is missing; a delay is not reported; the second law is missing; marks stay in the future | several |
//! | a take in a lost future is refunded | fixed window |
//! | a peek is written; a denial is not | fixed window |
//! | denied hits have no debt allowance; or an unlimited one | several |
//! | the short way of takes ignores a later time, an earlier window or the limit, or writes nothing | fixed window |
//! | `count_refused: blocking` causes no debt in fixed windows | fixed window |
//! | the next window of a calendar is not read; a calendar ends at once | fixed window |
//! | straddling hits pass; an edge belongs to the window before | fixed window, sliding window |
//! | the previous window is weighted by the elapsed time | sliding window |
//! | a part of a hit is rounded in the caller's favour | token bucket |
//! | a part of a hit is kept in the fraction's own unit | token bucket |
//! | a refund restores hits that were already refilled | both token buckets |
//! | a step fills once however many were crossed | token bucket in steps |
//! | a mark of exactly a window's age counts | sliding log |
//! | marks of one instant are not merged; a mark is inserted before older ones | sliding log, segments |
//! | segments rounded down | segments |
//! | a refund takes the oldest hits | sliding log |
//! | a refund frees other holders' slots; a peek renews nothing | concurrency |

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use tollgate::store::redis::script;
use tollgate_limiter::algorithm;

use crate::agreement::challenge;

/// The same histories in every run: a fault that is found once is found every time.
fn repeatable() -> TestRunner {
    let config = Config {
        cases: 4_000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// The script with one piece replaced.
fn with(piece: &str, otherwise: &str) -> String {
    let text = script::text();
    let piece = script::with_numbers(piece);
    assert!(text.contains(&piece), "{piece}");
    text.replace(&piece, &script::with_numbers(otherwise))
}

fn must_be_found(name: &str, text: &str) {
    let algorithm = algorithm::from_name(name).unwrap();
    match challenge(text, algorithm, repeatable()) {
        Ok(()) => panic!("{name}: the tests did not find the bug"),
        Err(TestError::Fail(..)) => {}
        Err(other) => panic!("{name}: {other}"),
    }
}

/// A name, the algorithms, the piece and its replacement.
macro_rules! planted {
    ($($bug:ident in $($algorithm:ident),+: $piece:literal => $otherwise:literal;)+) => {$(
        #[test]
        fn $bug() {
            let text = with($piece, $otherwise);
            $(must_be_found(stringify!($algorithm), &text);)+
        }
    )+};
}

planted! {
    a_quotient_is_not_mended in sliding_window:
        "if rest >= 0 and rest < c then break end" => "do break end";
    products_keep_no_lower_limb in token_bucket:
        ", low0\nend" => ", 0\nend";
    what_lies_above_is_lost in token_bucket_interval:
        "+ low0, above" => "+ low0, 0";
    a_sum_does_not_carry in fixed_window:
        "- by), above" => "- by), 0";
    the_first_law_is_forgotten in fixed_window, token_bucket, sliding_log:
        "if seen > at then at = seen end" => "";
    a_delay_is_not_told in fixed_window, token_bucket:
        "if at > now then" => "if false then";
    the_second_law_is_forgotten in fixed_window, concurrency:
        "local brought_back = seen - now > window" => "local brought_back = false";
    marks_stay_in_the_future in sliding_log, concurrency:
        "if marks ~= '' then marks = marks_brought_back" => "if false then marks = marks_brought_back";
    marks_are_brought_back_too_far in sliding_log:
        "pack('<I7', at - by)" => "pack('<I7', 0)";
    a_lost_future_is_given_back in fixed_window:
        "taken_at > at then" => "false then";
    everything_is_written in fixed_window:
        "if changed or brought_back or kind == CHARGE and hits > 0 then" => "if true then";
    nothing_refused_is_written in fixed_window, sliding_window:
        "if changed or brought_back or kind == CHARGE and hits > 0 then" => "if changed and allowed or brought_back then";
    debt_has_no_bound in sliding_window, token_bucket, sliding_log:
        "if hits < spare then return hits end" => "do return hits end";
    debt_is_one_burst_in_all in sliding_window, leaky_bucket:
        "local spare = 2 * burst - used" => "local spare = burst - used";
    refused_hits_are_in_debt_by_default in fixed_window:
        "if refused ~= 1 then" => "do";
    the_next_window_is_not_looked_at in fixed_window:
        "for number = 1, boundaries - 1 do" => "for number = 1, 1 do";
    a_calendar_ends_at_once in fixed_window:
        "if to_edge < 1 then to_edge = 1 end" => "";
    the_edge_belongs_to_the_window_before in fixed_window:
        "if seen >= start then before = count end" => "if seen + 1 >= start then before = count end";
    the_short_way_forgets_the_first_law in fixed_window:
        "version == VERSION and seen <= now and" => "version == VERSION and";
    the_short_way_never_turns_a_window in fixed_window:
        "if seen < now - now % window then count = 0 end" => "";
    the_short_way_lets_one_more_pass in fixed_window:
        "if count <= requests then" => "if count <= requests + 1 then";
    the_short_way_writes_nothing in fixed_window:
        "heads[key] = head\n" => "\n";
    counts_wrap in fixed_window:
        "before, hits) end\n      if after > 9007199254740991 then" => "before, hits) end\n      if false then";
    an_undone_take_of_a_turned_window_comes_back in fixed_window:
        "or taken_at >= start then" => "or true then";
    a_begun_hit_passes in sliding_window:
        "if used + hits <= requests then" => "if present + weighs + hits <= requests then";
    weighs_by_what_has_gone in sliding_window:
        "local weighs, parts = multiply_divide(to_edge, previous, window)" => "local weighs, parts = multiply_divide(elapsed, previous, window)";
    keeps_a_window_too_long in sliding_window:
        "if seen >= start - window then" => "if seen >= start - 2 * window then";
    retry_looks_only_at_the_next_window in sliding_window:
        "if spare >= present then at = weight_fits_at" => "if false then at = weight_fits_at";
    rounds_in_the_callers_favour in token_bucket:
        "parts = (part - parts) / reduced_by + (parts > 0 and 1 or 0)" => "parts = (part - parts) / reduced_by";
    a_part_is_kept_in_its_own_unit in token_bucket:
        "after_parts * reduced_by, changed" => "after_parts, changed";
    a_bucket_refills_whole_hits in token_bucket, leaky_bucket:
        "whole, parts = whole - filled, parts - filled_parts" => "whole = whole - filled";
    reset_is_early in token_bucket:
        "if rest > 0 then return (near - rest) / rate_hits + 1 end" => "if rest > 0 then return (near - rest) / rate_hits end";
    a_long_reset_is_early in token_bucket:
        "quotient = quotient + 1\n" => "quotient = quotient + 0\n";
    what_has_come_again_is_given_back in token_bucket:
        "weighs, weighs_parts = hits - come, -come_parts" => "weighs, weighs_parts = hits, 0";
    what_has_come_in_steps_is_given_back in token_bucket_interval:
        "weighs = hits - requests * (" => "weighs = hits - 0 * (";
    one_step_fills_however_many_were_crossed in token_bucket_interval:
        "local before = missing - requests * edges" => "local before = missing - requests * (edges > 0 and 1 or 0)";
    steps_wait_one_too_few in token_bucket_interval:
        "local further = missing - 1" => "local further = missing - 2";
    a_mark_counts_at_a_windows_age in sliding_log, concurrency:
        "if at > till then break end" => "if at >= till then break end";
    marks_of_an_instant_are_not_joined in sliding_log:
        "if its_at ~= at then break end" => "do break end";
    anothers_mark_is_joined in concurrency:
        "if cut(marks, same - width + 12, same - 1) == holder then" => "do";
    marks_are_put_at_the_end in sliding_window_segments:
        "while place > 1 and unpack_numbers('<I7', marks, place - width) > at do" => "while false do";
    segments_are_cut_short in sliding_window_segments:
        "if rest > 0 then start = start + 1 end" => "";
    a_give_back_takes_the_oldest in sliding_log:
        "kind == 2 and marked_at, ''" => "false, ''";
    a_give_back_finds_the_wrong_mark in sliding_log, concurrency:
        "< only_at then" => "<= only_at then";
    anybodys_slots_are_freed in concurrency:
        "if cut(marks, place + 12, place + width - 1) == holder then" => "do";
    a_peek_renews_no_slot in concurrency:
        "if holder ~= '\\0\\0\\0\\0\\0\\0\\0\\0' and marks ~= '' then" => "if false then";
    a_look_renews_what_is_nobodys in concurrency:
        "if holder ~= '\\0\\0\\0\\0\\0\\0\\0\\0' and marks ~= '' then" => "if marks ~= '' then";
    retry_is_when_the_oldest_leaves in sliding_log:
        "sum = sum + its_hits" => "sum = hits";
}
