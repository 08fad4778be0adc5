// The live page: shows what /events streams. No request goes to another host.

import { setToken, getJson, keepStreaming, Unauthorized } from "./stream.js";
import { bytes, compact, count, descriptor, duration, rate, reason, reservation, time } from "./format.js";
import { drawQuotas } from "./quotas.js";
import { element, fillVessel, find, setText, sparkline, sync, table, vessel } from "./draw.js";

const SAMPLES_MAX = 60;
const DECISIONS_MAX = 100;
const EVENTS = "events?decisions_per_second_max=5";

let state = null;
let before = null;
let history = new Map();
let minute = [];
let begun = false;
let decisions = [];
let shown = decisions;
let skipped = 0;
let found = null;
let hour = null;
let lostSince = null;

// Rules

/** What proxies report of a rule with rlqs: this service decides none of its requests. */
function reported(rule) {
  const { allowed, denied } = rule.rlqs;
  return { ...rule, rates: { ...rule.rates, total: allowed + denied, admitted: allowed, refused: denied } };
}

const ruleKey = (rule) => `${rule.domain}\n${rule.rule}\n${rule.label ?? ""}`;
const hot = (pick) => (cell, item) => {
  setText(cell, rate(pick(item)));
  cell.classList.toggle("hot", pick(item) > 0);
};

const percent = (part) => `${part.toFixed(1)} %`;
const compared = (counts) => `would refuse ${percent(counts.refused_percent)} instead of ${percent(counts.live_refused_percent)}`;
const candidateWords = (candidate) => (candidate ? `candidate ${candidate.limit?.text ?? "unlimited"}: ${compared(candidate.counts)}` : "");

function drawRule(cell, rule) {
  if (!cell.firstChild) {
    cell.append(element("span", { className: "code" }), element("span", { className: "badge" }), element("p", { className: "muted" }));
  }
  setText(cell.firstChild, rule.rule);
  const badge = rule.shadow_until ? `shadow until ${time(rule.shadow_until)}`
    : rule.shadow_mode ? "shadow" : rule.rlqs ? "rlqs" : rule.quota_mode ? "quota" : "";
  const notes = [candidateWords(rule.candidate), rule.overrides ? `overridden for ${count(rule.overrides)}` : ""].filter(Boolean);
  setText(cell.children[2], notes.join("; "));
  cell.children[2].hidden = notes.length === 0;
  setText(cell.children[1], badge);
  cell.children[1].hidden = badge === "";
}

const showRules = table("rules", [
  { title: "Domain", text: (r) => r.domain, value: (r) => r.domain, optional: true, style: "text" },
  { title: "Rule", text: (r) => r.rule, value: (r) => r.rule, head: true, draw: drawRule },
  { title: "Limit", text: (r) => (r.limits_from ? "by value" : r.unlimited ? "unlimited" : r.limit?.text ?? ""), optional: true, style: "tight" },
  { title: "Last minute", draw: (cell, r) => sparkline(cell, history.get(ruleKey(r)) ?? [], SAMPLES_MAX) },
  { title: "Refused/s", number: true, value: (r) => r.rates.refused, draw: hot((r) => r.rates.refused) },
  { title: "Asked/s", number: true, text: (r) => rate(r.rates.total), value: (r) => r.rates.total },
  { title: "Admitted/s", number: true, text: (r) => rate(r.rates.admitted), value: (r) => r.rates.admitted, optional: true },
  { title: "Near/s", number: true, text: (r) => rate(r.rates.near), value: (r) => r.rates.near, optional: true },
  { title: "Would refuse/s", number: true, text: (r) => rate(r.rates.would_refuse), value: (r) => r.rates.would_refuse, optional: true },
  { title: "Refused", number: true, text: (r) => compact(r.hits.refused), value: (r) => r.hits.refused, optional: true },
  { title: "Would refuse", number: true, text: (r) => compact(r.hits.would_refuse), value: (r) => r.hits.would_refuse, optional: true },
], ruleKey, "Refused/s", drawRules);

