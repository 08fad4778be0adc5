//! The styles of the words of a screen, with and without colour.

use ratatui::style::{Color, Modifier, Style};

/// The styles of a terminal.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli::top) struct Styles {
    colour: bool,
}

// === impl Styles ===

impl Styles {
    pub(in crate::cli::top) fn new(colour: bool) -> Self {
        Self { colour }
    }

    pub(super) fn alert(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour {
            style.fg(Color::Red)
        } else {
            style
        }
    }

    pub(super) fn dim(self) -> Style {
        if self.colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new()
        }
    }

    pub(super) fn heading(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour {
            style.fg(Color::Cyan)
        } else {
            style
        }
    }
}
