//! Phrases that no text for a reader may contain: help, documentation, errors, logs, metric help.
//!
//! The list is data, so that every test of a text uses the same one. A phrase matches whole words,
//! in any case, also across a line break. A hyphen or an underscore is part of a word: `--door` and
//! `no_room_total` are names, not phrases.

use std::fmt;

/// A banned phrase and the plain way to write it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BannedPhrase {
    /// In lower case, with single spaces.
    pub phrase: &'static str,
    /// The plain way to write it.
    pub instead: &'static str,
}

/// A banned phrase in a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// The phrase.
    pub banned: BannedPhrase,
}

const fn banned(phrase: &'static str, instead: &'static str) -> BannedPhrase {
    BannedPhrase { phrase, instead }
}

const DEFAULT: &str = "write `default: X`";
const SUBJECT: &str = "name the subject: the client, the caller, the operator, the service";
const VERB: &str = "use a plain verb of the thing itself: receives, is set to, runs, is in";
const PLAIN: &str = "say it in standard terms: subject, verb, object";
const FACT: &str = "state the fact: what happens, when, and the bound";

/// Rules 2, 5 and 8 of the house style: riddles, personification, hidden defaults, and the phrases
/// that the style's table replaces.
pub const BANNED_PHRASES: &[BannedPhrase] = &[
    // Defaults.
    banned("unless said", DEFAULT),
    banned("unless it is said", DEFAULT),
    banned("unless told", DEFAULT),
    banned("unless it is told", DEFAULT),
    banned("unless otherwise told", DEFAULT),
    banned("unless otherwise said", DEFAULT),
    banned("unless one says", DEFAULT),
    banned("unless you say", DEFAULT),
    banned("if nothing is said", DEFAULT),
    banned("where nothing is said", DEFAULT),
    banned("when nothing is said", DEFAULT),
    banned("if nothing else is said", DEFAULT),
    // Riddles about people.
    banned("whoever", SUBJECT),
    banned("whomever", SUBJECT),
    banned("whosoever", SUBJECT),
    banned("those who", SUBJECT),
    banned("those whom", SUBJECT),
    banned("he who", SUBJECT),
    banned("for whom", SUBJECT),
    banned("of whom", SUBJECT),
    banned("to whom", SUBJECT),
    banned("by whom", SUBJECT),
    banned("with whom", SUBJECT),
    banned("whom nobody", SUBJECT),
    banned("nobody else", SUBJECT),
    banned("no one else", SUBJECT),
    banned(
        "everybody knows",
        "write `default`, `public` or `well known`",
    ),
    banned("nobody can make", "write what is prevented"),
    banned("the caller's caller", "write `the client`"),
    banned("who we say we are", "write `the ID of this node`"),
    banned("we say of ourselves", "write `metadata of this node`"),
    banned("who asks", SUBJECT),
    banned("who goes first", "write `priority`"),
    // Personification.
    banned("is told", VERB),
    banned("are told", VERB),
    banned("was told", VERB),
    banned("were told", VERB),
    banned("be told", VERB),
    banned("being told", VERB),
    banned("told of", VERB),
    banned("told otherwise", DEFAULT),
    banned("sits", VERB),
    banned("sit in", VERB),
    banned("sat in", VERB),
    banned("sitting", VERB),
    banned("believes", "write `trusts` or `uses`"),
    banned("believe in", "write `trusts` or `uses`"),
    banned("gone to sleep", VERB),
    banned("comes back to life", VERB),
    banned("come anew", "write `reconnect`"),
    banned("comes anew", "write `reconnects`"),
    banned("turn away in time", VERB),
    banned("speaks of", VERB),
    banned("speak of", VERB),
    // House phrases.
    banned("by and by", "write `continuously`"),
    banned("as good as new", "write `idle`"),
    banned("without a word", "write who closed the connection"),
    banned("led to nothing", FACT),
    banned("leads to nothing", FACT),
    banned("comes to nothing", FACT),
    banned("a short way of its own", "write `fast path`"),
    banned("a way of its own", PLAIN),
    banned("all the time there is", "write `no deadline`"),
    banned("time there is", "write `no deadline`"),
    banned("all the same", "write `nevertheless`, or drop it"),
    banned("not in line yet", "write `not queued`"),
    banned("mend", "write `fix`"),
    banned(
        "the rules would not be taken",
        "write `the rules are invalid`",
    ),
    banned("would not be taken", "write `is rejected`"),
    banned("what becomes of", "write what happens"),
    banned("what is to become of", "write what happens"),
    banned("unasked", PLAIN),
    banned("of its own accord", "write `automatically`"),
    banned("give or take", "write `± X`"),
    banned("woke", PLAIN),
    banned("fresh again", "write `resets`"),
    banned("for ever", "write `no limit`, `never` or `forever`"),
    banned("has no place here", "write what to use instead"),
];

