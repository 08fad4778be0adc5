//! A request held against the rules: what to ask the store, and what each answer will mean.
//!
//! How: first every descriptor finds its rule, then rules that others replace fall out, then each limit left becomes
//! one [`Check`], which carries all the store needs by value: a reload cannot pull a rule from under a request. A
//! request that matches no limit has no checks and never waits for a store.
//!
//! What it deliberately does not do: count, ask the time, know which store will answer.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::algorithm::{Algorithm, FixedWindow};
use super::descriptor::{Descriptor, Operation, Override, Request};
use super::key::{BucketIdentity, Key, KeyHasher, hash_holder};
use super::limit::Limit;
use super::pattern::{MATCHING_STEPS_MAX, StepBudget};
use super::rule::{Allowance, Rule};
use super::rule_set::{MatchedRules, RuleSet};
use super::store_failure::OnStoreFailure;

/// One question to the store.
#[derive(Clone, Debug)]
pub struct Check {
    /// Whose bucket.
    pub key: Key,
    /// Against how much.
    pub limit: Limit,
    /// Counted how.
    pub algorithm: &'static dyn Algorithm,
    /// Taking or giving back how much, on whose behalf.
    pub operation: Operation,
    /// A number of the rule or the override that asks. Keys of the same share a bucket where a store has no room for
    /// theirs.
    pub fingerprint: u64,
    /// Whether it is about that bucket: the store says so in a check that it decided there.
    pub shared_bucket: bool,
    /// Whether, where the store that replicas share does not decide, one of this replica's own may.
    pub local: bool,
    /// What Envoy's reference service calls this counter ([`Plan::set_reference_keys`]); none where nobody goes on
    /// counting there.
    pub reference_key: Option<Arc<[u8]>>,
}

/// What one descriptor came to, in the order asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DescriptorPlan {
    /// No limit applies: no rule, a rule without a limit, a replaced rule, an unknown domain.
    NoLimit,
    /// A rule says unlimited.
    Unlimited,
    /// These of [`Plan::asked`] decide; never none.
    Checks(Range<usize>),
}

/// One question of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCheck<'p, 'r> {
    /// What the store is asked.
    pub check: &'p Check,
    /// On whose behalf.
    pub origin: LimitOrigin<'r>,
}

/// Whose limit a check is.
#[derive(Clone, Copy, Debug)]
pub enum LimitOrigin<'r> {
    /// A configured rule's.
    Rule(&'r Rule),
    /// The request's own.
    Override,
}

/// A whole request, ready to be asked.
#[derive(Debug)]
pub struct Plan<'r> {
    rules: &'r RuleSet,
    buffer: PlanBuffer,
}

/// What a plan is written on. It borrows nothing, so it can wait for a store beside the generation of rules that it speaks
/// of, and be written on again in the same memory.
#[derive(Debug, Default)]
pub struct PlanBuffer {
    /// One a descriptor, in the order sent.
    descriptors: Vec<DescriptorPlan>,
    /// What the store is to be asked, in order.
    checks: Vec<Check>,
    /// Each check's rule, by its index; none is an override.
    rule_indices: Vec<Option<usize>>,
    /// What each descriptor matched, enforced or not.
    matched: Vec<MatchedRange>,
    domain_known: bool,
    /// None where the domain's rules do not say.
    all_or_nothing: Option<bool>,
    /// The same.
    on_store_failure: Option<OnStoreFailure>,
    invalid_overrides: u64,
    /// Matching it took more steps than a request may take; then nothing else here counts.
    matching_budget_exceeded: bool,
}

/// [`MatchedRules`], by number.
#[derive(Clone, Debug, Default)]
struct MatchedRange {
    rules: Range<usize>,
    entries: usize,
}

/// The names that matched rules replace, each looked up in one step however many there are.
#[derive(Default)]
struct Replacements<'r> {
    names: HashMap<&'r str, ReplacedBy>,
}

/// Who names a rule as replaced. One that names itself replaces only others of that name.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ReplacedBy {
    /// The rule of this number, and no other.
    Rule(usize),
    Several,
}

// === impl Plan ===

impl<'r> Plan<'r> {
    /// Holds `request` against `rules`.
    pub fn new(rules: &'r RuleSet, request: &Request<'_>, hasher: &impl KeyHasher) -> Self {
        Self::with_buffer(PlanBuffer::default(), rules, request, hasher)
    }

    /// The same, on a sheet that was used before.
    pub fn with_buffer(
        mut sheet: PlanBuffer,
        rules: &'r RuleSet,
        request: &Request<'_>,
        hasher: &impl KeyHasher,
    ) -> Self {
        sheet.clear();
        let mut plan = Self {
            rules,
            buffer: sheet,
        };
        plan.fill(request, hasher);
        plan
    }

    /// The plan that this sheet holds; `rules` are those it was written by.
    pub fn from_buffer(sheet: PlanBuffer, rules: &'r RuleSet) -> Self {
        Self {
            rules,
            buffer: sheet,
        }
    }

    /// What it is written on.
    pub fn into_buffer(self) -> PlanBuffer {
        self.buffer
    }

