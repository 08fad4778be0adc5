//! Matches a request against the rules: which buckets to ask, and what each outcome will mean.
//!
//! How: every descriptor finds its rules, rules that others replace are dropped, and each limit
//! that is left becomes one [`Check`]. A check carries all that the store needs by value, so a
//! reload cannot take a rule away from a request. A request that matches no limit has no checks and
//! never waits for a store.
//!
//! What it deliberately does not do: count, ask the time, know which store will decide.

use std::collections::HashMap;
use std::ops::Range;

use super::algorithm::{Algorithm, FixedWindow, Outcome, TokenBucket};
use super::allowance::Allowance;
use super::check::{Check, LimitOrigin, PlannedCheck, override_fingerprint};
use super::descriptor::{Descriptor, Entry, Hits, Operation, Override, Request};
use super::key::{BucketIdentity, BucketNaming, KeyHasher, hash_holder};
use super::limit::{CountRefused, Limit};
use super::limit_table::TableLine;
use super::pattern::{MATCHING_STEPS_MAX, StepBudget};
use super::planned_steps::PlannedSteps;
use super::reservation::{COST_ONE, ReservationOutcome, Step};
use super::rule::Rule;
use super::rule_set::{MatchedRules, OnUndecided, RuleSet};
use super::time::Timestamp;

/// The plan of one descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DescriptorPlan {
    /// No limit applies: no rule, a node without one, a replaced rule, an unknown domain.
    NoLimit,
    /// A rule with `unlimited` matched.
    Unlimited,
    /// These of [`Plan::checks`] decide. The range is never empty.
    Checks(Range<usize>),
}

/// The plan of a whole request.
#[derive(Debug)]
pub struct Plan<'r> {
    rules: &'r RuleSet,
    buffer: PlanBuffer,
}

/// The memory of a plan. It borrows nothing, so it can wait for a store beside the generation of
/// rules that it refers to, and be used again for the next request without an allocation.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is about another part of a request
pub struct PlanBuffer {
    /// One for each descriptor, in the order sent.
    descriptors: Vec<DescriptorPlan>,
    /// The checks for the store, in order.
    checks: Vec<Check>,
    /// The position of each check's rule; none for a limit that came with the request.
    rule_positions: Vec<Option<usize>>,
    /// The rules that each descriptor matched, enforced or not.
    matched: Vec<MatchedRange>,
    domain_known: bool,
    /// None where the domain's rules do not set it.
    all_or_nothing: Option<bool>,
    /// None where the domain's rules do not set it.
    on_store_failure: Option<OnUndecided>,
    invalid_overrides: u64,
    /// Its reservations and shared budgets; none until a request has the first, so that a plan
    /// without them is small to move.
    steps: Option<Box<PlannedSteps>>,
    /// Matching took more steps than one request may take. The plan is then invalid.
    matching_budget_exceeded: bool,
    /// A rule that matched is apportioned over proxies, and answers no requests.
    has_quota: bool,
    /// An override blocks one of the descriptors.
    has_blocked: bool,
}

/// [`MatchedRules`] as a range of positions of rules.
#[derive(Clone, Debug, Default)]
struct MatchedRange {
    rules: Range<usize>,
    entries: usize,
    line: Option<TableLine>,
}

// === impl Plan ===

impl<'r> Plan<'r> {
    /// Plans `request` against `rules`.
    #[inline]
    pub fn new(rules: &'r RuleSet, request: &Request<'_>, hasher: &impl KeyHasher) -> Self {
        Self::with_buffer(PlanBuffer::default(), rules, request, hasher)
    }

    /// Plans `request` in a buffer that was used before.
    #[inline]
    pub fn with_buffer(
        mut buffer: PlanBuffer,
        rules: &'r RuleSet,
        request: &Request<'_>,
        hasher: &impl KeyHasher,
    ) -> Self {
        buffer.clear();
        let mut plan = Self { rules, buffer };
        plan.fill(request, hasher);
        plan
    }

    /// The plan in this buffer. `rules` must be the rules that it was made from.
    #[inline]
    pub fn from_buffer(buffer: PlanBuffer, rules: &'r RuleSet) -> Self {
        Self { rules, buffer }
    }

