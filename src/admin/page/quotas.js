// Quotas: limits that the rate limit quota service apportions over proxies.

import { count, descriptor, duration, rate } from "./format.js";
import { find, setText, svg, table } from "./draw.js";

const perSecond = (title, field, more = {}) =>
  ({ title, number: true, text: (b) => rate(b.figures[field]), value: (b) => b.figures[field], ...more });

const seconds = (n) => (n < 60 ? `${n.toFixed(0)} s` : duration(n));

/** Whether the shares are fair, and since when they are not. */
function shares({ shadow_mode: shadow, figures }) {
  if (shadow) return "shadow mode";
  if (figures.converging_seconds != null) return `moving for ${seconds(figures.converging_seconds)}`;
  return figures.converged_in_seconds == null ? "fair" : `fair, took ${seconds(figures.converged_in_seconds)}`;
}

/** The limit as a box; in it what is in force and what is assigned; the demand as a line across. */
function bar(cell, { figures: { limit, in_force: inForce, assigned, demand } }) {
  if (!cell.firstChild) {
    cell.append(svg("svg", { class: "quota", viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "force", y: 3, height: 10 }), svg("rect", { class: "assigned", y: 3, height: 10 }),
      svg("rect", { class: "limit", x: 0.5, y: 2, height: 12 }), svg("path", { class: "demand" })));
  }
  const [force, given, box, line] = cell.firstChild.children;
  const most = Math.max(limit, demand, inForce) || 1;
  const x = (n) => Math.min(99, (99 * n) / most);
  force.setAttribute("width", x(inForce));
  given.setAttribute("width", x(assigned));
  box.setAttribute("width", x(limit));
  line.setAttribute("d", `M${x(demand).toFixed(1)},0V16`);
  line.classList.toggle("over", demand > limit);
}

const showBuckets = table("quotas", [
  { title: "Bucket", text: (b) => descriptor(b.id), value: (b) => descriptor(b.id), head: true, style: "code" },
  { title: "Rule", text: (b) => b.rule, value: (b) => b.rule, optional: true, style: "text code" },
  { title: "Of the limit", draw: bar },
  perSecond("Limit/s", "limit", { optional: true }),
  perSecond("Demand/s", "demand"),
  perSecond("Allowed/s", "allowed", { optional: true }),
  perSecond("Denied/s", "denied", { optional: true }),
  perSecond("Assigned/s", "assigned"),
  perSecond("In force/s", "in_force", { optional: true }),
  { title: "Streams", number: true, text: (b) => count(b.figures.streams), value: (b) => b.figures.streams, optional: true },
  { title: "Shares", text: shares, optional: true, style: "tight" },
], (b) => JSON.stringify([b.domain, b.rule, b.id]), "Demand/s", () => drawQuotas(last));

let last = null;

/** Shows the quotas of a state; none where no rule is one. */
export function drawQuotas(quotas) {
  last = quotas;
  find("quotas-section").hidden = !quotas;
  if (!quotas) return;
  showBuckets(quotas.buckets, find("quotas-filter").value);
  const learning = quotas.learning_seconds > 0
    ? `After the start nothing is assigned for ${seconds(quotas.learning_seconds)} more. ` : "";
  const omitted = quotas.omitted ? ` ${count(quotas.omitted)} with less demand are not sent; /quotas has them.` : "";
  setText(find("quotas-note"), `${learning}${count(quotas.buckets.length)} buckets of this replica.${omitted}`);
}

find("quotas-filter").addEventListener("input", () => drawQuotas(last));
