//! Label sets of configured limits: which there are, and how long each is kept.
//!
//! A limit is known by its domain, its rule and a text that tells it from the other limits of that
//! rule: its name, else its window. A reload looks its rules up by these labels, so a limit that
//! stays, or comes back in time, keeps its counters. The limits that came with requests have one
//! label set a domain.
//!
//! A label set that no generation of rules holds is freed after its retention. A core that still
//! counts for an old generation holds it, and with it its label sets; their retention starts when
//! the last holder is gone. Without a reader no retention ends. So a reload frees the oldest unused
//! label sets when they outnumber those in use, and [`RETIRED_LABEL_SETS_MAX`].
//!
//! Why a retention counts readings and not seconds: a counter that is freed before it was read
//! loses its last hits, and the interval of a reader is unknown. Why two: with two servers that
//! scrape in turn, or a scrape whose response is lost, one reading is not enough.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::{Allowance, Rule, RuleSet};

use super::declaration::Counter;
use super::label::{OVERFLOW, cut, label, names, overflow_names};
use super::limit::{HitsByLimit, LimitCounters, LimitHits, SeriesTable};

/// How many times each reader reads a label set that is no longer in use before it is freed.
const READINGS: u64 = 2;

/// How many limits have counters of their own; those beyond share the labels [`super::OVERFLOW`].
pub const RULE_LABEL_SETS_MAX: usize = 10_000;

/// How many label sets of rules that are no longer in use stay at a reload, where fewer are in use.
pub const RETIRED_LABEL_SETS_MAX: usize = 1_000;

/// What reads the counters of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reader {
    /// `/metrics`: a reading is a response.
    Scrape,
    /// statsd: a reading is a flush that sent all there was.
    Flush,
}

/// How many complete readings there were by each reader, in the order of [`Reader`]; none of a
/// reader that was not seen yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readings([Option<u64>; 2]);

/// The rule of the limits that came with requests.
const OVERRIDE: &str = "(override)";

/// Domain, rule and limit.
type LimitLabels = [Arc<str>; 3];

/// The label sets of configured limits.
#[derive(Debug)]
pub(super) struct RuleLabelSets {
    sets: HashMap<LimitLabels, OfRule>,
    overflow: Arc<LimitCounters>,
    /// Reloads so far.
    generation: u64,
    /// The domains of the newest rules, as labels. None before there are any.
    domains: Option<HashSet<String>>,
    /// The number that was last given to a label set.
    last_number: u64,
    pub(super) readings: Readings,
}

#[derive(Debug)]
struct OfRule {
    counters: Arc<LimitCounters>,
    /// The newest generation of rules that has it.
    generation: u64,
    /// The readings when it was last in use.
    since: Readings,
    /// Whether it has a limit. Without one, its hits are shown once there are some.
    is_limited: bool,
}

/// The counters of every rule of one rule set. A clone has the same counters.
#[derive(Clone, Debug, Default)]
pub struct RuleCounters {
    /// By [`Rule::index`].
    counters: Arc<[Arc<LimitCounters>]>,
    /// What tells each from the other limits of its rule.
    labels: Arc<[Arc<str>]>,
    /// Of limits that came with requests, by domain.
    overrides: Arc<HashMap<String, Arc<LimitCounters>>>,
}

/// What a reload knows of the label sets that it has made.
struct Reload<'m> {
    series: &'m SeriesTable,
    overflowed: &'m Counter,
    /// How many limits have counters of their own.
    in_use: usize,
    /// The last number that told limits with the same text apart.
    numbers: HashMap<LimitLabels, usize>,
    /// Texts, each once.
    texts: HashSet<Arc<str>>,
}

// === impl Readings ===

impl Readings {
    /// Expects readings of this reader.
    pub(super) fn expect(&mut self, reader: Reader) {
        if let Some(readings) = self.0.get_mut(reader as usize) {
            readings.get_or_insert(0);
        }
    }

    /// Counts a reading.
    pub(super) fn count(&mut self, reader: Reader) {
        if let Some(readings) = self.0.get_mut(reader as usize) {
            *readings = Some(readings.unwrap_or_default().saturating_add(1));
        }
    }

    /// Whether every reader has read often enough since then.
    pub(super) fn is_over(self, since: Self) -> bool {
        let is_enough = |(now, then): (Option<u64>, Option<u64>)| {
            now.is_none_or(|now| now.saturating_sub(then.unwrap_or_default()) >= READINGS)
        };
        self.0 != [None; 2] && self.0.into_iter().zip(since.0).all(is_enough)
    }
}

// === impl RuleLabelSets ===

impl RuleLabelSets {
    pub(super) fn new(series: &SeriesTable) -> Self {
        Self {
            sets: HashMap::new(),
            overflow: Arc::new(LimitCounters::new(&overflow_names(), series, 0)),
            generation: 0,
            domains: None,
            last_number: 0,
            readings: Readings::default(),
        }
    }