function drawRules() {
  if (!state) return;
  const matching = showRules(state.limits, find("rules-filter").value);
  const omitted = state.limits_omitted ? ` ${count(state.limits_omitted)} quieter rules are not sent; /limits has all.` : "";
  setText(find("rules-note"), `${count(matching)} of ${count(state.limits.length)} rules.${omitted}`);
}

// The last minute of all rules

const sampleOf = (rates) => ({ asked: rates.total, refused: rates.refused, would: rates.would_refuse });

/** The minute before the stream began, which takes the place of what a lost connection left. */
function takeHistory({ samples, limits }) {
  begun = true;
  minute = samples.map(sampleOf);
  history = new Map(limits.map((rule) => [ruleKey(rule),
    rule.total.map((asked, at) => ({ asked, refused: rule.refused[at], would: rule.would_refuse[at] }))]));
}

function drawMinute() {
  sparkline(find("minute"), minute, SAMPLES_MAX);
  const { asked, refused, would } = minute.at(-1) ?? sampleOf(state.rates);
  setText(find("minute-note"), `Hits a second of all rules: ${rate(asked)} asked, ${rate(refused)} refused, `
    + `${rate(would)} would be refused.`);
}

// The candidate: rules that are tried and not enforced

function drawCandidate() {
  const { candidate } = state;
  find("candidate-section").hidden = !candidate;
  if (!candidate) return;
  const { counts } = candidate;
  const asked = counts.admitted + counts.refused;
  const skipped = candidate.skipped ? `; ${count(candidate.skipped)} were not decided` : "";
  setText(find("candidate-note"), `The candidate ${compared(counts)}: of ${count(asked)} requests, `
    + `${count(counts.newly_refused)} newly refused and ${count(counts.newly_admitted)} newly admitted${skipped}.`);
  setText(find("candidate-error"), candidate.error ? `The newest candidate rules were refused: ${candidate.error}` : "");
  sync(find("candidate-rules"), candidate.new_rules, (rule) => ruleKey(rule), () => element("li", {}), (item, rule) => {
    setText(item, `New rule ${rule.rule} (${rule.limit?.text ?? "unlimited"}) ${compared(rule.counts)}`);
  });
}

// Top keys

const showKeys = table("keys", [
  { title: "Key", text: (k) => descriptor(k.descriptor), value: (k) => descriptor(k.descriptor), head: true, style: "code" },
  { title: "Domain", text: (k) => k.domain, value: (k) => k.domain, optional: true, style: "text" },
  { title: "Rule", text: (k) => k.rule, value: (k) => k.rule, optional: true, style: "text code" },
  { title: "Refused", number: true, text: (k) => compact(k.refused), value: (k) => k.refused },
  { title: "Would refuse", number: true, text: (k) => compact(k.would_refuse), value: (k) => k.would_refuse, optional: true },
  { title: "Asked", number: true, text: (k) => compact(k.asked), value: (k) => k.asked },
  { title: "Error up to", number: true, text: (k) => compact(k.error), value: (k) => k.error, optional: true },
  { title: "Refused since", number: true, text: (k) => time(k.refused_since), optional: true },
  { title: "Last refused", number: true, text: (k) => time(k.refused_last), value: (k) => k.refused_last ?? "" },
], (k) => `${k.domain}\n${k.rule}\n${JSON.stringify(k.descriptor)}`, "", drawKeys);

const VALUES = {
  off: "Keys are not counted. Set --top-keys hashed or plain to count them.",
  hashed: "Values are hashed. \"Is it this one?\" finds a value; --top-keys plain shows the text.",
  plain: "Values are shown as sent.",
};

function drawKeys() {
  if (!state) return;
  const by = find("keys-by").value;
  const top = found ?? (find("keys-window").value === "1h" ? hour : by === "refused" ? state.top_refused : state.top_asked);
  if (!top) return;
  const keys = by === "refused" && !found ? top.keys.filter((key) => key.refused > 0) : top.keys;
  showKeys(keys, find("keys-filter").value);
  const all = `${compact(top.refused)} refused, ${compact(top.would_refuse)} would be refused, of ${compact(top.asked)} asked in the last ${duration(top.covered_seconds)}`;
  setText(find("keys-note"), `${all}, on this replica. ${VALUES[top.values] ?? ""}`);
}