    /// What the store is to be asked, in order.
    pub fn checks(&self) -> &[Check] {
        &self.buffer.checks
    }

    /// What each descriptor came to, in the order sent.
    pub fn descriptors(&self) -> &[DescriptorPlan] {
        &self.buffer.descriptors
    }

    /// One question, by its place among [`Plan::checks`].
    pub fn planned_check(&self, position: usize) -> Option<PlannedCheck<'_, 'r>> {
        let subject = match self.buffer.rule_indices.get(position)? {
            Some(rule) => LimitOrigin::Rule(self.rules.rules().get(*rule)?),
            None => LimitOrigin::Override,
        };
        let check = self.buffer.checks.get(position)?;
        Some(PlannedCheck {
            check,
            origin: subject,
        })
    }

    /// Every question, in order.
    pub fn planned_checks(&self) -> impl Iterator<Item = PlannedCheck<'_, 'r>> {
        (0..self.buffer.checks.len()).filter_map(|position| self.planned_check(position))
    }

    /// The rules that each descriptor matched, enforced or not, in the order sent.
    pub fn matched(&self) -> impl Iterator<Item = MatchedRules<'r>> {
        let rules = self.rules.rules();
        self.buffer.matched.iter().map(|matched| MatchedRules {
            rules: rules.get(matched.rules.clone()).unwrap_or_default(),
            entries: matched.entries,
        })
    }

    /// Whether there are rules for the request's domain at all.
    pub fn domain_known(&self) -> bool {
        self.buffer.domain_known
    }

    /// Whether the request takes from all its limits or from none.
    pub fn all_or_nothing(&self) -> bool {
        self.buffer.all_or_nothing.unwrap_or_default()
    }

    /// Says whether it does where the domain's rules do not say: their own word comes first.
    pub fn set_default_all_or_nothing(&mut self, all_or_nothing: bool) {
        self.buffer.all_or_nothing.get_or_insert(all_or_nothing);
    }

    /// What becomes of the request when the shared store does not decide.
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.buffer
            .on_store_failure
            .unwrap_or(OnStoreFailure::Error)
    }

    /// Says so where the domain's rules do not: their own word comes first.
    pub fn set_default_on_store_failure(&mut self, on_store_failure: OnStoreFailure) {
        let said = self.buffer.on_store_failure.get_or_insert(on_store_failure);
        if *said == OnStoreFailure::Local {
            for check in &mut self.buffer.checks {
                check.local = true;
            }
        }
    }

    /// Puts to each check what Envoy's reference service calls the same counter, where it has one: for a store that goes on
    /// counting there. It has one limit a descriptor, so where there are several none is the one.
    pub fn set_reference_keys(&mut self, request: &Request<'_>) {
        let PlanBuffer {
            descriptors: lines,
            checks,
            rule_indices: subjects,
            matched,
            ..
        } = &mut self.buffer;
        let described = request.descriptors().zip(&*lines).zip(&*matched);
        for ((descriptor, line), matched) in described {
            let DescriptorPlan::Checks(asked) = line else {
                continue;
            };
            if matched.rules.len() > 1 {
                continue;
            }
            let (Some(check), Some(subject)) =
                (checks.get_mut(asked.start), subjects.get(asked.start))
            else {
                continue;
            };
            let rule = subject.and_then(|index| self.rules.rules().get(index));
            let levels = rule.map_or(descriptor.entries.len(), |_| matched.entries);
            let identity = BucketIdentity {
                domain: request.domain,
                entries: descriptor.entries.get(..levels).unwrap_or_default(),
                algorithm: check.algorithm,
                limit: &check.limit,
                rule,
            };
            check.reference_key = identity.reference_key();
        }
    }

    /// Whether matching took more than [`MATCHING_STEPS_MAX`] steps. Then it is no plan, and asks
    /// nothing.
    pub fn matching_budget_exceeded(&self) -> bool {
        self.buffer.matching_budget_exceeded
    }

    /// How many overrides had no usable unit and were not obeyed.
    pub fn invalid_overrides(&self) -> u64 {
        self.buffer.invalid_overrides
    }

    fn fill(&mut self, request: &Request<'_>, hasher: &impl KeyHasher) {
        let sheet = &mut self.buffer;
        let domain = self.rules.domain(request.domain);
        sheet.domain_known = domain.is_some();
        let Some(domain) = domain else {
            sheet
                .descriptors
                .resize(request.len(), DescriptorPlan::NoLimit);
            sheet.matched.resize(request.len(), MatchedRange::default());
            return;
        };
        sheet.all_or_nothing = domain.all_or_nothing();
        sheet.on_store_failure = domain.on_store_failure();
        let steps = StepBudget::new(MATCHING_STEPS_MAX);
        let mut replaced = Replacements::default();
        for descriptor in request.descriptors() {
            let matched = match descriptor.limit {
                Some(Override::Limit(_)) => MatchedRules::default(),
                not_obeyed => {
                    let not_obeyed = u64::from(not_obeyed.is_some());
                    sheet.invalid_overrides = sheet.invalid_overrides.saturating_add(not_obeyed);
                    let found = domain.find(descriptor.entries, &steps);
                    if steps.is_exhausted() {
                        sheet.matching_budget_exceeded = true;
                        return;
                    }
                    found.unwrap_or_default()
                }
            };
            for rule in matched.rules {
                replaced.add(rule);
            }
            let start = matched.rules.first().map_or(0, |rule| rule.index);
            sheet.matched.push(MatchedRange {
                rules: start..start.saturating_add(matched.rules.len()),
                entries: matched.entries,
            });
        }
        for (position, descriptor) in request.descriptors().enumerate() {
            let line =
                self.plan_descriptor(request.domain, position, &descriptor, &replaced, hasher);
            self.buffer.descriptors.push(line);
        }
    }

    /// What a descriptor comes to; its checks are put to those already there.
    fn plan_descriptor(
        &mut self,
        domain: &[u8],
        position: usize,
        descriptor: &Descriptor<'_, '_>,
        replaced: &Replacements<'r>,
        hasher: &impl KeyHasher,
    ) -> DescriptorPlan {
        let sheet = &mut self.buffer;
        let start = sheet.checks.len();
        if let Some(Override::Limit(limit)) = descriptor.limit {
            let identity = BucketIdentity {
                domain,
                entries: descriptor.entries,
                algorithm: &FixedWindow,
                limit: &limit,
                rule: None,
            };
            sheet.push_check(&identity, descriptor.hits.into(), hasher);
            return DescriptorPlan::Checks(start..sheet.checks.len());
        }
        let Some(matched) = sheet.matched.get(position).cloned() else {
            return DescriptorPlan::NoLimit;
        };
        if matched.rules.is_empty() {
            return DescriptorPlan::NoLimit;
        }
        // Who holds a slot is no part of what a bucket is.
        let (entries, held) = descriptor
            .entries
            .split_at_checked(matched.entries)
            .unwrap_or((descriptor.entries, &[]));
        for rule in self.rules.rules().get(matched.rules).unwrap_or_default() {
            let Allowance::Limited { limit, algorithm } = &rule.allowance else {
                return DescriptorPlan::Unlimited;
            };
            if replaced.replaces(rule) {
                continue;
            }
            // Several limits may stand here, of which not each has slots.
            let held_by = held.first().filter(|entry| rule.is_holder_entry(entry));
            let ask = Operation {
                hits: descriptor.hits,
                holder: held_by.map(|entry| hash_holder(entry.value, hasher)),
            };
            let identity = BucketIdentity {
                domain,
                entries,
                algorithm: *algorithm,
                limit,
                rule: Some(rule),
            };
            sheet.push_check(&identity, ask, hasher);
        }
        match sheet.checks.len() {
            end if end == start => DescriptorPlan::NoLimit,
            end => DescriptorPlan::Checks(start..end),
        }
    }
}

