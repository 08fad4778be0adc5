const REST = /^\{[^{}/]*\.\.\.\}$/;
const VARIABLE = /^\{[^{}/]*\}$/;

/** Templates of paths, such as `/users/{id}` and `/static/{rest...}`. */
export class PathTemplates {
  readonly #templates: readonly { readonly text: string; readonly pattern: RegExp }[];

  /** Throws a `TypeError` if a template has a `{rest...}` that is not at its end. */
  constructor(templates: readonly string[]) {
    this.#templates = templates.map((text) => ({ text, pattern: compile(text) }));
  }

  /** The first template that matches the path. */
  match(path: string): string | undefined {
    return this.#templates.find(({ pattern }) => pattern.test(path))?.text;
  }
}

function compile(template: string): RegExp {
  const segments = template.split("/");
  const pattern = segments.map((segment, index) => {
    if (REST.test(segment)) {
      if (index !== segments.length - 1) throw new TypeError(`${template}: move ${segment} to the end`);
      return ".*";
    }
    return VARIABLE.test(segment) ? "[^/]+" : segment.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  });
  return new RegExp(`^${pattern.join("/")}$`, "s");
}
