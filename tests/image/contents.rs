//! Contents of the image, unpacked by another tool.
//!
//! What it deliberately does not do: inspect the binary (`release.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::image::isolation::{IMAGE, Machine, alone, build, podman, run};

/// All files: mode, owner, name.
const FILES: [&str; 9] = [
    "drwxr-xr-x 0/0 bin/",
    "lrwxrwxrwx 0/0 bin/ratelimit -> ../usr/bin/tollgate",
    "drwxr-xr-x 0/0 etc/",
    "drwxr-xr-x 0/0 etc/ssl/",
    "drwxr-xr-x 0/0 etc/ssl/certs/",
    "-rw-r--r-- 0/0 etc/ssl/certs/ca-certificates.crt",
    "drwxr-xr-x 0/0 usr/",
    "drwxr-xr-x 0/0 usr/bin/",
    "-rwxr-xr-x 0/0 usr/bin/tollgate",
];

/// An image in OCI layout.
pub(crate) struct Unpacked {
    pub(crate) config: Value,
    /// One line for each file, as [`FILES`] has them.
    files: Vec<String>,
    /// Size of its layers, compressed.
    pub(crate) compressed: u64,
    /// Digest of the image.
    pub(crate) digest: String,
}

impl Unpacked {
    pub(crate) fn new(name: &str, folder: &str) -> Self {
        podman(&["save", "--format=oci-dir", "--output", folder, name]);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().expect("a digest");
            Path::new(folder)
                .join("blobs")
                .join(digest.replace(':', "/"))
        };
        let read = |path: &Path| -> Value {
            serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
        };
        let index = read(&Path::new(folder).join("index.json"));
        let manifest = read(&blob(&index["manifests"][0]));
        let layers = manifest["layers"].as_array().expect("layers");
        let mut files = Vec::new();
        for layer in layers {
            let listing = run(Command::new("tar")
                .args(["--list", "--verbose", "--gzip", "--numeric-owner", "--file"])
                .arg(blob(layer)));
            files.extend(listing.lines().map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                // Without size, date and time.
                format!("{} {} {}", words[0], words[1], words[5..].join(" "))
            }));
        }
        Self {
            config: read(&blob(&manifest["config"])),
            files,
            compressed: layers
                .iter()
                .filter_map(|layer| layer["size"].as_u64())
                .sum(),
            digest: index["manifests"][0]["digest"].to_string(),
        }
    }
}

#[test]
fn the_image_holds_only_the_binary_its_link_and_the_ca_bundle() {
    alone(|machine: &Machine| {
        let image = Unpacked::new(IMAGE, "/run/image");
        assert_eq!(image.files, FILES);
        let authorities = "etc/ssl/certs/ca-certificates.crt";
        let ours = fs::read_to_string(machine.files.join(authorities)).unwrap();
        assert!(ours.matches("BEGIN CERTIFICATE").count() > 100);

        let config = &image.config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(config["Entrypoint"], json!(["/usr/bin/tollgate"]));
        assert_eq!(config["Cmd"], json!(["serve"]));
        assert_eq!(image.config["architecture"], "amd64");
        let label = |name: &str| &config["Labels"][format!("org.opencontainers.image.{name}")];
        assert_eq!(label("title"), env!("CARGO_PKG_NAME"));
        assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(label("licenses"), env!("CARGO_PKG_LICENSE"));
        assert_eq!(label("description"), env!("CARGO_PKG_DESCRIPTION"));
    });
}

#[test]
fn the_image_is_reproducible() {
    alone(|machine: &Machine| {
        let copied = Path::new("/run/copy");
        fs::create_dir(copied).unwrap();
        run(Command::new("cp")
            .args(["--recursive", "--no-dereference"])
            .args([&machine.files, copied]));
        build(copied, "localhost/tollgate:again");
        let digest = |name, folder| Unpacked::new(name, folder).digest;
        assert_eq!(
            digest(IMAGE, "/run/once"),
            digest("localhost/tollgate:again", "/run/again")
        );
    });
}

#[test]
fn both_names_of_the_binary_are_the_binary() {
    alone(|_| {
        for name in ["/usr/bin/tollgate", "/bin/ratelimit"] {
            let entry = format!("--entrypoint={name}");
            let said = podman(&[
                "run",
                "--rm",
                "--network=none",
                "--read-only",
                "--cap-drop=ALL",
                &entry,
                IMAGE,
                "--version",
            ]);
            let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
            assert_eq!(said.lines().next(), Some(version), "{name}");
        }
    });
}
