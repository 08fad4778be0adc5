//! Periods: `1s`, `15m`, `12h`, `7d`, `1.5h`, and time spans such as `00:15:00`.

use crate::convert::window::Window;

/// The window of a period; none if it has no whole seconds, or is no period.
pub(super) fn period(text: &str) -> Option<Window> {
    let unit = text.chars().last()?;
    let number = text.strip_suffix(unit)?;
    let seconds: u64 = match unit.to_ascii_lowercase() {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_number = !number.is_empty() && number != "." && digits(whole) && digits(fraction);
    if !is_number || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let fraction: u64 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let scaled = whole
        .checked_mul(scale)?
        .checked_add(fraction)?
        .checked_mul(seconds)?;
    (scaled % scale == 0)
        .then(|| Window::of_seconds(scaled / scale))
        .flatten()
}

/// The window of a time span `[d.]hh:mm:ss`.
pub(super) fn time_span(text: &str) -> Option<Window> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let numbers = [(days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)];
    let mut total: u64 = 0;
    for (number, seconds) in numbers {
        let number: u64 = number.parse().ok()?;
        total = total.checked_add(number.checked_mul(seconds)?)?;
    }
    parts
        .next()
        .is_none()
        .then(|| Window::of_seconds(total))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_whole_seconds() {
        let seconds = |text| period(text).map(|window| window.seconds);
        assert_eq!(seconds("1s"), Some(1));
        assert_eq!(seconds("15m"), Some(900));
        assert_eq!(seconds("1.5h"), Some(5_400));
        assert_eq!(seconds("7d"), Some(604_800));
        for text in ["", "s", ".s", "0.5s", "-1s", "1w", "1 s", "1e3s", "0m"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(time_span("1.02:03:04").map(|it| it.seconds), Some(93_784));
        assert_eq!(time_span("00:15"), None);
    }
}
