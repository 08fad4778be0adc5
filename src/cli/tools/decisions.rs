//! `tollgate decisions`: the last decisions of running services, and why each was made.
//!
//! What it deliberately does not do: follow new decisions (`tap`).

use clap::{Args, ValueEnum};
use serde_json::json;

use super::admin::{self, AdminOptions, DecisionFilters, descriptor_text};
use crate::admin_api::{
    DecisionRecord, Decisions, DescriptorRecord, Limits, Reason, ValueMode, duration_text,
};
use crate::admin_client::{AdminError, Replica};
use crate::cli::Exit;
use crate::visible_text::visible;

/// The end of `decisions --help`.
const AFTER_HELP: &str = "\
Each replica keeps its last decisions: all of them at low rates, a sample at high rates. Values are
shown as --top-keys of the service says. --key finds a hashed value by the value itself.

Exit codes:
  0  every replica answered
  2  the command line is invalid
  4  no replica answered
  6  some replicas answered, and others failed";

/// Arguments of `decisions`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LastDecisions {
    #[command(flatten)]
    filters: DecisionFilters,

    /// Most decisions of each replica
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    n: u32,

    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    #[command(flatten)]
    admin: AdminOptions,
}

/// A format of output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: what /decisions answers, one line for each replica
    Json,
}

/// What a replica answered.
struct Answer {
    decisions: Decisions,
    /// They say until when a rule is in shadow mode, and which entry of an overlay matches it.
    limits: Option<Limits>,
}

// === impl LastDecisions ===

impl LastDecisions {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let path = self.filters.add_to(format!("/decisions?n={}", self.n));
        admin::block_on(async {
            let asked = self.admin.ask_all(|replica| ask(replica, path.clone()));
            let outcomes = asked.await?;
            let names_shown = outcomes.answers.len() > 1;
            for (name, answer) in &outcomes.answers {
                match self.format {
                    Format::Json => print_line!("{}", json!(answer.decisions)),
                    Format::Text => {
                        if names_shown {
                            print_line!("# {}", visible(name));
                        }
                        print(answer);
                    }
                }
            }
            Ok(outcomes.report_failures())
        })
    }
}

fn print(answer: &Answer) {
    let decisions = &answer.decisions.decisions;
    let (kept, skipped) = (answer.decisions.kept, answer.decisions.skipped);
    for decision in decisions {
        print_decision(decision, answer.limits.as_ref());
    }
    let is_plain = answer.decisions.values == ValueMode::Plain;
    let values = if !is_plain && !decisions.is_empty() {
        "; values are hashed, --top-keys plain of the service shows them"
    } else {
        ""
    };
    let count = decisions.len();
    print_line!(
        "{count} of {kept} kept decisions; {skipped} were not kept because there were too many{values}"
    );
    if decisions.is_empty() && kept == 0 {
        print_line!("the service keeps none: it has had no request, or --decisions-kept-max is 0");
    }
}

async fn ask(replica: Replica, path: String) -> Result<Answer, AdminError> {
    let decisions: Decisions = replica.clone().get(path).await?;
    let descriptors = decisions.decisions.iter().flat_map(|it| &it.descriptors);
    let has_rules = descriptors.map(|it| &it.rule).any(Option::is_some);
    let limits = if has_rules {
        Some(replica.get("/limits".to_owned()).await?)
    } else {
        None
    };
    Ok(Answer { decisions, limits })
}

fn print_decision(decision: &DecisionRecord, limits: Option<&Limits>) {
    let (at, verdict) = (visible(&decision.at), decision.verdict.name());
    let (domain, took_us) = (visible(&decision.domain), decision.took_us);
    let generation = decision.generation.map(|number| number.to_string());
    let generation = generation.unwrap_or_else(|| "none".to_owned());
    print_line!("{at} {verdict} domain {domain}, rules generation {generation}, {took_us} µs");
    if let Some(error) = &decision.error {
        print_line!("  error: {}", visible(error));
    }
    for descriptor in &decision.descriptors {
        print_line!("  {}", descriptor_text(&descriptor.entries));
        print_line!("    {}", answered_by(descriptor));
        // The rule as it is now.
        let limits = limits.into_iter().flat_map(|limits| &limits.limits);
        let limit = limits
            .filter(|limit| limit.domain == decision.domain)
            .find(|limit| Some(&limit.rule) == descriptor.rule.as_ref());
        let overlay = limit.and_then(|limit| limit.source.as_ref().zip(limit.overlay.as_ref()));
        if let Some((source, overlay)) = overlay {
            let (source, overlay) = (visible(source), visible(overlay));
            print_line!("    written in {source}, with the overlay's entry in {overlay}");
        }
        let until = limit.and_then(|limit| limit.shadow_until.as_deref());
        print_line!("    {}", sentence(descriptor.reason, until));
    }
    let omitted = decision.descriptors_omitted;
    if omitted > 0 {
        print_line!("  {omitted} more descriptors were not kept");
    }
}

