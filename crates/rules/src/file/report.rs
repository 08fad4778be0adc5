//! What a load reports: errors and warnings, and their text with snippets of the files.
//!
//! A diagnostic holds the lines that it shows, so that a report can be printed when the files are
//! gone. Everything is bounded: the number of diagnostics, the length of a line, the lines shown.
//! `annotate-snippets` draws the text as the Rust compiler and cargo do.
//!
//! What it deliberately does not do: choose colours (`cli`), or write other formats (`cli`).

use std::collections::BTreeSet;
use std::fmt;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::excerpt::{SourceLine, line_at, lines_between, printable};
use crate::file::diagnostic::ERRORS_COUNTED_MAX;
use crate::file::{Diagnostic, Severity, Span};
use crate::path::Source;
use crate::refused_domain::RefusedDomain;

/// How many diagnostics a log line or a page shows.
const SHOWN_MAX: usize = 20;

/// Lines between two places that are at most so far apart are shown.
const SHOWN_BETWEEN_MAX: usize = 4;

/// Places further apart are shown in snippets of their own.
const GAP_LINES_MAX: usize = 10_000;

/// Errors and warnings of one load, each in the order of the files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Errors, at most [`DIAGNOSTICS_MAX`](crate::file::DIAGNOSTICS_MAX).
    pub errors: Vec<Diagnostic>,
    /// Warnings, at most as many.
    pub warnings: Vec<Diagnostic>,
    /// How many more errors there are; the load gives up at some number.
    pub errors_omitted: usize,
    /// How many more warnings there are.
    pub warnings_omitted: usize,
    /// The rules alone are valid, without the domains that are refused: every other error is about
    /// the overlay.
    pub only_overlay: bool,
    /// The indices of the files with errors, also of errors that are only counted.
    pub files_with_errors: BTreeSet<usize>,
    /// The domains whose files have the errors, where they were loaded one by one.
    pub refused_domains: Vec<RefusedDomain>,
}

/// One place of a diagnostic, with what its snippet shows.
struct ShownPlace<'d> {
    file: &'d str,
    span: Span,
    label: &'d str,
    line: &'d SourceLine,
    is_primary: bool,
}

// === impl Report ===

impl Report {
    /// Errors and warnings together, in the order of the files.
    pub fn diagnostics(&self) -> Vec<&Diagnostic> {
        let mut all: Vec<_> = self.errors.iter().chain(&self.warnings).collect();
        all.sort_by_key(|diagnostic| diagnostic.place());
        all
    }

    /// The text of the errors of these files.
    pub(crate) fn of_files(&self, files: &BTreeSet<usize>) -> String {
        let errors = self.errors.iter();
        let its: Vec<_> = errors
            .filter(|one| files.contains(&one.found.file))
            .take(SHOWN_MAX)
            .collect();
        let parts: Vec<_> = its.iter().map(|one| one.render(false)).collect();
        parts.join("\n\n")
    }

    /// The text of every diagnostic, a blank line between two, and how many more there are.
    pub fn render(&self, coloured: bool) -> String {
        self.text(&self.diagnostics(), coloured)
    }

    fn text(&self, shown: &[&Diagnostic], coloured: bool) -> String {
        let mut parts: Vec<_> = shown.iter().map(|one| one.render(coloured)).collect();
        let omitted = |severity: Severity, all: usize| {
            let shown = shown.iter().filter(|one| one.severity == severity);
            let more = all.saturating_sub(shown.count());
            let plural = if more == 1 { "" } else { "s" };
            // The load gave up there.
            let least = if all >= ERRORS_COUNTED_MAX {
                "at least "
            } else {
                ""
            };
            (more > 0).then(|| format!("and {least}{more} more {}{plural}", severity.name()))
        };
        let errors = self.errors.len().saturating_add(self.errors_omitted);
        let warnings = self.warnings.len().saturating_add(self.warnings_omitted);
        parts.extend(omitted(Severity::Error, errors));
        parts.extend(omitted(Severity::Warning, warnings));
        parts.join("\n\n")
    }

