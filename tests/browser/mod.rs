//! The live page in a real Chromium, against the real service, and the page of a replay.
//!
//! `WRITE_SCREENSHOTS=1` also writes `docs/pictures/live-*.png` and `docs/pictures/replay-*.png`.
//!
//! What it deliberately does not do: the JSON that the page reads (`tests/service`), or other
//! clients that the listener refuses (`tests/gateway`).

mod accessibility;
mod candidate;
mod chromium;
mod connection;
mod contents;
mod other_origin;
mod quotas;
mod replay;
mod replay_sample;
mod traffic;