async function loadHour() {
  if (find("keys-window").value !== "1h" || !find("live").checkVisibility()) return;
  hour = await getJson("top", { by: find("keys-by").value, window: "1h", n: 20 }).catch(() => hour);
  drawKeys();
}

async function findKey(event) {
  event.preventDefault();
  const answer = find("find-answer");
  try {
    const parameters = { by: find("keys-by").value, window: find("keys-window").value, n: 20, descriptor: find("find-key").value };
    found = await getJson("top", parameters);
    answer.value = found.keys.length ? `Found ${count(found.keys.length)}` : "Not among the heaviest keys";
    answer.className = "";
    find("find-clear").hidden = false;
  } catch (error) {
    answer.value = error instanceof Unauthorized ? "The token is no longer valid" : error.message;
    answer.className = "bad";
  }
  drawKeys();
}

function clearFound() {
  found = null;
  find("find-answer").value = "";
  find("find-clear").hidden = true;
  find("find-key").value = "";
  find("find-key").focus();
  drawKeys();
}

// Decisions

const showDecisions = table("decisions", [
  { title: "Time", text: (d) => time(d.at), style: "tight" },
  { title: "Verdict", text: (d) => d.verdict, style: "tight verdict", draw: (cell, d, row) => {
    setText(cell, d.verdict);
    row.classList.toggle("over", d.verdict !== "OK");
  } },
  { title: "Descriptor", text: (d) => d.descriptor, head: true, style: "code" },
  { title: "Why", text: (d) => d.why, style: "text" },
  { title: "Domain", text: (d) => d.domain, optional: true, style: "text" },
  { title: "Rule", text: (d) => d.rule, optional: true, style: "text code" },
  { title: "Limit", text: (d) => d.limit, optional: true, style: "tight" },
  { title: "Left", number: true, text: (d) => count(d.left), optional: true },
  { title: "µs", number: true, text: (d) => count(d.took), optional: true },
], (d) => d, "", drawDecisions);

/** One row for each descriptor of a decision. */
function decisionRows(decision) {
  const row = (part) => ({
    at: decision.at, verdict: part.verdict ?? decision.verdict, domain: decision.domain, rule: part.rule ?? "",
    descriptor: part.entries ? descriptor(part.entries) : "", limit: part.limit?.text ?? "", left: part.remaining,
    why: `${decision.candidate ? `candidate (the answer was ${decision.live_verdict}): ` : ""}${
      decision.error && part.reason === "error" ? decision.error : reason(part.reason)}${part.overridden ? "; overridden" : ""}${part.hits === 0 && !part.reservation ? "; peek" : ""}${reservation(part.reservation)}`, took: decision.took_us,
  });
  return decision.descriptors.length ? decision.descriptors.map(row) : [row({ reason: decision.reason })];
}

function addDecision(decision) {
  decisions = [...decisionRows(decision), ...decisions].slice(0, DECISIONS_MAX);
}

function drawDecisions() {
  const paused = find("pause").getAttribute("aria-pressed") === "true";
  if (!paused) shown = decisions;
  const verdict = find("verdict").value;
  const rows = verdict ? shown.filter((row) => row.verdict === verdict) : shown;
  const matching = showDecisions(rows, find("decisions-filter").value);
  const notSent = skipped ? ` ${compact(skipped)} more were made and not sent: the stream is a sample.` : "";
  setText(find("decisions-note"), paused ? `Paused. ${count(matching)} rows.` : `${count(matching)} rows.${notSent}`);
}

// Service, store and partitions

