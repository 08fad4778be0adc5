//! What a connection is told from outside: to say goodbye, or to close.
//!
//! Why apart: a connection is polled for every batch of checks, and looking at three timers each time would cost more than
//! they are worth. How: a task of its own waits for the end of the service, the connection's age and the keepalive, leaves
//! an order and wakes the connection.
//!
//! What it deliberately does not do: speak HTTP/2, but for the ping.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{sleep, timeout};

use crate::accept::Stopping;
use crate::metrics::Counter;
use crate::service::connections::{Bounds, KEEPALIVE_TIMEOUT, over};

/// What to do with a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Order {
    /// Serve.
    #[default]
    Serve,
    /// Say GOAWAY and finish what is under way.
    GoAway,
    /// Close at once.
    Close,
}

/// The order for one connection, and whom to wake when it changes.
#[derive(Debug, Default)]
pub(super) struct Orders {
    order: Cell<Order>,
    connection: RefCell<Option<Waker>>,
}

// === impl Orders ===

impl Orders {
    pub(super) fn order(&self) -> Order {
        self.order.get()
    }

    /// Says whom to wake.
    pub(super) fn wake(&self, waker: &Waker) {
        let mut connection = self.connection.borrow_mut();
        if !connection
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            *connection = Some(waker.clone());
        }
    }

    fn give(&self, order: Order) {
        if order > self.order.get() {
            self.order.set(order);
            if let Some(waker) = self.connection.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

/// Gives orders until the connection need be told nothing more. The caller drops it with the connection.
pub(super) async fn mind(
    orders: Rc<Orders>,
    bounds: Bounds,
    mut stopping: Stopping,
    pings: Option<PingPong>,
    aged: Counter,
) {
    let minding = async {
        tokio::select! {
            () = stopping.wait() => orders.give(Order::GoAway),
            () = over(bounds.own_age()) => {
                aged.inc();
                orders.give(Order::GoAway);
                over(bounds.age_grace).await;
                orders.give(Order::Close);
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = minding => {}
        () = keep_alive(bounds.keepalive_interval, pings) => orders.give(Order::Close),
    }
}

/// Ends when a ping was not answered in time.
async fn keep_alive(interval: Option<Duration>, pings: Option<PingPong>) {
    let (Some(interval), Some(mut pings)) = (interval, pings) else {
        return std::future::pending().await;
    };
    loop {
        sleep(interval).await;
        match timeout(KEEPALIVE_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // It is ending by itself.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}
