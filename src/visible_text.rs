//! Text of other programs, on a terminal or a page: keys and values that clients chose.
//!
//! Control characters could move the cursor or set the terminal's title. Characters of invisible
//! format could reorder a line. Both are shown escaped.

/// The text with every control and format character escaped.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a character has no shape of its own, or changes the place of others.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_format_characters_are_escaped() {
        for (text, shown) in [
            ("plain=値, é", "plain=値, é"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
            ("\u{200b}\u{feff}\u{9b}31m", "\\u{200b}\\u{feff}\\u{9b}31m"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
