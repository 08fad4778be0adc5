//! Metrics of quotas: streams, reports, assignments, and the figures of each rule.

use std::collections::BTreeMap;

use prometheus::Histogram;

use super::declaration::{Counter, Gauge, LabelValues, metrics};
use super::gauges::RuleGauge;
use super::label::{OVERFLOW, label};

/// How many rules have gauges of their own; those beyond share the labels [`OVERFLOW`].
const RULES_MAX: usize = 1_000;

const DOMAINS: LabelValues = LabelValues::Bounded("domains of the rules, and `overflow`");

const RULES: LabelValues = LabelValues::Bounded("1,000 rules with rlqs: true, and `overflow`");

const CONVERGENCE_BUCKETS: &[f64] = &[
    1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 120.0, 300.0,
];

metrics! {
    /// Metrics of the rate limit quota service.
    pub struct QuotaMetrics {
        /// Open streams of proxies that report usage.
        Gauge "tollgate_quota_streams" => pub streams;

        /// Buckets that proxies report or whose assignments may be in force.
        Gauge "tollgate_quota_buckets" => pub buckets;

        /// Parts of buckets: one for each stream that reports one.
        Gauge "tollgate_quota_shares" => pub shares;

        /// Reports received.
        Counter "tollgate_quota_reports_total" => pub reports;

        /// Actions sent, by kind.
        Counter "tollgate_quota_actions_total" by action {
            assigned = "assigned", abandoned = "abandoned",
        }

        /// Usages in reports that belong to no bucket, by cause.
        Counter "tollgate_quota_usages_ignored_total" by cause {
            unknown_domain = "unknown_domain",
            unknown_id = "unknown_id",
            too_many = "too_many",
            too_long = "too_long",
        }

        /// Streams closed by the service, by cause.
        Counter "tollgate_quota_streams_closed_total" by cause {
            closed_slow = "slow", closed_changed_domain = "changed_domain",
            closed_stopping = "stopping",
        }

        /// Requests to the shared store for this replica's leases of quotas, by result.
        Counter "tollgate_quota_lease_requests_total" by result {
            exchanged = "answered", exchanges_failed = "failed",
        }

        /// Checks of rules with rlqs: true, which were answered with an error.
        Counter "tollgate_quota_checks_refused_total" => pub checks_refused;

        /// Times figures of a rule were added to the label "overflow": the bound on rules was met.
        Counter "tollgate_quota_rules_overflowed_total" => rules_overflowed;

        /// Seconds that the shares of a bucket took to become fair after the demand changed.
        Histogram "tollgate_quota_convergence_seconds" in CONVERGENCE_BUCKETS => convergence;

        /// Requests a second that the limits of a rule's buckets allow.
        RuleGauge "tollgate_quota_limit_per_second" [domain: DOMAINS, rule: RULES] as "" => limit;

        /// Requests a second that proxies reported of a rule, allowed and denied, smoothed.
        RuleGauge "tollgate_quota_demand_per_second" [domain: DOMAINS, rule: RULES] as "" => demand;

        /// Requests a second that proxies let pass.
        RuleGauge "tollgate_quota_allowed_per_second" [domain: DOMAINS, rule: RULES] as "" => allowed;

        /// Requests a second that proxies denied.
        RuleGauge "tollgate_quota_denied_per_second" [domain: DOMAINS, rule: RULES] as "" => denied;

        /// Requests a second that are assigned to open streams.
        RuleGauge "tollgate_quota_assigned_per_second" [domain: DOMAINS, rule: RULES] as ""
            => assigned_rate;

        /// Requests a second of all assignments that have not expired.
        RuleGauge "tollgate_quota_in_force_per_second" [domain: DOMAINS, rule: RULES] as ""
            => in_force;

        /// Buckets of a rule.
        RuleGauge "tollgate_quota_rule_buckets" [domain: DOMAINS, rule: RULES] as "" => rule_buckets;

        /// Parts of a rule's buckets: one for each stream that reports one.
        RuleGauge "tollgate_quota_rule_shares" [domain: DOMAINS, rule: RULES] as "" => rule_shares;

        /// Buckets of a rule in which an assignment differs from its fair share.
        RuleGauge "tollgate_quota_converging_buckets" [domain: DOMAINS, rule: RULES] as ""
            => converging_buckets;

        /// Seconds for which the longest of them has differed.
        RuleGauge "tollgate_quota_converging_seconds" [domain: DOMAINS, rule: RULES] as ""
            => converging_seconds;
    }
}

