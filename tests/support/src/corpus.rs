//! The corpora of the fuzz targets, which tests read too.
//!
//! What it deliberately does not do: change inputs. Each test has mutations of its own format.

use std::fs;

use crate::components::repository;

/// The files of the corpus of a fuzz target: names and bytes, in the order of the names.
pub fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = repository().join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the corpus is there")
        .map(|file| {
            let path = file.expect("a file of the corpus").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let bytes = fs::read(&path).expect("a file of the corpus");
            (name.into_owned(), bytes)
        })
        .collect();
    files.sort();
    files
}
