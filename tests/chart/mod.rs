//! The chart and the Dockerfile, with real helm (an old and a new major version), the schemas of
//! Kubernetes, real Envoy, and the real binary run like a rendered pod.
//!
//! Why the binary: a chart is correct only if the binary accepts every flag, variable, port and
//! path in it.
//!
//! What it deliberately does not do: talk to a cluster (`tests/kubernetes`) or build the image
//! (`tests/image`).

mod arbitrary;
mod image;
mod invalid_values;
mod matrix;
mod notes_and_readme;
mod objects;
mod optional_objects;
mod package;
mod pod;
mod pod_security;
mod property;
mod rendering;
mod running_admin;
mod running_pod;
mod settings;
mod snapshots;
mod table;
mod values;