    /// Gives the buffer back, to use it again.
    #[inline]
    pub fn into_buffer(self) -> PlanBuffer {
        self.buffer
    }

    /// The checks for the store, in order.
    #[inline]
    pub fn checks(&self) -> &[Check] {
        &self.buffer.checks
    }

    /// The plan of each descriptor, in the order sent.
    #[inline]
    pub fn descriptors(&self) -> &[DescriptorPlan] {
        &self.buffer.descriptors
    }

    /// One check and its origin, by its index in [`Plan::checks`].
    #[inline]
    pub fn planned_check(&self, position: usize) -> Option<PlannedCheck<'_, 'r>> {
        let origin = match self.buffer.rule_positions.get(position)? {
            Some(rule) => LimitOrigin::Rule(self.rules.all_rules().get(*rule)?),
            None => LimitOrigin::Override,
        };
        let check = self.buffer.checks.get(position)?;
        Some(PlannedCheck { check, origin })
    }

    /// Every check and its origin, in order.
    #[inline]
    pub fn planned_checks(&self) -> impl Iterator<Item = PlannedCheck<'_, 'r>> {
        (0..self.buffer.checks.len()).filter_map(|position| self.planned_check(position))
    }

    /// The rules that each descriptor matched, enforced or not, in the order sent.
    #[inline]
    pub fn matched(&self) -> impl Iterator<Item = MatchedRules<'r>> {
        let rules = self.rules.all_rules();
        self.buffer.matched.iter().map(|matched| MatchedRules {
            rules: rules.get(matched.rules.clone()).unwrap_or_default(),
            entries: matched.entries,
            line: matched.line,
        })
    }

    /// The position of each check, after that of its descriptor.
    pub fn descriptor_checks(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let descriptors = self.buffer.descriptors.iter().enumerate();
        descriptors.flat_map(|(descriptor, planned)| {
            let positions = match planned {
                DescriptorPlan::Checks(positions) => positions.clone(),
                DescriptorPlan::NoLimit | DescriptorPlan::Unlimited => 0..0,
            };
            positions.map(move |position| (descriptor, position))
        })
    }

    /// Whether the request's domain has rules.
    #[inline]
    pub fn domain_known(&self) -> bool {
        self.buffer.domain_known
    }

    /// Whether the request takes from all its limits or from none. One that starts a reservation
    /// does, whatever the rules say.
    #[inline]
    pub fn all_or_nothing(&self) -> bool {
        self.buffer.all_or_nothing.unwrap_or_default() || self.has_starts()
    }

    /// Sets it for a domain whose rules do not.
    #[inline]
    pub fn set_default_all_or_nothing(&mut self, all_or_nothing: bool) {
        self.buffer.all_or_nothing.get_or_insert(all_or_nothing);
    }

    /// Sets it, whatever the domain's rules say.
    #[inline]
    pub fn set_all_or_nothing(&mut self, all_or_nothing: bool) {
        self.buffer.all_or_nothing = Some(all_or_nothing);
    }

    /// Replaces the operation of every check by what `operation_of` makes of the position of its
    /// descriptor and the check. Checks that then do the same on one budget are one. It has the sum
    /// of their prices if `adds_prices`, else the hits of the first.
    ///
    /// # Errors
    ///
    /// The first error of `operation_of`. The checks before it then have their new operations.
    pub fn replace_operations<E>(
        &mut self,
        adds_prices: bool,
        operation_of: impl Fn(usize, PlannedCheck<'_, 'r>) -> Result<Operation, E>,
    ) -> Result<(), E> {
        for descriptor in 0..self.buffer.descriptors.len() {
            let Some(DescriptorPlan::Checks(range)) = self.buffer.descriptors.get(descriptor)
            else {
                continue;
            };
            for position in range.clone() {
                let Some(planned) = self.planned_check(position) else {
                    continue;
                };
                let operation = operation_of(descriptor, planned)?;
                if let Some(check) = self.buffer.checks.get_mut(position) {
                    check.operation = operation;
                }
            }
        }
        let PlanBuffer { steps, checks, .. } = &mut self.buffer;
        if let Some(steps) = steps {
            steps.merge_again(checks, adds_prices);
        }
        Ok(())
    }

    /// The answer to the request when the shared store does not decide.
    #[inline]
    pub fn on_store_failure(&self) -> OnUndecided {
        self.buffer.on_store_failure.unwrap_or(OnUndecided::Error)
    }

    /// Sets it for a domain whose rules do not.
    #[inline]
    pub fn set_default_on_store_failure(&mut self, on_store_failure: OnUndecided) {
        let said = self.buffer.on_store_failure.get_or_insert(on_store_failure);
        if *said == OnUndecided::Local {
            for check in &mut self.buffer.checks {
                check.may_fall_back = true;
            }
        }
    }

    /// Whether the request starts a reservation.
    #[inline]
    pub fn has_starts(&self) -> bool {
        let steps = self.buffer.steps.as_ref();
        steps.is_some_and(|steps| steps.has_starts())
    }

    /// The checks that start a reservation, each with its rule: to set an amount that was learnt.
    pub fn starts_mut(&mut self) -> impl Iterator<Item = (&'r Rule, &mut Check)> {
        let rules = self.rules.all_rules();
        let checks = self.buffer.checks.iter_mut();
        let planned = checks.zip(&self.buffer.rule_positions);
        planned.filter_map(move |(check, rule)| {
            let rule = rules.get((*rule)?)?;
            check.reserves().then_some((rule, check))
        })
    }

    /// Keeps buckets from remembering a refused start, where a refusal need not refuse the request.
    #[cold]
    pub fn forget_refused_starts(&mut self) {
        for (_, check) in self.starts_mut() {
            if let Hits::Reservation(Step::Reserve {
                remember_refused, ..
            }) = &mut check.operation.hits
            {
                *remember_refused = false;
            }
        }
    }

    /// The position of the check whose outcome decides the check at `position`: another one where
    /// both draw on one budget.
    #[inline]
    pub fn deciding(&self, position: usize) -> usize {
        let steps = self.buffer.steps.as_ref();
        steps.map_or(position, |steps| steps.deciding(position))
    }

    /// Sets [`Check::bucket_name`] by `naming`, for a store that continues the buckets of another
    /// service. Skips descriptors with several limits, since a name is that of one bucket, and
    /// budgets, which no other service has.
    pub fn name_buckets(&mut self, request: &Request<'_>, naming: BucketNaming) {
        let PlanBuffer {
            descriptors,
            checks,
            rule_positions,
            matched,
            ..
        } = &mut self.buffer;
        let planned = request.descriptors().zip(&*descriptors).zip(&*matched);
        for ((descriptor, plan), matched) in planned {
            let DescriptorPlan::Checks(range) = plan else {
                continue;
            };
            if matched.rules.len() > 1 {
                continue;
            }
            let (Some(check), Some(rule_position)) =
                (checks.get_mut(range.start), rule_positions.get(range.start))
            else {
                continue;
            };
            let rule = rule_position.and_then(|index| self.rules.all_rules().get(index));
            if rule.is_some_and(|rule| rule.budget.is_some()) {
                continue;
            }
            let levels = rule.map_or(descriptor.entries.len(), |_| matched.entries);
            check.bucket_name = naming(&BucketIdentity {
                domain: request.domain,
                entries: descriptor.entries.get(..levels).unwrap_or_default(),
                algorithm: check.algorithm,
                limit: &check.limit,
                rule,
            });
        }
    }

    /// Whether matching took more than [`MATCHING_STEPS_MAX`] steps. The plan is then invalid and
    /// has no checks.
    #[inline]
    pub fn matching_budget_exceeded(&self) -> bool {
        self.buffer.matching_budget_exceeded
    }

    /// A rule of a check that is apportioned over proxies and answers no requests, if there is one.
    #[inline]
    pub fn quota_rule(&self) -> Option<&'r Rule> {
        if !self.buffer.has_quota {
            return None;
        }
        let rules = self.buffer.rule_positions.iter().flatten();
        let mut rules = rules.filter_map(|index| self.rules.all_rules().get(*index));
        rules.find(|rule| rule.rlqs)
    }

    /// Refuses the checks that an override blocks, whatever the store made of them, until their
    /// time. `now` is asked only where there are any.
    #[inline]
    pub fn refuse_blocked(
        &self,
        outcomes: &mut [Option<Outcome>],
        now: impl FnOnce() -> Timestamp,
    ) {
        if self.buffer.has_blocked {
            self.refuse_until(outcomes, now());
        }
    }

    #[cold]
    fn refuse_until(&self, outcomes: &mut [Option<Outcome>], now: Timestamp) {
        for position in 0..self.buffer.checks.len() {
            let Some(PlannedCheck { check, origin }) = self.planned_check(position) else {
                continue;
            };
            if let LimitOrigin::Rule(rule) = origin
                && check.operation.hits.can_be_refused()
                && let Some(until) = rule.blocked_until()
                && let Some(outcome) = outcomes.get_mut(self.deciding(position))
            {
                let left_us = until.since_us(now);
                *outcome = Some(Outcome {
                    allowed: false,
                    used_before: outcome.map_or(0, |outcome| outcome.used_before),
                    remaining: 0,
                    reset_us: left_us,
                    retry_us: Some(left_us),
                    bucket_time: outcome.map_or(now, |outcome| outcome.bucket_time),
                    blocked: false,
                    reservation: outcome
                        .map_or_else(ReservationOutcome::default, |outcome| outcome.reservation),
                });
            }
        }
    }

    /// How many overrides had no usable unit and were ignored.
    #[inline]
    pub fn invalid_overrides(&self) -> u64 {
        self.buffer.invalid_overrides
    }

    fn fill(&mut self, request: &Request<'_>, hasher: &impl KeyHasher) {
        let buffer = &mut self.buffer;
        let domain = self.rules.domain(request.domain);
        buffer.domain_known = domain.is_some();
        let Some(domain) = domain else {
            buffer
                .matched
                .resize(request.len(), MatchedRange::default());
            let replaced = Replacements::default();
            for (position, descriptor) in request.descriptors().enumerate() {
                let line = match descriptor.limit {
                    Some(Override::Bucket(_)) => {
                        self.buffer.domain_known = true;
                        self.plan_descriptor(
                            request.domain,
                            position,
                            &descriptor,
                            &replaced,
                            hasher,
                        )
                    }
                    _ => DescriptorPlan::NoLimit,
                };
                self.buffer.descriptors.push(line);
            }
            return;
        };
        buffer.all_or_nothing = domain.all_or_nothing();
        buffer.on_store_failure = domain.on_store_failure();
        let steps = StepBudget::new(MATCHING_STEPS_MAX);
        let mut replaced = Replacements::default();
        for descriptor in request.descriptors() {
            let found = match descriptor.limit {
                Some(Override::Bucket(_)) => None,
                _ => domain.find(descriptor.entries, &steps),
            };
            if steps.is_exhausted() {
                buffer.matching_budget_exceeded = true;
                return;
            }
            let matched = match descriptor.limit {
                None => found,
                Some(limit) => buffer.beside_limit(limit, found),
            };
            let matched = matched.unwrap_or_default();
            for rule in matched.rules {
                replaced.add(rule);
            }
            let start = matched.rules.first().map_or(0, Rule::position);
            buffer.matched.push(MatchedRange {
                rules: start..start.saturating_add(matched.rules.len()),
                entries: matched.entries,
                line: matched.line,
            });
        }
        for (position, descriptor) in request.descriptors().enumerate() {
            let line =
                self.plan_descriptor(request.domain, position, &descriptor, &replaced, hasher);
            self.buffer.descriptors.push(line);
        }
        if let Some(steps) = &mut self.buffer.steps {
            steps.finish(&mut self.buffer.checks);
        }
    }

    /// Plans one descriptor and appends its checks.
    fn plan_descriptor(
        &mut self,
        domain: &[u8],
        position: usize,
        descriptor: &Descriptor<'_, '_>,
        replaced: &Replacements<'r>,
        hasher: &impl KeyHasher,
    ) -> DescriptorPlan {
        let buffer = &mut self.buffer;
        let start = buffer.checks.len();
        let matched = buffer.matched.get(position).cloned().unwrap_or_default();
        if matched.rules.is_empty() {
            let (limit, algorithm): (_, &'static dyn Algorithm) = match descriptor.limit {
                Some(Override::Limit(limit)) => (limit, &FixedWindow),
                Some(Override::Bucket(limit)) => (limit, &TokenBucket),
                Some(Override::Invalid) | None => return DescriptorPlan::NoLimit,
            };
            let identity = BucketIdentity {
                domain,
                entries: descriptor.entries,
                algorithm,
                limit,
                rule: None,
            };
            buffer.push_check(&identity, descriptor.hits.into(), hasher);
            return DescriptorPlan::Checks(start..buffer.checks.len());
        }
        // The holder of a slot is not part of the bucket's identity.
        let (entries, held) = descriptor
            .entries
            .split_at_checked(matched.entries)
            .unwrap_or((descriptor.entries, &[]));
        let rules = self.rules.all_rules().get(matched.rules.clone());
        let rules = rules.unwrap_or_default();
        let adjusted = match descriptor.limit {
            // What an operator has set goes first.
            Some(Override::Limit(limit)) if rules.iter().all(|rule| rule.overriding.is_none()) => {
                buffer.adjusted(rules, limit)
            }
            _ => None,
        };
        for rule in rules {
            let Allowance::Limited { limit, algorithm } = &rule.allowance else {
                return DescriptorPlan::Unlimited;
            };
            if replaced.replaces(rule) {
                continue;
            }
            buffer.has_quota |= rule.rlqs;
            buffer.has_blocked |= rule.blocked_until().is_some();
            let adjusted = adjusted.as_ref().filter(|(index, _)| *index == rule.index);
            let of_line;
            let applied = match (adjusted, matched.line) {
                (None, None) => limit,
                (Some((_, adjusted)), _) => adjusted,
                (None, Some(line)) => {
                    of_line = rule.limit_of(line, limit);
                    &of_line
                }
            };
            // A descriptor can have several limits, of which some have no slots.
            let held_by = held.first().filter(|entry| rule.is_holder_entry(entry));
            let operation = buffer.operation(rule, descriptor, held_by, hasher);
            if rule.budget.is_some() {
                let position = buffer.checks.len();
                let steps = buffer.steps.get_or_insert_default();
                steps.add_price(position, descriptor.hits, rule.cost);
            }
            let identity = BucketIdentity {
                domain,
                entries,
                algorithm: *algorithm,
                limit: applied,
                rule: Some(rule),
            };
            buffer.push_check(&identity, operation, hasher);
            // Buckets that differ in their window must not become one for want of memory.
            if adjusted.is_some()
                && applied.window() != limit.window()
                && let Some(check) = buffer.checks.last_mut()
            {
                check.fingerprint ^= override_fingerprint(&check.limit);
            }
        }
        match buffer.checks.len() {
            end if end == start => DescriptorPlan::NoLimit,
            end => DescriptorPlan::Checks(start..end),
        }
    }
}