// === impl Replaced ===

impl<'r> Replacements<'r> {
    /// Takes in what a matched rule names.
    fn add(&mut self, rule: &'r Rule) {
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

    /// Whether another matched rule names this one; it is then not counted.
    fn replaces(&self, rule: &Rule) -> bool {
        // Most rule sets replace nothing: then no name is hashed.
        !self.names.is_empty()
            && match self.names.get(rule.name.as_str()) {
                None => false,
                Some(ReplacedBy::Several) => true,
                Some(ReplacedBy::Rule(index)) => *index != rule.index,
            }
    }
}

// === impl Check ===

impl Check {
    /// Whether its hits pass in a bucket never used; else they never do.
    pub fn can_ever_pass(&self) -> bool {
        self.operation.hits.requested() <= self.limit.burst()
    }
}

// === impl Sheet ===

impl PlanBuffer {
    /// What the store is to be asked, in order.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    fn clear(&mut self) {
        self.descriptors.clear();
        self.checks.clear();
        self.rule_indices.clear();
        self.matched.clear();
        self.all_or_nothing = None;
        self.on_store_failure = None;
        self.invalid_overrides = 0;
        self.matching_budget_exceeded = false;
    }

    /// Puts the question about this bucket to those already there.
    fn push_check(
        &mut self,
        identity: &BucketIdentity<'_>,
        ask: Operation,
        hasher: &impl KeyHasher,
    ) {
        self.checks.push(Check {
            key: identity.key(hasher),
            limit: *identity.limit,
            algorithm: identity.algorithm,
            operation: ask,
            fingerprint: match identity.rule {
                Some(rule) => rule.fingerprint,
                None => override_fingerprint(identity.limit),
            },
            shared_bucket: false,
            local: false,
            reference_key: None,
        });
        self.rule_indices.push(identity.rule.map(|rule| rule.index));
    }
}

/// All overrides of the same limit are of one source.
fn override_fingerprint(limit: &Limit) -> u64 {
    let numbers = [limit.requests(), limit.window().as_us()];
    // Each bit of a number reaches all of the sum's: a multiplication by an odd constant, and its upper half on the lower.
    numbers.into_iter().fold(1, |sum: u64, number| {
        let mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}
