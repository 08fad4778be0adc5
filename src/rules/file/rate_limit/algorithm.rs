//! The algorithm of a limit: the one that is named, as its other fields choose a variant of it.
//!
//! Which fields an algorithm allows is the algorithm's decision ([`AlgorithmOption`]); the
//! grammar's table says which field is which choice.
//!
//! What it deliberately does not do: read the values of those fields (`window`, `concurrency`).

use crate::rules::excerpt::excerpt;
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::grammar;
use crate::rules::file::loader::Loader;
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
            let message = format!("unknown algorithm '{}'", excerpt(name));
            let advice = format!("use one of {}", grammar::algorithm_names().join(", "));
            self.error(fields.span_of("algorithm"), path, message, &advice);
            return None;
        };
        let mut fits = true;
        for (name, choice) in grammar::choices() {
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
            let advice = "add `segments: 6`, or set `algorithm: sliding_window`";
            self.error(fields.span_of("algorithm"), path, message, advice);
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
                let message = format!("unknown refill '{}'", excerpt(other));
                let advice = "use continuous or interval";
                self.error(fields.span_of("refill"), path, message, advice);
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
        let advice = match have.as_slice() {
            [one] => format!("remove `{name}`, or set `algorithm: {one}`"),
            several => format!(
                "remove `{name}`, or set `algorithm` to one of {}",
                several.join(", ")
            ),
        };
        let message = format!("algorithm {} has no {name}", algorithm.name());
        self.error(fields.span_of(name), path, message, &advice);
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
            let message = format!("algorithm {name} remembers each of its hits, at most {most}");
            let advice = format!("use {most} at most, or an algorithm that only counts");
            self.error(fields.span_of("requests_per_unit"), path, message, &advice);
        }
    }
}