// === impl PlanBuffer ===

impl PlanBuffer {
    /// Whether the request takes hits and does nothing else: it has no step of a reservation, and
    /// no check that draws on a budget.
    #[inline]
    pub fn only_takes(&self) -> bool {
        let steps = self.steps.as_ref();
        steps.is_none_or(|steps| steps.is_empty())
    }

    /// The checks for the store, in order.
    #[inline]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The operation of a descriptor on the bucket of one of its rules.
    #[inline]
    fn operation(
        &mut self,
        rule: &Rule,
        descriptor: &Descriptor<'_, '_>,
        held_by: Option<&Entry<'_>>,
        hasher: &impl KeyHasher,
    ) -> Operation {
        if let Some(reserve) = &rule.reserve {
            let steps = self.steps.get_or_insert_default();
            return steps.operation((rule, reserve), descriptor, held_by, hasher);
        }
        Operation {
            hits: match rule.cost {
                COST_ONE => descriptor.hits,
                cost => descriptor.hits.priced(cost),
            },
            holder: held_by.map(|entry| hash_holder(entry.value, hasher)),
        }
    }

    /// The rules of a descriptor that carries a limit: none where that limit replaces them.
    #[cold]
    fn beside_limit<'r>(
        &mut self,
        limit: &Override,
        found: Option<MatchedRules<'r>>,
    ) -> Option<MatchedRules<'r>> {
        match limit {
            Override::Limit(_) => found.filter(|found| found.rules.iter().all(Rule::is_adjusted)),
            Override::Bucket(_) => None,
            Override::Invalid => {
                self.invalid_overrides = self.invalid_overrides.saturating_add(1);
                found
            }
        }
    }

    /// Which of these rules the limit of a request adjusts, and to what: the one with the same
    /// window, or else the first. None, which is counted, where the rule cannot have its numbers.
    #[cold]
    fn adjusted(&mut self, rules: &[Rule], numbers: &Limit) -> Option<(usize, Limit)> {
        let has_its_window = |rule: &&Rule| match &rule.allowance {
            Allowance::Limited { limit, .. } => limit.has_window_of(numbers),
            Allowance::Unlimited => false,
        };
        let rule = rules.iter().find(has_its_window).or(rules.first())?;
        let adjusted = rule.allowance.adjusted(numbers);
        if adjusted.is_none() {
            self.invalid_overrides = self.invalid_overrides.saturating_add(1);
        }
        Some((rule.index, adjusted?))
    }

    fn clear(&mut self) {
        if let Some(steps) = &mut self.steps {
            steps.clear();
        }
        self.descriptors.clear();
        self.checks.clear();
        self.rule_positions.clear();
        self.matched.clear();
        self.all_or_nothing = None;
        self.on_store_failure = None;
        self.invalid_overrides = 0;
        self.matching_budget_exceeded = false;
        self.has_quota = false;
        self.has_blocked = false;
    }

    /// Appends the check of one bucket.
    fn push_check(
        &mut self,
        identity: &BucketIdentity<'_>,
        operation: Operation,
        hasher: &impl KeyHasher,
    ) {
        self.checks.push(Check {
            key: identity.key(hasher),
            limit: *identity.limit,
            algorithm: identity.algorithm,
            operation,
            fingerprint: match identity.rule {
                Some(rule) => rule.fingerprint,
                None => override_fingerprint(identity.limit),
            },
            shared_bucket: false,
            may_fall_back: false,
            is_exact: identity.rule.is_some_and(|rule| rule.reserve.is_some())
                || identity.limit.count_refused() == Some(CountRefused::InFull)
                || identity.limit.penalty().is_some(),
            bucket_name: None,
        });
        self.rule_positions.push(identity.rule.map(Rule::position));
    }
}

