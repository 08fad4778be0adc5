//! The Debian package: its contents, its unit's exposure, and its life on a machine, by the
//! commands of `docs/guides/debian.md`.
//!
//! How: `packaging/debian/build.sh` packages the binary that cargo built for these tests. Tests
//! that install it run in an overlay over this machine's root folder, in namespaces of their own
//! (`machine`). No systemd runs there: `installed_unit` reads the unit and starts its ExecStart as
//! an unprivileged user without capabilities.
//!
//! What it deliberately does not do: build the release binary (`make package`), or apply the unit's
//! sandbox.

mod contents;
mod installed_unit;
mod life;
mod machine;
mod package;