/// The figures of one rule.
#[derive(Clone, Debug)]
pub struct RuleRates {
    /// Its domain.
    pub domain: String,
    /// Its name.
    pub rule: String,
    /// Millionths a second: limit, demand, allowed, denied, assigned, in force.
    pub micro_rates: [u64; 6],
    /// Buckets.
    pub buckets: u64,
    /// Shares of proxies in the buckets.
    pub shares: u64,
    /// Buckets in which an assignment differs from its fair share.
    pub converging: u64,
    /// How long the longest of them has differed.
    pub converging_ms: u64,
}

// === impl QuotaMetrics ===

impl QuotaMetrics {
    /// Counts a convergence that ended.
    #[allow(clippy::cast_precision_loss)] // a span of time
    pub fn observe_convergence(&self, took_ms: u64) {
        self.convergence.observe(took_ms as f64 / 1_000.0);
    }

    /// Replaces the figures of all rules. Rules that are left out have none any more.
    #[allow(clippy::cast_precision_loss)] // figures for people
    pub fn set_rules(&self, rules: impl Iterator<Item = RuleRates>) {
        let mut values: BTreeMap<[String; 2], [f64; 10]> = BTreeMap::new();
        for rule in rules {
            let mut labels = [label(&rule.domain), label(&rule.rule)];
            if values.len() >= RULES_MAX && !values.contains_key(&labels) {
                self.rules_overflowed.inc();
                labels = [OVERFLOW, OVERFLOW].map(str::to_owned);
            }
            let sums = values.entry(labels).or_default();
            let [rates @ .., buckets, shares, converging, longest] = sums;
            for (sum, more) in rates.iter_mut().zip(rule.micro_rates) {
                *sum += more as f64 / 1_000_000.0;
            }
            *buckets += rule.buckets as f64;
            *shares += rule.shares as f64;
            *converging += rule.converging as f64;
            *longest = longest.max(rule.converging_ms as f64 / 1_000.0);
        }
        let gauges = [
            &self.limit,
            &self.demand,
            &self.allowed,
            &self.denied,
            &self.assigned_rate,
            &self.in_force,
            &self.rule_buckets,
            &self.rule_shares,
            &self.converging_buckets,
            &self.converging_seconds,
        ];
        for (at, gauge) in gauges.into_iter().enumerate() {
            let of_rules = values.iter();
            let of_rules =
                of_rules.filter_map(|(labels, sums)| Some((labels.to_vec(), *sums.get(at)?)));
            gauge.replace(of_rules.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn rates(number: usize) -> RuleRates {
        RuleRates {
            domain: "edge".to_owned(),
            rule: format!("edge.rule-{number:05}"),
            micro_rates: [
                1_500_000, 250_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000,
            ],
            buckets: 2,
            shares: 3,
            converging: 1,
            converging_ms: 2_500,
        }
    }

    #[test]
    fn rules_have_gauges_up_to_a_bound_and_lose_them_when_they_go() {
        let metrics = Metrics::new().unwrap();
        let shown = |name: &str| {
            let text = metrics.render().unwrap();
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(shown("tollgate_quota_limit_per_second{"), [""; 0]);
        metrics.quotas.set_rules((0..RULES_MAX + 4).map(rates));
        let limits = shown("tollgate_quota_limit_per_second{");
        assert_eq!(limits.len(), RULES_MAX + 1);
        let overflow = "tollgate_quota_limit_per_second{domain=\"overflow\",rule=\"overflow\"} 6";
        assert!(limits.iter().any(|line| line == overflow));
        assert_eq!(
            shown("tollgate_quota_rules_overflowed_total "),
            ["tollgate_quota_rules_overflowed_total 4"]
        );
        metrics.quotas.set_rules(std::iter::once(rates(7)));
        let labels = "{domain=\"edge\",rule=\"edge.rule-00007\"}";
        for (name, value) in [
            ("limit_per_second", "1.5"),
            ("demand_per_second", "0.25"),
            ("allowed_per_second", "3"),
            ("denied_per_second", "4"),
            ("assigned_per_second", "5"),
            ("in_force_per_second", "6"),
            ("rule_buckets", "2"),
            ("rule_shares", "3"),
            ("converging_buckets", "1"),
            ("converging_seconds", "2.5"),
        ] {
            let name = format!("tollgate_quota_{name}");
            let series = format!("{name}{labels} {value}");
            assert_eq!(shown(&format!("{name}{{")), [series]);
        }
    }
}