    /// Counters for every rule of a rule set, which becomes the newest.
    pub(super) fn counters_of(
        &mut self,
        rules: &RuleSet,
        series: &SeriesTable,
        overflowed: &Counter,
        without_dots: bool,
    ) -> RuleCounters {
        self.generation = self.generation.saturating_add(1);
        let domains = rules.domains();
        self.domains = Some(domains.iter().map(|domain| label(domain)).collect());
        let mut reload = Reload {
            series,
            overflowed,
            in_use: 0,
            numbers: HashMap::new(),
            texts: HashSet::new(),
        };
        let mut counters: Vec<Arc<LimitCounters>> = Vec::with_capacity(rules.rules().len());
        let mut labels: Vec<Arc<str>> = Vec::with_capacity(rules.rules().len());
        let mut before: Option<(&Rule, LimitLabels)> = None;
        for rule in rules.rules() {
            let shared = before.filter(|(before, _)| is_one_limit(before, rule));
            let limit = match shared {
                Some((_, limit)) => limit,
                None => self.labels_of(rule, &mut reload),
            };
            let names = names(&rule.domain, &rule.labels(), without_dots);
            let is_limited = rule.lines.is_some() || rule.allowance != Allowance::Unlimited;
            let (known, label) = self.get_or_add(&limit, Some(&names), is_limited, &mut reload);
            counters.push(known);
            labels.push(label);
            before = Some((rule, limit));
        }
        let overrides = domains.into_iter().enumerate().map(|(position, domain)| {
            if position >= RULE_LABEL_SETS_MAX {
                overflowed.inc();
                return (domain, Arc::clone(&self.overflow));
            }
            let shown = label(&domain);
            let limit = [&shown, OVERRIDE, ""].map(|text| reload.text(text));
            let (counters, _) = self.get_or_add(&limit, None, false, &mut reload);
            (domain, counters)
        });
        RuleCounters {
            overrides: Arc::new(overrides.collect()),
            counters: counters.into(),
            labels: labels.into(),
        }
    }

    /// The counters with these labels, and what tells the limit from others of its rule. `names`
    /// are those of its series.
    fn get_or_add(
        &mut self,
        labels: &LimitLabels,
        names: Option<&[String]>,
        is_limited: bool,
        reload: &mut Reload<'_>,
    ) -> (Arc<LimitCounters>, Arc<str>) {
        let known = self.sets.get(labels);
        if known.is_none_or(|known| known.generation < self.generation) {
            if names.is_some() && reload.in_use >= RULE_LABEL_SETS_MAX {
                reload.overflowed.inc();
                return (Arc::clone(&self.overflow), reload.text(OVERFLOW));
            }
            reload.in_use = reload.in_use.saturating_add(usize::from(names.is_some()));
        }
        let has_names = |counters: &LimitCounters| names.is_none_or(|it| counters.has_names(it));
        if known.is_some_and(|known| !has_names(&known.counters)) {
            // Levels that were split elsewhere have the same text: another limit.
            self.sets.remove(labels);
        }
        let set = self.sets.entry(labels.clone()).or_insert_with(|| {
            self.last_number = self.last_number.saturating_add(1);
            let number = self.last_number;
            OfRule {
                counters: Arc::new(match names {
                    Some(names) => LimitCounters::new(names, reload.series, number),
                    None => LimitCounters::without_series(number),
                }),
                generation: 0,
                since: Readings::default(),
                is_limited,
            }
        });
        set.generation = self.generation;
        set.since = self.readings;
        set.is_limited = is_limited;
        let [.., limit] = labels;
        (Arc::clone(&set.counters), Arc::clone(limit))
    }

    /// The labels of a limit, which no other limit of the newest rules has.
    fn labels_of(&self, rule: &Rule, reload: &mut Reload<'_>) -> LimitLabels {
        let levels = rule.labels();
        let path = std::iter::once(&*rule.domain).chain(levels.iter().map(String::as_str));
        let path: Vec<_> = path.map(cut).collect();
        let text = limit_text(rule);
        let (domain, path) = (label(&rule.domain), path.join("."));
        let texts = [&domain, &path, cut(&text)];
        let first = texts.map(|text| reload.text(text));
        let number = reload.numbers.entry(first.clone()).or_default();
        let mut labels = first;
        loop {
            *number = number.saturating_add(1);
            if *number > 1 {
                let [.., limit] = &mut labels;
                *limit = format!("{}#{number}", cut(&text)).into();
            }
            let known = self.sets.get(&labels);
            if known.is_none_or(|known| known.generation < self.generation) {
                return labels;
            }
        }
    }

