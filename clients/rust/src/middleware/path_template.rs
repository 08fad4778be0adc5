//! Path templates, such as `/users/{id}`.

/// A path template. `{name}` matches one segment that is not empty, `{name...}` at the end the rest.
#[derive(Debug, Clone)]
pub(crate) struct PathTemplate {
    text: String,
}

impl PathTemplate {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let mut parts = path.split('/');
        let mut template = self.text.split('/').peekable();
        while let Some(wanted) = template.next() {
            let variable = wanted
                .strip_prefix('{')
                .and_then(|name| name.strip_suffix('}'));
            let Some(part) = parts.next() else {
                return false;
            };
            let matched = match variable {
                Some(name) if name.ends_with("...") && template.peek().is_none() => return true,
                Some(_) => !part.is_empty(),
                None => part == wanted,
            };
            if !matched {
                return false;
            }
        }
        parts.next().is_none()
    }
}
