//! Commands of the Redis protocol: arrays of strings, and lines.
//!
//! A client sends nothing else, in RESP2 and RESP3 alike. Why no crate: those that are maintained
//! read replies of a trusted server. They recurse into arrays, reserve what a length announces, or
//! fail on a length that is not whole yet.

/// Most arguments of a command, its name included.
pub const ARGUMENTS_MAX: usize = 256;

/// Most bytes of a command.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Most bytes of a number, with its end.
const NUMBER_BYTES_MAX: usize = 22;

/// The arguments of a command, and how many bytes it has.
pub type Command<'a> = (Vec<&'a [u8]>, usize);

/// Reads the first command; none if it is not whole. A command may be empty.
///
/// # Errors
///
/// Why the connection is to be closed.
pub fn read(input: &[u8]) -> Result<Option<Command<'_>>, &'static str> {
    let command = match input.first() {
        None => return Ok(None),
        Some(b'*') => array(input)?,
        Some(_) => line(input)?,
    };
    if command.is_none() && input.len() > COMMAND_BYTES_MAX {
        return Err("too big command");
    }
    Ok(command)
}

fn array(input: &[u8]) -> Result<Option<Command<'_>>, &'static str> {
    let Some((count, mut at)) = number(input, 1, "invalid multibulk length")? else {
        return Ok(None);
    };
    let count = usize::try_from(count).unwrap_or_default();
    if count > ARGUMENTS_MAX {
        return Err("invalid multibulk length");
    }
    let mut arguments = Vec::new();
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err("expected '$'"),
        }
        let invalid = "invalid bulk length";
        let Some((length, start)) = number(input, at.saturating_add(1), invalid)? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| invalid)?;
        let end = start.saturating_add(length);
        at = end.saturating_add(2);
        if at > COMMAND_BYTES_MAX {
            return Err("too big command");
        }
        let Some(after) = input.get(end..at) else {
            return Ok(None);
        };
        if after != b"\r\n" {
            return Err(invalid);
        }
        arguments.push(input.get(start..end).unwrap_or_default());
    }
    Ok(Some((arguments, at)))
}

/// The number at a place, and the place behind its line; none if the line is not whole.
fn number(
    input: &[u8],
    at: usize,
    invalid: &'static str,
) -> Result<Option<(i64, usize)>, &'static str> {
    let rest = input.get(at..).unwrap_or_default();
    let shown = rest.get(..NUMBER_BYTES_MAX).unwrap_or(rest);
    let Some(length) = shown.iter().position(|byte| *byte == b'\n') else {
        let is_whole = shown.len() < NUMBER_BYTES_MAX;
        return if is_whole { Ok(None) } else { Err(invalid) };
    };
    let text = shown
        .get(..length)
        .and_then(|line| line.strip_suffix(b"\r"));
    let text = text.and_then(|text| str::from_utf8(text).ok());
    let number = text.and_then(|text| text.parse().ok()).ok_or(invalid)?;
    Ok(Some((number, at.saturating_add(length).saturating_add(1))))
}

fn line(input: &[u8]) -> Result<Option<Command<'_>>, &'static str> {
    let shown = input.get(..LINE_BYTES_MAX).unwrap_or(input);
    let Some(length) = shown.iter().position(|byte| *byte == b'\n') else {
        let is_whole = shown.len() < LINE_BYTES_MAX;
        return if is_whole {
            Ok(None)
        } else {
            Err("too big inline request")
        };
    };
    let words = shown.get(..length).unwrap_or_default();
    let words = words.split(u8::is_ascii_whitespace);
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let name = words.first().copied().unwrap_or_default();
    // A page of a browser can send lines to any port.
    if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:") {
        return Err("this is no HTTP listener");
    }
    if words.len() > ARGUMENTS_MAX {
        return Err("too big inline request");
    }
    Ok(Some((words, length.saturating_add(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_once_it_is_whole() {
        let whole = b"*3\r\n$4\r\nPING\r\n$0\r\n\r\n$2\r\n\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{end}");
        }
        let arguments: Vec<&[u8]> = vec![b"PING", b"", b"\r\n"];
        assert_eq!(read(whole), Ok(Some((arguments, whole.len()))));
        let more = [&whole[..], b"*1"].concat();
        assert_eq!(read(&more).unwrap().unwrap().1, whole.len());
        assert_eq!(read(b"*0\r\n"), Ok(Some((vec![], 4))));
        assert_eq!(read(b"*-1\r\n"), Ok(Some((vec![], 5))));
        let words: Vec<&[u8]> = vec![b"ping", b"a"];
        assert_eq!(read(b" ping  a\r\nx"), Ok(Some((words, 10))));
        assert_eq!(read(b"ping"), Ok(None));
    }

    #[test]
    fn bombs_are_refused_before_they_are_read() {
        for (input, why) in [
            (&b"*1000000000\r\n"[..], "invalid multibulk length"),
            (b"*99999999999999999999999", "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1\n", "invalid multibulk length"),
            (b"*1\r\n*1\r\n", "expected '$'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1073741824\r\n", "too big command"),
            (b"*1\r\n$1\r\nabc", "invalid bulk length"),
            (b"POST / HTTP/1.1\r\n", "this is no HTTP listener"),
            (&[b'x'; LINE_BYTES_MAX], "too big inline request"),
        ] {
            assert_eq!(
                read(input),
                Err(why),
                "{:?}",
                String::from_utf8_lossy(input)
            );
        }
    }
}
