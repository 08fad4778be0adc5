// Validates custom resources of other projects against the schemas of their definitions, field names included.
//
// Why: Kubernetes' own schemas do not contain them, and an API server silently prunes an unknown field.
//
// How: these schemas are compiled to functions that ignore unknown fields. So the object is passed in a Proxy that
// records which fields are read: a validator reads every field of its schema, and a field that is not read is unknown.
//
// What it deliberately does not do: validate kinds that the chart does not render.
//
//     crds.mjs NODE_MODULES < objects.json > complaints.json
//
// Objects are a list; complaints are a list of lists of errors, in the same order.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

// Paths of the compiled functions. A Model of those packages reads every field before it calls one.
const PROMETHEUS = "prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1";
const FUNCTIONS = {
  "monitoring.coreos.com/v1 ServiceMonitor": `${PROMETHEUS}ServiceMonitor.js`,
  "monitoring.coreos.com/v1 PodMonitor": `${PROMETHEUS}PodMonitor.js`,
  "monitoring.coreos.com/v1 PrometheusRule": `${PROMETHEUS}PrometheusRule.js`,
  "cert-manager.io/v1 Certificate": "cert-manager/_schemas/CertManagerIoV1Certificate.mjs",
  "keda.sh/v1alpha1 ScaledObject": "keda/_schemas/ComGithubKedacoreKedaV2ApisKedaV1alpha1ScaledObject.js",
};

const modules = resolve(process.argv[2]);

/** The value, in a Proxy that takes the path of every field that is read out of `unread`. */
function watched(value, path, unread) {
  if (typeof value !== "object" || value === null) return value;
  for (const name of Object.keys(value)) unread.add(`${path}/${name}`);
  const inner = new Map();
  return new Proxy(value, {
    get(target, name) {
      if (typeof name !== "string" || !Object.hasOwn(target, name)) return target[name];
      unread.delete(`${path}/${name}`);
      if (!inner.has(name)) inner.set(name, watched(target[name], `${path}/${name}`, unread));
      return inner.get(name);
    },
  });
}

async function complaints(object) {
  const name = `${object.apiVersion} ${object.kind}`;
  if (!FUNCTIONS[name]) return [`${name}: no schema is known`];
  const { validate } = await import(pathToFileURL(join(modules, "@kubernetes-models", FUNCTIONS[name])));
  const unread = new Set();
  const said = validate(watched(object, "", unread))
    ? []
    : validate.errors.map(({ instancePath, keyword, params }) => `${instancePath} breaks ${keyword} ${JSON.stringify(params)}`);
  return [...said, ...[...unread].map((path) => `${path} is no field`)].map((complaint) => `${object.kind}: ${complaint}`);
}

const objects = JSON.parse(readFileSync(0, "utf8"));
const all = [];
for (const object of objects) all.push(await complaints(object));
process.stdout.write(JSON.stringify(all));