    /// Sorts by place, and adds the lines that the snippets show.
    pub(crate) fn complete(&mut self, sources: &[&Source]) {
        for diagnostics in [&mut self.errors, &mut self.warnings] {
            diagnostics.sort_by_key(Diagnostic::place);
            for diagnostic in diagnostics {
                diagnostic.quote(sources);
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Errors first: a log must not lose them behind warnings.
        let shown: Vec<_> = self.errors.iter().take(SHOWN_MAX).collect();
        f.write_str(&self.text(&shown, false))
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    /// The text of the diagnostic with a snippet of each place.
    pub fn render(&self, coloured: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(printable(&self.message).into_owned());
        let mut group = Group::with_title(title.id(self.code.name()));
        let places = self.places();
        if places.is_empty() {
            group = group.element(self.origin());
        }
        for snippet in snippets(&places, &self.between) {
            group = group.element(snippet);
        }
        let moved_columns = self.moved_columns(&places);
        if !self.path.is_empty() {
            let rule = Level::NOTE.with_name(self.path_name);
            group = group.element(rule.message(printable(&self.path).into_owned()));
        }
        group = group.element(Level::HELP.message(printable(&self.help).into_owned()));
        let renderer = if coloured {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let text = renderer.decor_style(DecorStyle::Ascii).render(&[group]);
        let text = match moved_columns {
            Some((shown, real)) => text.replacen(&shown, &real, 1),
            None => text,
        };
        // The renderer pads lines.
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// Where it is, without a snippet.
    fn origin(&self) -> Origin<'static> {
        let origin = Origin::path(printable(&self.file).into_owned());
        match self.span.at.line {
            0 => origin,
            line => origin.line(line).char_column(self.span.at.column),
        }
    }

    /// The renderer counts columns in what it is shown. Of a line whose beginning is cut off, gives
    /// what it writes and what is right.
    fn moved_columns(&self, places: &[ShownPlace<'_>]) -> Option<(String, String)> {
        let place = places.iter().find(|place| place.is_primary)?;
        let before = self.span.start.saturating_sub(place.line.start);
        let before = place
            .line
            .text
            .get(..before)
            .filter(|_| place.line.is_cut)?;
        let (file, at) = (printable(&self.file), self.span.at);
        let column = before.chars().count().saturating_add(1);
        Some((
            format!("{file}:{}:{column}", at.line),
            format!("{file}:{}:{}", at.line, at.column),
        ))
    }

    fn places(&self) -> Vec<ShownPlace<'_>> {
        let related = self.related.iter().map(|related| {
            let file = related.file.as_deref().unwrap_or(&self.file);
            (file, related.span, related.text.as_str(), false)
        });
        let primary = (self.file.as_str(), self.span, self.label.as_str(), true);
        let places = std::iter::once(primary).chain(related).zip(&self.lines);
        let shown = places.filter_map(|((file, span, label, is_primary), line)| {
            Some(ShownPlace {
                file,
                span,
                label,
                line: line.as_ref()?,
                is_primary,
            })
        });
        shown.collect()
    }

    /// Copies the lines of its places out of the files.
    fn quote(&mut self, sources: &[&Source]) {
        if !self.shows_lines {
            return;
        }
        let related = self.related.iter().map(|related| {
            let file = related.file.as_deref().unwrap_or(&self.file);
            (file, related.span)
        });
        let places = std::iter::once((self.file.as_str(), self.span)).chain(related);
        let lines = places.map(|(file, span)| {
            let source = sources.iter().find(|source| source.name == file)?;
            (span.at.line > 0).then(|| line_at(&source.text, span))
        });
        self.lines = lines.collect();
        // The renderer shows a line or two between places, and folds more.
        let text = sources.iter().find(|source| source.name == self.file);
        let same_file = self.related.iter().filter(|related| related.file.is_none());
        for related in same_file {
            let text = text.map_or("", |source| &source.text);
            let places = (self.span, related.span);
            self.between
                .extend(lines_between(text, places, SHOWN_BETWEEN_MAX));
        }
    }
}

/// A snippet for each file: the lines of its places, in order. The renderer folds what is between.
fn snippets<'p>(
    places: &'p [ShownPlace<'_>],
    between: &[SourceLine],
) -> Vec<Snippet<'p, annotate_snippets::Annotation<'p>>> {
    let mut groups: Vec<Vec<&ShownPlace<'_>>> = Vec::new();
    for place in places {
        let fits = |group: &&mut Vec<&ShownPlace<'_>>| {
            group.iter().all(|other| {
                let gap = other.line.number.abs_diff(place.line.number);
                // Two parts of one long line do not fit together.
                let same = gap > 0 || other.line.start == place.line.start;
                other.file == place.file && gap < GAP_LINES_MAX && same
            })
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    let groups = groups.into_iter();
    groups.map(|group| snippet(group, between)).collect()
}

/// The snippet of places that are near one another in one file.
fn snippet<'p>(
    mut places: Vec<&'p ShownPlace<'_>>,
    between: &[SourceLine],
) -> Snippet<'p, annotate_snippets::Annotation<'p>> {
    places.sort_by_key(|place| place.line.number);
    let first = places.first().map_or(1, |place| place.line.number);
    let file = places.first().map_or("", |place| place.file);
    let mut text = String::new();
    let mut last = None;
    let mut annotations = Vec::new();
    for place in places {
        if let Some(last) = last {
            for number in last..place.line.number {
                let line = between.iter().find(|line| line.number == number);
                if let Some(line) = line.filter(|_| number > last) {
                    text.push_str(&line.text);
                }
                text.push('\n');
            }
        }
        let base = if last == Some(place.line.number) {
            text.len().saturating_sub(place.line.text.len())
        } else {
            let base = text.len();
            text.push_str(&place.line.text);
            base
        };
        last = Some(place.line.number);
        // The rest of a place that goes over several lines is not shown.
        let within = |offset: usize| {
            let offset = offset.saturating_sub(place.line.start);
            base.saturating_add(offset.min(place.line.text.len()))
        };
        let kind = if place.is_primary {
            AnnotationKind::Primary
        } else {
            AnnotationKind::Context
        };
        let annotation = kind.span(within(place.span.start)..within(place.span.end));
        let label = Some(printable(place.label).into_owned()).filter(|label| !label.is_empty());
        annotations.push(annotation.label(label));
    }
    Snippet::source(text)
        .line_start(first)
        .path(printable(file).into_owned())
        .annotations(annotations)
}
