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

use super::feed::Feed;
use super::model::{Effect, Model, TopQuery};
use super::tables::Styles;
use super::view;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::tools::admin::AdminOptions;
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
    let styles = Styles::new(!output::has_no_color());
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
                Some(Some(key)) if is_interrupt(key) => return Ok(Exit::Success),
                Some(Some(key)) => match model.press(key.code) {
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
fn read_keys() -> mpsc::Receiver<Option<KeyEvent>> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let pressed = match event {
                Ok(Event::Key(event)) if is_press(event) => Some(event),
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

/// Whether a key that the screen knows was pressed, and not released.
fn is_press(event: KeyEvent) -> bool {
    use KeyCode::{
        BackTab, Backspace, Char, Down, End, Enter, Esc, Home, PageDown, PageUp, Tab, Up,
    };
    let known = [
        Enter, Esc, Backspace, Tab, BackTab, Up, Down, PageUp, PageDown, Home, End,
    ];
    let is_known = matches!(event.code, Char(_)) || known.contains(&event.code);
    is_known && event.kind != KeyEventKind::Release
}

fn is_interrupt(event: KeyEvent) -> bool {
    let has_control = event.modifiers.contains(KeyModifiers::CONTROL);
    has_control && matches!(event.code, KeyCode::Char('c' | 'd'))
}
