//! The terminal: raw mode and the alternate screen, key presses, signals, and their end.
//!
//! The terminal is restored however the program ends: by a key, by a signal, by an error of the
//! terminal, and by a panic (`ratatui` restores it in a panic hook).

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::TopQuery;
use super::feed::Feed;
use super::messages::{Effect, Key};
use super::model::Model;
use super::view::{self, Styles};
use crate::cli::Exit;
use crate::cli::admin_options::AdminOptions;
use crate::clock::{Clock, SystemClock};

/// Messages and key presses that wait for the screen.
const QUEUE_MAX: usize = 256;

/// Pause between two drawings without news, for the times on the screen.
const TICK: Duration = Duration::from_millis(500);

/// How long the thread of key presses waits before it looks whether it is still needed.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// Restores the terminal when it is dropped.
struct RestoredTerminal(DefaultTerminal);

// === impl RestoredTerminal ===

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        // A closed terminal needs no restoration.
        let _ = ratatui::try_restore();
    }
}

/// Shows the screen until a key or a signal ends it.
pub(super) async fn run(admin: &AdminOptions, query: TopQuery) -> anyhow::Result<Exit> {
    let (urls, access) = admin.targets()?;
    let terminal_kind = std::env::var("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("the screen needs a terminal; set --once for a list of keys");
    }
    if terminal_kind == "dumb" || terminal_kind.is_empty() {
        bail!(
            "this terminal (TERM={terminal_kind}) cannot show the screen; set --once for a list of keys"
        );
    }
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let styles = Styles::new(!no_colour);
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for signals")?;

    let mut model = Model::new(query);
    let (sender, mut messages) = mpsc::channel(QUEUE_MAX);
    let mut feed = Feed::start(urls, access, sender, model.poll());
    let terminal = ratatui::try_init().context("cannot use the terminal")?;
    let mut terminal = RestoredTerminal(terminal);
    let mut keys = read_keys();
    let clock = SystemClock::new();
    let mut tick = tokio::time::interval(TICK);
    loop {
        model.now_us = clock.uptime_us();
        match terminal.0.draw(|frame| view::draw(frame, &model, styles)) {
            Ok(_) => {}
            Err(error) if is_closed(&error) => return Ok(Exit::Success),
            Err(error) => return Err(error).context("cannot draw on the terminal"),
        }
        tokio::select! {
            message = messages.recv() => {
                let mut next = message;
                while let Some(message) = next {
                    model.apply(message);
                    next = messages.try_recv().ok();
                }
            }
            pressed = keys.recv() => match pressed {
                None => return Ok(Exit::Success),
                Some(None) => {} // resized
                Some(Some(key)) => match model.press(key) {
                    None => {}
                    Some(Effect::Quit) => return Ok(Exit::Success),
                    Some(effect) => feed.perform(effect),
                },
            },
            _ = tick.tick() => {}
            _ = terminate.recv() => return Ok(Exit::Success),
            _ = hang_up.recv() => return Ok(Exit::Success),
        }
    }
}

/// Whether the terminal is gone.
fn is_closed(error: &io::Error) -> bool {
    // EIO of a terminal whose other side was closed has no kind of its own.
    error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error() == Some(5)
}

/// Reads key presses on a thread, because the terminal has no asynchronous interface. None stands
/// for a new size of the terminal; the end of the channel for a closed one.
fn read_keys() -> mpsc::Receiver<Option<Key>> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let pressed = match event {
                Ok(Event::Key(event)) => match key_of(event) {
                    Some(key) => Some(key),
                    None => continue,
                },
                Ok(Event::Resize(..)) => None,
                Ok(_) => continue,
                Err(_) => return,
            };
            if sender.blocking_send(pressed).is_err() {
                return;
            }
        }
    });
    receiver
}

fn key_of(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c' | 'd') if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Interrupt
        }
        KeyCode::Char(character) => Key::Char(character),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}