/// House metaphors, as whole words. A line that contains one of the exempt texts uses the word as
/// an ordinary one, or as a name.
pub const METAPHORS: &[(&str, &[&str])] = &[
    ("room", &["no_room_total"]),
    ("rooms", &[]),
    ("door", &["--door", "\"door\""]),
    ("doors", &[]),
    ("desk", &[]),
    ("staircase", &[]),
    ("seat", &[]),
    ("seats", &[]),
    ("guest", &[]),
    ("guests", &[]),
    ("sheet", &[]),
    ("sheets", &[]),
    ("stranger", &["\"stranger\"", "domain_not_found"]),
    ("strangers", &[]),
];

const METAPHOR: &str = "a house metaphor: use the standard term";

/// Every banned phrase and metaphor in a text, in the order of lines.
pub fn find(text: &str) -> Vec<Finding> {
    let (words, lines) = words(text);
    let mut found = Vec::new();
    for banned in BANNED_PHRASES {
        for line in whole_words(&words, &lines, banned.phrase) {
            found.push(Finding {
                line,
                banned: *banned,
            });
        }
    }
    for (word, exempt) in METAPHORS {
        for line in whole_words(&words, &lines, word) {
            let written = text.lines().nth(line - 1).unwrap_or_default();
            if !exempt.iter().any(|words| written.contains(words)) {
                let banned = banned(word, METAPHOR);
                found.push(Finding { line, banned });
            }
        }
    }
    found.sort_by_key(|finding| (finding.line, finding.banned.phrase));
    found
}

/// The words of a text in lower case, with a space before, between and after them, and the line of
/// each byte.
fn words(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::from(" ");
    let mut lines = vec![1];
    for (number, line) in text.lines().enumerate() {
        let word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '\'' | '’');
        for part in line.split(|c| !word(c)).filter(|part| !part.is_empty()) {
            joined += &part.to_lowercase().replace('’', "'");
            joined.push(' ');
            lines.resize(joined.len(), number + 1);
        }
    }
    (joined, lines)
}

/// The lines on which a phrase stands as whole words.
fn whole_words(words: &str, lines: &[usize], phrase: &str) -> Vec<usize> {
    let padded = format!(" {phrase} ");
    let found = words.match_indices(&padded);
    found.map(|(at, _)| lines[at + 1]).collect()
}

// === impl Finding ===

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BannedPhrase { phrase, instead } = self.banned;
        write!(f, "line {}: \"{phrase}\": {instead}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, &'static str)> {
        let found = find(text).into_iter();
        found.map(|it| (it.line, it.banned.phrase)).collect()
    }

    #[test]
    fn a_phrase_is_found_in_any_case_and_across_lines() {
        assert_eq!(found("One;\nUnless\n said, two."), [(2, "unless said")]);
        assert_eq!(found("WHOEVER asks"), [(1, "whoever")]);
        assert_eq!(found("the caller’s caller"), [(1, "the caller's caller")]);
        assert_eq!(found("(no room)"), [(1, "room")]);
    }

    #[test]
    fn parts_of_words_names_and_exempt_lines_are_not_found() {
        for text in [
            "amend it, in bedrooms",
            "--door is deprecated",
            "no_room_total",
            "transits",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn every_phrase_is_found_in_itself() {
        for BannedPhrase { phrase, .. } in BANNED_PHRASES {
            assert!(found(phrase).contains(&(1, phrase)), "{phrase}");
        }
    }
}
