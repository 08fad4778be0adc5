//! The rules and the overlay that a file of tests names.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use crate::rule_tests::load::Loader;
use crate::rule_tests::test_file::RuleFiles;
use crate::rule_tests::watched_path::WatchedPath;
use crate::rules::file::{Code, Diagnostic, FieldPath, Fields, Options, Span, kind};
use crate::rules::path::{RulesPath, read_one};
use crate::rules::reload::load_overlaid;
use crate::rules::yaml::{Content, Node};

// === impl Loader ===

impl Loader<'_> {
    /// The rules that a field names, by paths beside the file.
    pub(super) fn rule_files(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Arc<RuleFiles>> {
        let node = fields.given(name)?;
        let texts = self.texts(node, path, name)?;
        if texts.is_empty() {
            return None;
        }
        let paths: Vec<_> = texts.iter().map(|text| self.folder.join(text)).collect();
        if let Some(rules) = self.rules.get(&paths) {
            return rules.clone();
        }
        let watched = paths.iter().map(|path| WatchedPath::at(path));
        self.watched.extend(watched);
        let rules = self.read_rules(&paths, node.span, path);
        self.rules.insert(paths, rules.clone());
        rules
    }

    /// Reads the overlay, beside the file.
    pub(super) fn overlay(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        let name = self.reader.text(fields, path, "overlay");
        if name.is_empty() {
            return;
        }
        let overlay = self.folder.join(name);
        self.watched.push(WatchedPath::at(&overlay));
        match read_one(&overlay) {
            Ok(source) => self.overlay = Some(source),
            Err(error) => {
                let message = format!("the overlay cannot be read: {error}");
                let help = "name a file, relative to this file";
                let span = fields.span_of("overlay");
                self.reader
                    .error(Code::UnreadableFile, span, path, message, help);
            }
        }
    }

    fn read_rules(
        &mut self,
        paths: &[PathBuf],
        span: Span,
        path: &FieldPath<'_>,
    ) -> Option<Arc<RuleFiles>> {
        let mut sources = Vec::new();
        for rules in paths {
            match RulesPath::Path(rules.clone()).read() {
                Ok(read) => sources.extend(read),
                Err(error) => {
                    let message = format!("the rules cannot be read: {error}");
                    let help = "name a rules file or a directory, relative to this file";
                    self.reader
                        .error(Code::UnreadableFile, span, path, message, help);
                    return None;
                }
            }
        }
        let options: Options = (&self.settings.rules_settings).into();
        let limit_files = options.limit_files.clone();
        let loaded = load_overlaid(&sources, self.overlay.as_ref(), options);
        let named = limit_files.map_or_else(Vec::new, |files| files.touched());
        let watched = named.iter().map(|path| WatchedPath::at(path));
        self.watched.extend(watched);
        match loaded {
            Ok(rules) => {
                sources.extend(self.overlay.clone());
                Some(Arc::new(RuleFiles { sources, rules }))
            }
            Err(report) => {
                self.reports.push(report);
                None
            }
        }
    }

    /// A text, or a list of texts.
    pub(super) fn texts(
        &mut self,
        node: &Node,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Vec<String>> {
        let items: &[Rc<Node>] = match &node.content {
            Content::Scalar { text, .. } => return Some(vec![text.clone()]),
            Content::Sequence(items) if self.reader.spend(items, node.span, path) => items,
            Content::Sequence(_) => return None,
            Content::Mapping(_) => &[],
        };
        let texts: Option<Vec<_>> = items
            .iter()
            .map(|item| item.text().map(str::to_owned))
            .collect();
        let is_list = matches!(node.content, Content::Sequence(_));
        if let Some(texts) = texts.filter(|_| is_list) {
            return Some(texts);
        }
        let wrong = items.iter().find(|item| item.text().is_none());
        let wrong = wrong.map_or(node, |item| item);
        let error = Diagnostic::error(
            Code::WrongType,
            wrong.span,
            format!("{name} is not text or a list of texts"),
        );
        let error = error.label(format!("found {}", kind(wrong)));
        self.reader.type_error(
            path,
            error.help(format!("write `{name}: TEXT` or `{name}: [TEXT, TEXT]`")),
        );
        None
    }
}