    /// Frees the oldest unused label sets beyond the bound. Returns how many.
    pub(super) fn bound(&mut self) -> usize {
        let newest = self.generation;
        if self.sets.len() <= RETIRED_LABEL_SETS_MAX {
            return 0;
        }
        let unused = self.sets.iter_mut().filter_map(|(labels, set)| {
            (!set.is_in_use(newest)).then(|| (set.generation, labels.clone()))
        });
        let mut retired: Vec<_> = unused.collect();
        let in_use = self.sets.len().saturating_sub(retired.len());
        let surplus = retired
            .len()
            .saturating_sub(in_use.max(RETIRED_LABEL_SETS_MAX));
        retired.sort_unstable();
        for (_, labels) in retired.iter().take(surplus) {
            self.sets.remove(labels);
        }
        self.shrink();
        surplus
    }

    /// Notes a complete reading, and frees the label sets whose retention is over. Returns how
    /// many.
    pub(super) fn read(&mut self, reader: Reader) -> usize {
        self.readings.count(reader);
        let (readings, newest) = (self.readings, self.generation);
        let before = self.sets.len();
        self.sets.retain(|_, set| {
            if set.is_in_use(newest) {
                set.since = readings;
            }
            !readings.is_over(set.since)
        });
        self.shrink();
        before.saturating_sub(self.sets.len())
    }

    /// The numbers of the label sets in use.
    pub(super) fn in_use(&mut self) -> HashSet<u64> {
        let newest = self.generation;
        let sets = self.sets.values_mut();
        sets.filter_map(|set| set.is_in_use(newest).then(|| set.counters.owner()))
            .collect()
    }

    /// Whether the newest rules have the domain of these counters.
    pub(super) fn has_domain_of(&self, counters: &LimitCounters) -> bool {
        let domains = self.domains.as_ref();
        domains.is_none_or(|domains| domains.contains(counters.domain()))
    }

    /// Shows every counter.
    pub(super) fn all(&self) -> impl Iterator<Item = &LimitCounters> {
        let sets = self.sets.values().map(|set| &*set.counters);
        sets.chain([&*self.overflow])
    }

    /// The hits of every limit.
    pub(super) fn by_limit(&self) -> impl Iterator<Item = HitsByLimit<'_>> {
        let sets = self.sets.iter().filter_map(|(labels, set)| {
            let hits = set.counters.hits();
            let is_shown = set.is_limited || hits != LimitHits::default();
            is_shown.then(|| (labels.each_ref().map(|label| &**label), hits))
        });
        sets.chain([([OVERFLOW; 3], self.overflow.hits())])
    }

    fn shrink(&mut self) {
        let len = self.sets.len();
        self.sets.shrink_to(len.saturating_mul(2));
    }
}

// === impl OfRule ===

impl OfRule {
    /// Whether the newest rules have it, or a holder of older rules still counts with it.
    fn is_in_use(&mut self, newest: u64) -> bool {
        // A holder has a reference. New references come from this map only, under its lock.
        self.generation == newest || Arc::get_mut(&mut self.counters).is_none()
    }
}

// === impl RuleCounters ===

impl RuleCounters {
    /// The counters of a rule.
    #[inline]
    pub fn of(&self, rule: &Rule) -> Option<&Arc<LimitCounters>> {
        self.counters.get(rule.index)
    }

    /// The counters of the limits that came with requests of a domain.
    pub fn of_overrides(&self, domain: &[u8]) -> Option<&Arc<LimitCounters>> {
        self.overrides.get(std::str::from_utf8(domain).ok()?)
    }

    /// The label `limit` of a rule: what tells it from the other limits of its descriptor.
    pub fn limit_label(&self, rule: &Rule) -> &str {
        self.labels.get(rule.index).map_or("", |label| label)
    }

    /// The hits of every rule since the start, in their order.
    pub fn hits(&self) -> impl Iterator<Item = LimitHits> {
        self.counters.iter().map(|counters| counters.hits())
    }
}

// === impl Reload ===

impl Reload<'_> {
    /// A text that is kept once.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}

/// Whether a rule is for further lines of the table of the rule before it: limits of values are one
/// limit.
fn is_one_limit(before: &Rule, rule: &Rule) -> bool {
    let levels = before.path.last().zip(rule.path.last());
    rule.lines.is_some() && levels.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
}

/// What tells a limit from others of its rule: its name, else its window.
fn limit_text(rule: &Rule) -> String {
    if !rule.name.is_empty() {
        return rule.name.clone();
    }
    match &rule.allowance {
        _ if rule.lines.is_some() => "by value".to_owned(),
        Allowance::Unlimited => "unlimited".to_owned(),
        Allowance::Limited { limit, .. } if limit.unit().is_none() => "in flight".to_owned(),
        Allowance::Limited { limit, .. } => {
            let window = limit.describe_window();
            window.strip_prefix("1 ").unwrap_or(&window).to_owned()
        }
    }
}
