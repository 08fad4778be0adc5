//! What is in the package, what lintian and systemd say of it, and that two builds are equal.
//!
//! What it deliberately does not do: install it (`life`).

use std::fs;
use std::process::Command;

use tollgate_test_support::components::{program, repository};

use crate::debian::machine::{run, run_to_code};
use crate::debian::package::{Packages, build};

/// The highest exposure that the unit may have.
const EXPOSURE_MAX: f64 = 2.0;

#[test]
fn the_units_exposure_is_at_most_two() {
    let said = run(Command::new(program("systemd-analyze"))
        .args(["security", "--offline=true", "--no-pager"])
        .arg(repository().join("packaging/debian/tollgate.service")));
    let (_, exposure) = said
        .split_once("Overall exposure level for tollgate.service: ")
        .expect("a score");
    let exposure = exposure.split(' ').next().expect("a number");
    println!("exposure: {exposure}");
    let exposure: f64 = exposure.parse().expect("a number");
    assert!(exposure <= EXPOSURE_MAX, "{said}");
}

#[test]
fn lintian_finds_no_error() {
    let packages = Packages::built();
    let (code, said) = run_to_code(
        Command::new(program("lintian"))
            .args(["--allow-root", "--fail-on=error"])
            .arg(&packages.current),
    );
    assert_eq!(code, 0, "{said}");
    // A package that cannot be read has no findings either.
    let control = run(Command::new("dpkg-deb").arg("-f").arg(&packages.current));
    for field in ["Package: tollgate", "Depends: libc6 (>= ", "Section: net"] {
        assert!(control.contains(field), "{control}");
    }
}

#[test]
fn two_builds_of_the_package_are_equal() {
    let packages = Packages::built();
    let again = build("again");
    let again = again.join(packages.current.file_name().unwrap());
    let [first, second] = [&packages.current, &again].map(|path| fs::read(path).unwrap());
    assert!(
        first == second,
        "{} and {} bytes",
        first.len(),
        second.len()
    );
    fs::remove_dir_all(again.parent().unwrap()).unwrap();
}

#[test]
fn the_changelog_has_the_version_of_the_crate() {
    let changelog = repository().join("packaging/debian/changelog");
    let changelog = fs::read_to_string(changelog).unwrap();
    let version = format!("tollgate ({}-1) ", env!("CARGO_PKG_VERSION"));
    assert!(changelog.starts_with(&version), "{changelog}");
}