function facts() {
  const { rules, partitions: { store } } = state;
  const all = [
    ["Uptime", duration(state.uptime_seconds)],
    ["Rules", rules.generation == null ? "none yet" : `generation ${rules.generation}, ${count(rules.rules)} rules`],
    ["Last reload", rules.loaded_at ? time(rules.loaded_at) : "never"],
    ["Warnings", count(rules.warnings)],
    ["Rules hash", rules.hash ?? "none"],
    ["Store", [store.kind, store.mode].filter(Boolean).join(", ")],
    ["Store state", `${store.healthy ? "healthy" : "not healthy"}: ${store.message}`, !store.healthy],
    store.memory_max_bytes != null && ["Memory bound", bytes(store.memory_max_bytes)],
    store.leases && ["Leases", `${count(store.leases.leases)}, with ${count(store.leases.hits_held)} hits`],
    store.denied_keys != null && ["Denial cache", `${count(store.denied_keys)} keys`],
    rules.error && ["Last reload failed", `${rules.error} The rules before it stay in use.`, true],
  ];
  return all.filter(Boolean);
}

function drawService() {
  setText(find("instance"), state.instance);
  setText(find("version"), state.version);
  const health = find("health");
  setText(health, state.draining ? "draining" : state.ready ? "ready" : "not ready");
  health.className = state.ready && !state.draining ? "badge good" : "badge bad";
  document.title = `tollgate live: ${state.instance}`;
  sync(find("service"), facts(), ([name]) => name,
    () => element("div", {}, element("dt"), element("dd")),
    (line, [name, text, bad]) => {
      setText(line.firstChild, name);
      setText(line.lastChild, text);
      line.lastChild.classList.toggle("bad", Boolean(bad));
      line.classList.toggle("wide", name === "Last reload failed");
    });
  const { nodes } = state.partitions.store;
  find("nodes-section").hidden = nodes.length === 0;
  rows("nodes", nodes, (n) => n.address, (n) => [n.address, n.healthy ? "answers" : "does not answer", count(n.queue_checks)]);
  find("shadowed-section").hidden = state.shadowed.length === 0;
  rows("shadowed", state.shadowed, ruleKey, (s) => [s.domain, s.rule, time(s.until)]);
}

/** Rows of a table without sorting. The first cell is the row's head. */
function rows(id, items, keyOf, texts) {
  sync(find(id), items, keyOf,
    (item) => element("tr", {}, ...texts(item).map((_, at) =>
      element(at ? "td" : "th", at ? { className: id === "nodes" && at === 2 ? "number" : "text" } : { scope: "row" }))),
    (row, item) => texts(item).forEach((text, at) => setText(row.cells[at], text)));
}

/** Counts of a partition, and their names. A store does not know which limits only count. */
const FLOWS = { admitted: "within", refused: "over", freed: "freed", forgotten: "forgotten" };

function createPartition(partition) {
  const flows = Object.entries(FLOWS).map(([name, shown]) => element("div", { className: name },
    element("dt", { textContent: shown }), element("dd", { className: "perSecond" }), element("dd", { className: "total" })));
  return element("li", {},
    element("h3", {}, `Partition ${partition.partition}`, element("span")),
    vessel(), element("dl", { className: "flows" }, ...flows), element("p", { className: "fill muted" }));
}

function drawPartition(item, partition) {
  const { store, partitions } = state.partitions;
  const old = before?.partitions.partitions.find((other) => other.partition === partition.partition);
  const seconds = before ? (new Date(state.at) - new Date(before.at)) / 1000 : 0;
  const flow = (name) => (old && seconds > 0 ? Math.max(0, partition[name] - old[name]) / seconds : 0);
  const rates = Object.fromEntries(Object.keys(FLOWS).map((name) => [name, flow(name)]));
  const bound = store.memory_max_bytes == null ? 0 : store.memory_max_bytes / partitions.length;
  const fill = bound ? partition.memory_bytes / bound : 0;
  fillVessel(item.querySelector(".vessel"), fill, rates);
  setText(item.querySelector("h3 span"), `${compact(partition.buckets)} ${store.mode === "leased" ? "leases" : "buckets"}`);
  for (const name of Object.keys(FLOWS)) {
    const [, perSecond, total] = item.querySelector(`.flows .${name}`).children;
    setText(perSecond, `${rate(rates[name])}/s`);
    perSecond.classList.toggle("active", rates[name] > 0);
    setText(total, compact(partition[name]));
  }
  const of = bound ? ` of ${bytes(bound)} (${(100 * fill).toFixed(fill < 0.1 ? 1 : 0)} %)` : "";
  setText(item.querySelector(".fill"), `${bytes(partition.memory_bytes)}${of}; queue ${count(partition.queue_checks)}`);
}

