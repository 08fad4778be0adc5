//! The algorithm of a limit: the one that is named, as its other fields choose a variant of it.
//!
//! Which fields an algorithm allows is the algorithm's decision ([`AlgorithmOption`]); the
//! grammar's table says which field is which choice.
//!
//! What it deliberately does not do: read the values of those fields (`window`, `concurrency`).

use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar_limit;
use crate::file::loader::Loader;
use tollgate_limiter::{ALGORITHMS, Algorithm, AlgorithmOption, algorithm};

// === impl Loader ===

impl Loader<'_> {
    /// The algorithm that is named, or the default, in the variant that its other fields choose;
    /// and whether all those fields are allowed.
    pub(crate) fn algorithm(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<(&'static dyn Algorithm, bool)> {
        let name = self.text(fields, path, "algorithm");
        let algorithm = match name {
            "" => ALGORITHMS.first().copied(),
            name => algorithm::from_name(name),
        };
        let Some(mut algorithm) = algorithm else {
            let names = grammar_limit::algorithm_names();
            self.unknown_word(fields, path, "algorithm", (name, &names));
            return None;
        };
        let mut fits = true;
        for (name, choice) in grammar_limit::choices() {
            if fields.given(name).is_some() && !algorithm.options().contains(&choice) {
                self.reject_choice(fields, path, algorithm, (name, choice));
                fits = false;
            }
        }
        if fields.given("segments").is_some() {
            algorithm = algorithm
                .variant_for(AlgorithmOption::Segments)
                .unwrap_or(algorithm);
        } else if algorithm.options().contains(&AlgorithmOption::Segments)
            && algorithm.variant_for(AlgorithmOption::Segments).is_none()
        {
            let message = format!("algorithm {} needs segments", algorithm.name());
            let help = "add `segments: 6`, or set `algorithm: sliding_window`";
            let span = fields.span_of("algorithm");
            self.error(Code::MissingKey, span, path, message, help);
            fits = false;
        }
        let refill = if algorithm.options().contains(&AlgorithmOption::Refill) {
            self.text(fields, path, "refill")
        } else {
            ""
        };
        match refill {
            "" | "continuous" => {}
            "interval" => {
                algorithm = algorithm
                    .variant_for(AlgorithmOption::Refill)
                    .unwrap_or(algorithm);
            }
            other => {
                let words = ["continuous", "interval"];
                self.unknown_word(fields, path, "refill", (other, &words));
                fits = false;
            }
        }
        Some((algorithm, fits))
    }

    fn reject_choice(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        algorithm: &dyn Algorithm,
        (name, choice): (&str, AlgorithmOption),
    ) {
        let have = ALGORITHMS
            .iter()
            .filter(|other| other.options().contains(&choice));
        let have: Vec<_> = have.map(|other| other.name()).collect();
        let help = match have.as_slice() {
            [one] => format!("remove `{name}`, or set `algorithm: {one}`"),
            several => format!(
                "remove `{name}`, or set `algorithm` to one of {}",
                several.join(", ")
            ),
        };
        let message = format!("algorithm {} has no {name}", algorithm.name());
        let error = Diagnostic::error(Code::ConflictingKeys, fields.span_of(name), message);
        let error = match fields.given("algorithm") {
            Some(node) => error.related(node.span, "the algorithm is set here"),
            None => error.label("fixed_window is the default algorithm"),
        };
        self.report(path, error.help(help));
    }

    pub(crate) fn check_requests(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        algorithm: &dyn Algorithm,
        requests: u32,
    ) {
        let most = algorithm.requests_max();
        if requests > most {
            let name = algorithm.name();
            let message = format!("algorithm {name} stores every hit, at most {most}");
            let help =
                format!("use at most {most}, or an algorithm that counts, such as sliding_window");
            let span = fields.span_of("requests_per_unit");
            self.error(Code::OutOfRange, span, path, message, help);
        }
    }
}
