//! Screens drawn without a terminal.