function drawPartitions() {
  const { store, partitions } = state.partitions;
  const note = partitions.length ? "Checks within and over their limits, a second and since the start, also in shadow mode. The level is the memory in use."
    : `${store.kind} decides every check; this process holds no partitions.`;
  setText(find("partitions-note"), note);
  sync(find("partitions"), partitions, (p) => p.partition, createPartition, drawPartition);
}

// The stream

function takeState(next) {
  // A restart begins at zero: the old counts say nothing about the new process.
  const restarted = state && next.uptime_seconds < state.uptime_seconds;
  before = restarted ? null : state;
  state = { ...next, limits: next.limits.map((rule) => (rule.rlqs ? reported(rule) : rule)) };
  // The newest sample of the history is that of the first state.
  const isNewest = begun && minute.length > 0;
  begun = false;
  if (!isNewest) minute = [...minute, sampleOf(next.rates)].slice(-SAMPLES_MAX);
  const kept = new Map();
  for (const rule of state.limits) {
    const samples = history.get(ruleKey(rule)) ?? [];
    if (!isNewest || samples.length === 0) samples.push(sampleOf(rule.rates));
    kept.set(ruleKey(rule), samples.slice(-SAMPLES_MAX));
  }
  history = kept;
}

function take(name, data) {
  const value = JSON.parse(data);
  if (name === "decision") addDecision(value);
  if (name === "skipped") skipped += value.skipped;
  if (name === "history") takeHistory(value);
  if (name === "state") {
    takeState(value);
    if (!document.hidden) draw();
  }
}

function draw() {
  if (!state) return;
  drawMinute();
  drawService();
  drawPartitions();
  drawCandidate();
  drawRules();
  drawQuotas(state.quotas);
  drawKeys();
  drawDecisions();
}

function connection(open, why) {
  const line = find("connection");
  lostSince = open ? null : lostSince ?? new Date();
  line.className = open ? "open" : "lost";
  setText(line, open ? "Live" : `Connection lost since ${time(lostSince)}, retrying`);
  line.title = why;
  find("live").classList.toggle("stale", !open);
  if (open) find("token-section").hidden = true;
}

function askForToken(wrong) {
  const line = find("connection");
  line.className = "";
  setText(line, "Waiting for the token");
  find("live").hidden = true;
  find("token-section").hidden = false;
  setText(find("token-error"), wrong ? "The service refused this token." : "");
  find("token").focus();
}

async function run(given) {
  const opened = (open, why) => {
    connection(open, why);
    if (!open) return;
    find("live").hidden = false;
    getJson("decisions", { n: DECISIONS_MAX }).then((last) => {
      if (decisions.length === 0) last.decisions.toReversed().forEach(addDecision);
    }).catch(() => {});
  };
  try {
    await keepStreaming(EVENTS, take, opened);
  } catch (error) {
    setToken("");
    askForToken(given);
  }
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(find("token").value.trim());
  find("token").value = "";
  run(true);
});
find("pause").addEventListener("click", ({ currentTarget: button }) => {
  const paused = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(paused));
  drawDecisions();
});
find("find").addEventListener("submit", findKey);
find("find-clear").addEventListener("click", clearFound);
find("rules-filter").addEventListener("input", drawRules);
find("keys-filter").addEventListener("input", drawKeys);
find("keys-by").addEventListener("change", () => { hour = null; drawKeys(); loadHour(); });
find("keys-window").addEventListener("change", () => { hour = null; drawKeys(); loadHour(); });
find("verdict").addEventListener("change", drawDecisions);
find("decisions-filter").addEventListener("input", drawDecisions);
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });
setInterval(loadHour, 5000);
run(false);
