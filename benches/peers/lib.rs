//! Nothing: the package is its bench, and cargo wants a target.
