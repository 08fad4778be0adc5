//! Hostile files of any size: each row of [`SHAPES`] makes a file of about the given size.
//!
//! What it deliberately does not do: check results (`super`), or resemble real files.

/// A shape's name, and the function that makes a file of about that many bytes.
pub(crate) type Shape = (&'static str, fn(usize) -> String);

pub(crate) const SHAPES: &[Shape] = &[
    ("sound rules", |bytes| {
        let line = |n| {
            format!(
                "  - {{key: k, value: v{n}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"
            )
        };
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("an alias bomb", |bytes| {
        let line = |n: usize| match n {
            0 => "a: &a0 [x, x]\n".to_owned(),
            n if n < 40 => format!("? &a{n} [*a{0}, *a{0}]\n", n - 1),
            n => format!("? [*a39, {n}]\n"),
        };
        grown("domain: d\n", bytes, line, "")
    }),
    ("descriptors that unfold", |bytes| {
        let line = |n: usize| match n {
            0 => "- &a0 [{key: k, value: v}]\n".to_owned(),
            n if n < 20 => format!("- &a{n} {{key: k{n}, descriptors: [*b, *b]}}\n"),
            n => format!("- {{key: m{n}, descriptors: *b}}\n"),
        };
        let head = "domain: d\nmetadata: &b [{key: a}, {key: b}, {key: c}]\ndescriptors:\n";
        grown(head, bytes, line, "")
    }),
    ("one long key and many children", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- key: {}\n  descriptors:\n",
            "k".repeat(bytes / 2)
        );
        let line = |n| format!("  - {{key: c{n}, rate_limit: {{unit: bad}}}}\n");
        grown(&head, bytes, line, "")
    }),
    ("one domain as long as may be and many rules", |bytes| {
        let head = format!("domain: {}\ndescriptors:\n", "d".repeat(bytes.min(16_000)));
        let line = |n| format!("- {{key: c{n}, rate_limit: {{unit: day}}}}\n");
        grown(&head, bytes.max(20_000) * 2, line, "")
    }),
    ("one long name used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, rate_limit: &r {{unit: day, name: {}}}}}\n",
            "n".repeat(bytes.min(16_000))
        );
        let line = |n| format!("- {{key: c{n}, rate_limit: *r}}\n");
        grown(&head, bytes.max(20_000) * 2, line, "")
    }),
    ("one list of limits used again and again", |bytes| {
        let limits = (0..16).map(|n| format!("{{unit: day, name: n{n}}}"));
        let limits = limits.collect::<Vec<_>>().join(", ");
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, over_limit: &o {{body: {}}}, rate_limits: &r [{limits}]}}\n",
            "b".repeat(100)
        );
        let line = |n| format!("- {{key: c{n}, over_limit: *o, rate_limits: *r}}\n");
        grown(&head, bytes, line, "")
    }),
    ("limits that replace one another", |bytes| {
        let names = (0..500).map(|n| format!("{{name: m{n}}}"));
        let names = names.collect::<Vec<_>>().join(", ");
        let limits = (0..16).map(|n| format!("{{unit: day, name: n{n}, replaces: *n}}"));
        let limits = limits.collect::<Vec<_>>().join(", ");
        let head = format!("domain: d\nmetadata: &n [{names}]\ndescriptors:\n");
        let line = |n| format!("- {{key: c{n}, rate_limits: [{limits}]}}\n");
        grown(&head, bytes, line, "")
    }),
    ("one long text in metadata used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, metadata: &m {{a: {}}}}}\n",
            "n".repeat(bytes / 2)
        );
        let line = |n| format!("- {{key: c{n}, metadata: *m}}\n");
        grown(&head, bytes, line, "")
    }),
    ("one long value used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, value: &v {}}}\n",
            "n".repeat(bytes / 2)
        );
        let line = |n| format!("- {{key: c{n}, value: *v}}\n");
        grown(&head, bytes, line, "")
    }),
    ("one long number used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, value: &v {}}}\n",
            "1".repeat(bytes / 2)
        );
        let line = |n| format!("- {{key: c{n}, value: *v}}\n");
        grown(&head, bytes, line, "")
    }),
    ("one long unknown name used again and again", |bytes| {
        let head = format!("domain: d\n? &u {}\n: 1\n", "u".repeat(bytes / 2));
        grown(&head, bytes, |_| "? *u\n: 1\n".to_owned(), "")
    }),
    ("one long scalar where mappings belong", |bytes| {
        let head = format!("domain: &d {}\ndescriptors:\n", "d".repeat(bytes / 2));
        grown(&head, bytes, |_| "- *d\n".to_owned(), "")
    }),
    ("one long unit used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, rate_limit: &r {{unit: {}}}}}\n",
            "u".repeat(bytes / 2)
        );
        let line = |n| format!("- {{key: c{n}, rate_limit: *r}}\n");
        grown(&head, bytes, line, "")
    }),
    ("many anchors", |bytes| {
        grown("domain: d\n", bytes, |n| format!("? &anchor{n} x\n"), "")
    }),
    ("one anchor again and again", |bytes| {
        grown("domain: d\n", bytes, |_| "? &anchor x\n".to_owned(), "")
    }),
    ("many merges", |bytes| {
        let head = "domain: &d d\ndescriptors:\n- &m {key: k, value: v, shadow_mode: true}\n";
        let line = |n| format!("- {{<<: [*m, *m, *m], key: k{n}}}\n");
        grown(head, bytes, line, "")
    }),
    ("merges in one mapping", |bytes| {
        let head =
            "domain: &d d\ndescriptors:\n- &m {key: k, value: v, shadow_mode: true}\n- key: x\n";
        grown(head, bytes, |_| "  <<: *m\n".to_owned(), "")
    }),
    ("one name again and again", |bytes| {
        grown("", bytes, |n| format!("domain: d{n}\n"), "")
    }),
    ("deep flow", |bytes| "[".repeat(bytes)),
    ("deep flow mappings", |bytes| "{a: ".repeat(bytes / 4)),
    ("deep flow, shut at once", |bytes| {
        let one = format!("{}{}", "[".repeat(60), "]".repeat(60));
        grown(
            "domain: d\nmetadata:\n",
            bytes,
            |_| format!("- {one}\n"),
            "",
        )
    }),
    ("deep block", |bytes| "- ".repeat(bytes / 2)),
    ("deep block by indents", |bytes| {
        let mut text = String::new();
        let mut indent = 0;
        while text.len() < bytes {
            text.push_str(&" ".repeat(indent));
            text.push_str("a:\n");
            indent += 1;
        }
        text
    }),
    ("one long line", |bytes| {
        format!("domain: {}\n", "x".repeat(bytes))
    }),
    ("one long line of words", |bytes| {
        format!("domain: {}\n", "x ".repeat(bytes / 2))
    }),
    ("one long plain text on many lines", |bytes| {
        grown("domain: x\n", bytes, |_| "  x\n".to_owned(), "")
    }),
    ("one long quoted text", |bytes| {
        format!("domain: \"{}\"\n", "\\x41".repeat(bytes / 4))
    }),
    ("quotes never shut", |bytes| {
        format!("domain: \"{}", "x\n ".repeat(bytes / 3))
    }),
    ("one long block text", |bytes| {
        grown("domain: |\n", bytes, |_| "  x\n".to_owned(), "")
    }),
    ("one long folded text", |bytes| {
        grown("domain: >\n", bytes, |_| "  x\n\n".to_owned(), "")
    }),
    ("comments", |bytes| {
        grown("domain: d\n", bytes, |_| "# x\n".to_owned(), "")
    }),
    ("comments after a key", |bytes| {
        grown("domain:\n", bytes, |_| " # x\n".to_owned(), " d\n")
    }),
    ("one long comment", |bytes| {
        format!("domain: d #{}\n", "x".repeat(bytes))
    }),
    ("blank lines", |bytes| {
        format!("domain: d\n{}", "\n".repeat(bytes))
    }),
    ("spaces", |bytes| {
        format!("domain: d\n{}", " ".repeat(bytes))
    }),
    ("tabs", |bytes| format!("domain: d{}\n", "\t".repeat(bytes))),
    ("a key that might still come", |bytes| {
        format!("{{{}", "x ".repeat(bytes / 2))
    }),
    ("a list of scalars in flow", |bytes| {
        format!("domain: d\ndescriptors: [{}]\n", "x,".repeat(bytes / 2))
    }),
    ("unknown names in flow", |bytes| {
        format!("{{{}}}", "x: 1,".repeat(bytes / 5))
    }),
    ("question marks", |bytes| "? ".repeat(bytes / 2)),
    ("colons", |bytes| ": ".repeat(bytes / 2)),
    ("many documents", |bytes| {
        grown("", bytes, |_| "---\n".to_owned(), "")
    }),
    ("many directives", |bytes| {
        grown("", bytes, |n| format!("%TAG !{n}! tag:x\n"), "---\n")
    }),
    ("many tags", |bytes| {
        grown("domain: d\n", bytes, |n| format!("? !t{n} x\n"), "")
    }),
    ("one long tag", |bytes| {
        format!("domain: !{} d\n", "t".repeat(bytes))
    }),
    ("one long anchor", |bytes| {
        format!("domain: &{} d\n", "t".repeat(bytes))
    }),
    ("wide characters", |bytes| {
        format!("domain: {}\n", "🦀".repeat(bytes / 4))
    }),
    ("stars in patterns", |bytes| {
        let line = |n| format!("- {{key: k, value: \"*{n}*\", rate_limit: {{unit: day}}}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("a key with a star of its own in each", |bytes| {
        let line = |n| format!("- {{key: \"k{n}*\", rate_limit: {{unit: day}}}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("long lists of values", |bytes| {
        let line = |n| {
            let values: Vec<_> = (0..20).map(|m| format!("v{n}-{m}")).collect();
            format!("- {{key: k, values: [{}]}}\n", values.join(","))
        };
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("one value in list after list", |bytes| {
        let line = |_| "- {key: k, values: [a, a, a, a, a, a]}\n".to_owned();
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("prefixes of every length", |bytes| {
        let line = |n: usize| format!("- {{key: k{}, cidr: ['::/{}']}}\n", n / 129, n % 129);
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("one long list used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, values: &v [{}]}}\n",
            "x,".repeat(bytes / 4)
        );
        grown(
            &head,
            bytes,
            |n| format!("- {{key: c{n}, values: *v}}\n"),
            "",
        )
    }),
    ("one long regex used again and again", |bytes| {
        let head = format!(
            "domain: d\ndescriptors:\n- {{key: k, regex: &r {}}}\n",
            "x".repeat((bytes / 2).min(16_000))
        );
        let line = |n| format!("- {{key: c{n}, regex: *r}}\n");
        grown(&head, bytes.max(20_000) * 2, line, "")
    }),
];

/// Shapes whose cost may exceed their size, up to a bound.
pub(crate) const PATTERNS: &[Shape] = &[
    ("repeats within repeats", |bytes| {
        let line = |n| format!("- {{key: k{n}, regex: '((a{{1000}}){{1000}}){{1000}}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("as many states as there are subsets", |bytes| {
        let line = |n| format!("- {{key: k{n}, regex: '(a|b)*a(a|b){{18}}c{{{n}}}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("the same below one key", |bytes| {
        let line = |n| format!("- {{key: k, regex: '(a|b)*a(a|b){{18}}c{{{n}}}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("regexes half done in every way", |bytes| {
        let line = |n| format!("- {{key: k, regex: '.*v{n}.*[0-9]{{3}}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("classes half done in every way", |bytes| {
        let line = |n| format!("- {{key: k, regex: '.*[a-z]{{3,9}}{n}.*x'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("stars half done in every way", |bytes| {
        let line = |n| format!("- {{key: k, value: '/v1/*/item{n}/*/sub{n}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("words between stars", |bytes| {
        let line = |n| format!("- {{key: k, value: '*word{n}*'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("keys between stars", |bytes| {
        let line = |n| format!("- {{key: '*key{n}*x*', value: '*{n}*'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("many stars in one", |bytes| {
        let line = |n| format!("- {{key: k, value: '{}{n}'}}\n", "*a".repeat(400));
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("long classes", |bytes| {
        let line = |n| format!("- {{key: k{n}, regex: '[[:alpha:]&&[^x]--[a-f]]{{9}}.*{n}'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("brackets never shut", |bytes| {
        let line = |n| format!("- {{key: k{n}, regex: '{}'}}\n", "(".repeat(8_000));
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
    ("an automaton for every level", |bytes| {
        let line = |n| format!("- {{key: k{n}, value: 'a{n}*b'}}\n");
        grown("domain: d\ndescriptors:\n", bytes, line, "")
    }),
];

/// `head`, lines until the size is `bytes`, and `tail`.
fn grown(head: &str, bytes: usize, line: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    let mut n = 0;
    while text.len() < bytes {
        text.push_str(&line(n));
        n += 1;
    }
    text.push_str(tail);
    text
}