/// The names that matched rules replace. A look-up takes one step, however many names there are.
#[derive(Default)]
pub(super) struct Replacements<'r> {
    names: HashMap<&'r str, ReplacedBy>,
}

/// The rules that replace one name. A rule that names itself replaces only other rules of that
/// name.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum ReplacedBy {
    /// Only the rule with this index.
    Rule(usize),
    Several,
}

// === impl Replacements ===

impl<'r> Replacements<'r> {
    /// Adds the names that a matched rule replaces. Few rules have any.
    #[inline]
    pub(super) fn add(&mut self, rule: &'r Rule) {
        if !rule.replaces.is_empty() {
            self.add_names(rule);
        }
    }

    #[cold]
    fn add_names(&mut self, rule: &'r Rule) {
        for name in &rule.replaces {
            let by = self
                .names
                .entry(name)
                .or_insert(ReplacedBy::Rule(rule.index));
            if *by != ReplacedBy::Rule(rule.index) {
                *by = ReplacedBy::Several;
            }
        }
    }

    /// Whether another matched rule replaces this one. It is then not counted.
    pub(super) fn replaces(&self, rule: &Rule) -> bool {
        // Most rule sets replace nothing. Then no name is hashed.
        !self.names.is_empty()
            && match self.names.get(rule.name.as_str()) {
                None => false,
                Some(ReplacedBy::Several) => true,
                Some(ReplacedBy::Rule(index)) => *index != rule.index,
            }
    }
}