/// The rule and the limit that answered.
fn answered_by(descriptor: &DescriptorRecord) -> String {
    let Some(rule) = &descriptor.rule else {
        return "no rule".to_owned();
    };
    let mut text = format!("rule {}", visible(rule));
    if descriptor.overridden {
        text.push_str(", overridden for this descriptor");
    }
    if let Some(limit) = &descriptor.limit {
        let (limit, algorithm) = (visible(&limit.text), visible(&limit.algorithm));
        let hits = match descriptor.hits {
            _ if descriptor.is_peek() => "peek".to_owned(),
            1 => "1 hit".to_owned(),
            hits => format!("{hits} hits"),
        };
        let remaining = descriptor.remaining.unwrap_or_default();
        let reset = duration_text(descriptor.reset_seconds.unwrap_or_default());
        let left = format!("{remaining} left, reset in {reset}");
        text.extend([", ", &limit, " (", &algorithm, "), ", &hits, ", ", &left]);
    }
    if let Some(reservation) = &descriptor.reservation {
        text.extend([", ", &visible(&reservation.to_string())]);
    }
    text
}

/// A reason in a sentence, and what to do.
fn sentence(reason: Reason, shadow_until: Option<&str>) -> String {
    let text = match reason {
        Reason::WithinLimit => "Within the limit.",
        Reason::OverLimit => {
            "Over the limit, and refused. Wait for the reset, raise the limit, or forget the \
             bucket with tollgate reset."
        }
        Reason::UnknownDomain => {
            "The domain has no rules, so nothing is limited. Compare the domain in the rules with \
             the one that the client sends."
        }
        Reason::NoRule => {
            "No rule matches the descriptor, so it is not limited. tollgate explain RULES DOMAIN \
             DESCRIPTOR shows at which level."
        }
        Reason::NoLimit => {
            "The level matches and has no limit. Add a rate_limit to it, or send the entries of a \
             level below it."
        }
        Reason::Replaced => {
            "The rule is replaced by another rule of this request. See replaces in the rules."
        }
        Reason::Unlimited => "The rule is unlimited. Remove unlimited to limit it.",
        Reason::ShadowMode => {
            return match shadow_until {
                Some(until) => format!(
                    "Over the limit, but the rule is in shadow mode until {}; refusals start then, \
                     or with tollgate shadow --end.",
                    visible(until)
                ),
                None => "Over the limit, but the rule was in shadow mode; refusals start when \
                         shadow_mode is removed from the rule."
                    .to_owned(),
            };
        }
        Reason::GlobalShadowMode => {
            "Over the limit, but the service is in shadow mode; refusals start without \
             --shadow-mode (SHADOW_MODE)."
        }
        Reason::Quota => {
            "Over the limit, but quotas refuse only when all quotas of the request are over. \
             Remove quota_mode to refuse on this limit alone."
        }
        Reason::Penalty => {
            "Refused by the limit's penalty: it refused this caller often, and refuses everything \
             until the time that the answer says. tollgate reset ends it."
        }
        Reason::OverLimitCache => {
            "Refused from the denial cache, without asking the store: it was over the limit less \
             than a second before. --store-over-limit-cache-ms 0 asks every time."
        }
        Reason::StoreFailureAllowed => {
            "The shared store did not decide, and --on-store-failure let the request pass. Check \
             the store: /readyz?verbose."
        }
        Reason::StoreFailureDenied => {
            "The shared store did not decide, and --on-store-failure refused the request. Check \
             the store: /readyz?verbose."
        }
        Reason::StoreFailureLocal => {
            "The shared store did not decide; this replica decided by its part of the limit. \
             Check the store: /readyz?verbose."
        }
        Reason::OverloadAllowed => {
            "The service was overloaded, and --on-overload let the request pass. Add replicas or \
             cores."
        }
        Reason::OverloadDenied => {
            "The service was overloaded, and --on-overload refused the request. Add replicas or \
             cores."
        }
        Reason::ExcessAllowed => {
            "The request exceeds a bound (--descriptors-max, --entries-max or matching steps), and \
             --on-excess let it pass."
        }
        Reason::ExcessDenied => {
            "The request exceeds a bound (--descriptors-max, --entries-max or matching steps), and \
             --on-excess refused it."
        }
        Reason::Error => "There is no answer; the error above says why.",
    };
    text.to_owned()
}
