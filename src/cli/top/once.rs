//! `tollgate top --once`: what `/top` answers, merged over replicas.

use super::TopQuery;
use crate::admin_api::{FailedReplica, MergedTop, RankBy, Top, ValueMode, Window};
use crate::cli::Exit;
use crate::cli::admin_options::{AdminOptions, Outcomes};
use crate::cli::admin_text::{descriptor_text, time_of_day};
use crate::cli::tap::Format;
use crate::visible_text::visible;

/// Prints the heaviest keys of all replicas.
pub(super) async fn print(
    admin: &AdminOptions,
    query: &TopQuery,
    format: Format,
) -> anyhow::Result<Exit> {
    let path = query.path();
    let outcomes: Outcomes<Top> = admin
        .ask_all(|replica| {
            let path = path.clone();
            async move { replica.get(&path).await }
        })
        .await?;
    let exit = outcomes.report_failures();
    let failed = outcomes.failures.iter().map(|failure| FailedReplica {
        admin: failure.admin.clone(),
        error: failure.error.to_string(),
    });
    let failed = failed.collect();
    let answers = outcomes.answers;
    let secrets_differ = has_unshared_hashes(&answers);
    let keys_max = usize::try_from(query.n).unwrap_or(usize::MAX);
    let merged = MergedTop {
        failed,
        ..MergedTop::of(answers, query.by, query.window, keys_max)
    };
    match format {
        Format::Json => print_line!("{}", serde_json::to_string_pretty(&merged)?),
        Format::Text if exit == Exit::NoAnswer => {}
        Format::Text => print_text(&merged),
    }
    if secrets_differ {
        eprintln!(
            "hint: no hashed key is on two replicas; set --value-hash-key-file of the services to the same key, \
             so that one key is one row"
        );
    }
    Ok(exit)
}

/// Whether replicas hash values, and have no key in common: perhaps with secrets of their own.
fn has_unshared_hashes(answers: &[(String, Top)]) -> bool {
    let hashed = answers
        .iter()
        .filter(|(_, top)| top.values == ValueMode::Hashed);
    let with_keys: Vec<_> = hashed.filter(|(_, top)| !top.keys.is_empty()).collect();
    let is_on_another = |number: usize, (_, top): &(String, Top)| {
        let others = with_keys.iter().skip(number.saturating_add(1));
        let mut others = others.flat_map(|(_, other)| &other.keys);
        others.any(|other| {
            top.keys
                .iter()
                .any(|key| key.descriptor == other.descriptor)
        })
    };
    let mut all = with_keys.iter().enumerate();
    with_keys.len() > 1 && !all.any(|(number, answer)| is_on_another(number, answer))
}

fn print_text(top: &MergedTop) {
    let window = match top.window {
        Window::Minute => "minute",
        Window::Hour => "hour",
    };
    let by = match top.by {
        RankBy::Refused => "refused",
        RankBy::Asked => "asked",
    };
    print_line!(
        "{} refused of {} asked in the last {window} ({} s counted), by {by}, {} replicas",
        top.refused,
        top.asked,
        top.covered_seconds,
        top.instances.len()
    );
    if top.values == ValueMode::Off {
        print_line!(
            "keys are not counted; set --top-keys hashed or --top-keys plain of the service"
        );
        return;
    }
    print_line!(
        "{:>9} {:>9} {:>6} {:<8} KEY  RULE",
        "REFUSED",
        "ASKED",
        "ERROR",
        "SINCE"
    );
    for key in &top.keys {
        let since = key.refused_since.as_deref().map(time_of_day);
        let since: String = since.unwrap_or_default().chars().take(8).collect();
        print_line!(
            "{:>9} {:>9} {:>6} {:<8} {}  {}",
            key.refused,
            key.asked,
            key.error,
            since,
            descriptor_text(&key.descriptor),
            visible(&key.rule)
        );
    }
    if top.values == ValueMode::Hashed {
        print_line!("values are hashed; --top-keys plain of the service shows them");
    }
}
