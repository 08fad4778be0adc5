//! A check, and a reservation that is committed.

use std::time::Duration;

use tollgate_limits::{Client, Descriptor, Reserve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("TOLLGATE").unwrap_or_else(|_| "localhost:8081".to_owned());
    let client = Client::builder("edge")
        .address(address)
        .deadline(Duration::from_secs(1))
        .build()?;
    client.ready(Duration::from_secs(5)).await?;

    let decision = client.check(Descriptor::new([("user", "ann")])).await?;
    println!(
        "{}",
        if decision.allowed {
            "allowed"
        } else {
            "refused"
        }
    );

    {
        let budget = Descriptor::new([("budget", "ann")]);
        let reservation = client.reserve(Reserve::new([budget]).hits(800)).await?;
        if reservation.allowed() {
            let settled = reservation.commit(120).await?;
            println!("committed {}", settled.committed);
        }
    } // Without a commit, the end of the scope releases it.

    client.close().await;
    Ok(())
}
