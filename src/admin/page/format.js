// Text of numbers, times and decisions.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => (n == null ? "" : whole.format(n));
export const compact = (n) => (n < 100000 ? whole.format(n) : short.format(n));
export const rate = (n) => (n === 0 ? "0" : n < 10 ? n.toFixed(1) : compact(n));

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${at && n < 100 ? n.toFixed(1) : whole.format(n)} ${units[at]}`;
}

export function duration(seconds) {
  const parts = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [Math.floor(seconds / 60) % 60, "min"]];
  const shown = parts.filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`);
  return shown.slice(0, 2).join(" ") || `${Math.floor(seconds)} s`;
}

/** The time of day in UTC, as in the commands, with the date if it is another day. */
export function time(at) {
  if (!at) return "";
  const [today, [day, clock]] = [new Date(), new Date(at)].map((date) => date.toISOString().slice(0, 19).split("T"));
  return `${day === today[0] ? "" : `${day} `}${clock} UTC`;
}

export const descriptor = (entries) =>
  entries.length ? entries.map(({ key, value }) => (value === "" ? key : `${key}=${value}`)).join(", ") : "(not kept)";

const REASONS = {
  within_limit: "within the limit",
  over_limit: "over the limit",
  penalty: "blocked by the limit's penalty",
  unknown_domain: "the domain has no rules",
  no_rule: "no rule matches",
  no_limit: "the matched level has no limit",
  replaced: "replaced by another rule of the request",
  unlimited: "the rule is unlimited",
  shadow_mode: "over the limit; the rule is in shadow mode",
  global_shadow_mode: "over the limit; the service is in shadow mode",
  quota: "over the limit; another quota has hits left",
  over_limit_cache: "over the limit, from the denial cache",
  store_failure_allowed: "the store failed; the policy allows",
  store_failure_denied: "the store failed; the policy denies",
  store_failure_local: "the store failed; decided by this replica's share",
  overload_allowed: "overload; the policy allows",
  overload_denied: "overload; the policy denies",
  excess_allowed: "the request exceeds a bound; the policy allows",
  excess_denied: "the request exceeds a bound; the policy denies",
  error: "error",
};
export const reason = (name) => REASONS[name] ?? name.replaceAll("_", " ");

/** What a request did with a reservation, after its reason. */
export function reservation(record) {
  if (!record) return "";
  const hits = ["reserved", "committed", "returned"].filter((name) => record[name] != null);
  const parts = hits.map((name) => `${name} ${count(record[name])}`);
  if (record.result && !hits.includes(record.result)) parts.unshift(record.result.replaceAll("_", " "));
  return `; ${record.operation}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}
