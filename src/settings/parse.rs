//! Parsers of the values of settings: durations, sizes, ratios, booleans.

use std::time::Duration;

use clap::ValueEnum;

/// The word of a choice, as it is given on the command line.
pub(crate) fn word(choice: &impl ValueEnum) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |word| word.get_name().to_owned())
}

/// A ratio from 0 to 1.
pub(crate) fn ratio(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("use a number from 0 to 1, such as 0.5".to_owned()),
    }
}

/// A boolean, in the spellings that the reference reads.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// The longest duration. The clock can represent every date that it leads to.
const DURATION_MAX: Duration = Duration::from_secs(36_525 * 86_400);

/// A duration such as `5s`, `1h30m` or `150us`. A bare 0 is allowed, as by the reference.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = humantime::parse_duration(text).ok();
    duration
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| "use a number and a unit, such as 5s or 1h30m, up to 100 years".to_owned())
}

/// A duration above 0.
pub(crate) fn nonzero_duration(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    if length.is_zero() {
        return Err("use a duration above 0, such as 5s".to_owned());
    }
    Ok(length)
}

/// A size such as `64KiB`, `8MiB` or plain bytes, below 4 GiB.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    bytes(text)
        .filter(|bytes| u32::try_from(*bytes).is_ok())
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "use a number and KiB or MiB, such as 64KiB, below 4GiB".to_owned())
}

/// The minimum of `--memory-max`.
pub const MEMORY_MIN: u64 = 64 << 10;

/// A size of memory, at least [`MEMORY_MIN`].
pub(crate) fn memory_size(text: &str) -> Result<u64, String> {
    bytes(text)
        .filter(|bytes| *bytes >= MEMORY_MIN)
        .ok_or_else(|| "use a number and MiB or GiB, such as 512MiB, at least 64KiB".to_owned())
}

/// A size of at least `bytes_min`. `advice` says what to use instead of another one.
pub(crate) fn size_from(
    bytes_min: usize,
    advice: &'static str,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match size(text) {
        Ok(bytes) if bytes >= bytes_min => Ok(bytes),
        _ => Err(advice.to_owned()),
    }
}

pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let amount = digits.parse::<u64>().ok().filter(|amount| *amount > 0)?;
    amount.checked_mul(factor)
}

/// Whether a text is an address that Kubernetes puts into a variable for each Service, such as
/// `GRPC_PORT=tcp://10.0.0.1:8081` for one named `grpc`.
fn is_service_link(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("udp://")
}

/// A port.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| {
        if is_service_link(text) {
            "Kubernetes sets this variable for a Service of that name; set `enableServiceLinks: false` in the pod".to_owned()
        } else {
            "use a whole number from 0 to 65535".to_owned()
        }
    })
}

/// The port of a sink that may be off. What Kubernetes sets is 0: no port is set.
pub(crate) fn sink_port(text: &str) -> Result<u16, String> {
    if is_service_link(text) {
        return Ok(0);
    }
    port(text)
}

/// The permission bits of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileMode(pub u32);

/// Permissions in octal, as chmod takes them.
pub(crate) fn file_mode(text: &str) -> Result<FileMode, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .map(FileMode)
        .ok_or_else(|| "use octal permissions, such as 0660".to_owned())
}

/// The name of an HTTP header.
pub(crate) fn header_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || !text.bytes().all(allowed) {
        return Err("use the name of a header, such as RateLimit-Limit".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("use a whole number of at least 1".to_owned()),
    }
}
