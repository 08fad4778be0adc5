// Elements of the page. Text comes from clients, so it is only ever set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Sets text only if it differs, so that a selection and a screen reader's position stay. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Makes the children of `parent` those of `items`, reusing the element of the same key. */
export function sync(parent, items, keyOf, create, update) {
  const old = new Map(Array.from(parent.children, (child) => [child.itemKey, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    if (child) {
      old.delete(key);
    } else {
      child = create(item);
      child.itemKey = key;
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of old.values()) child.remove();
}

/**
 * A table with columns `{title, text(item), value?(item), number?, optional?, head?, draw?(cell, item)}`.
 * A column with `value` can be sorted by. Returns `show(items, filter)`, which returns how many rows match.
 */
export function table(id, columns, keyOf, initial, redraw) {
  const body = find(id).tBodies[0];
  const classes = (column) => [column.number && "number", column.optional && "optional"].filter(Boolean).join(" ");
  let sorted = columns.findIndex((column) => column.title === initial), descending = true;
  const heads = columns.map((column, at) => {
    const head = element("th", { scope: "col", className: classes(column) });
    if (column.value) {
      const button = element("button", { type: "button", textContent: column.title });
      button.addEventListener("click", () => {
        descending = sorted === at ? !descending : Boolean(column.number);
        sorted = at;
        mark();
        redraw();
      });
      head.append(button);
    } else {
      head.append(column.title);
    }
    return head;
  });
  const mark = () => heads.forEach((head, at) => {
    if (at === sorted) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  find(id).tHead.rows[0].append(...heads);
  mark();
  const create = () => element("tr", {}, ...columns.map((column) =>
    element(column.head ? "th" : "td", { className: `${classes(column)} ${column.style ?? ""}`.trim(), ...(column.head && { scope: "row" }) })));
  const update = (row, item) => columns.forEach((column, at) => {
    if (column.draw) column.draw(row.cells[at], item, row);
    else setText(row.cells[at], column.text(item));
  });
  return (items, filter = "") => {
    const wanted = filter.trim().toLowerCase();
    const matches = wanted
      ? items.filter((item) => columns.some((column) => column.text?.(item).toLowerCase().includes(wanted)))
      : [...items];
    const by = columns[sorted]?.value;
    if (by) {
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (descending ? -1 : 1);
      matches.sort((a, b) => order(by(a), by(b)));
    }
    sync(body, matches, keyOf, create, update);
    return matches.length;
  };
}

/** A graph of samples `{asked, refused, would}`, newest last, in a cell. */
export function sparkline(cell, samples, length) {
  if (!cell.firstChild) {
    cell.append(svg("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "asked" }), svg("polyline", { class: "refused" }), svg("polyline", { class: "would" })));
  }
  const [area, ...lines] = cell.firstChild.children;
  const most = Math.max(1, ...samples.map((sample) => sample.asked));
  const x = (at) => (100 * (at + length - samples.length)) / (length - 1);
  const points = (field) => samples.map((sample, at) => `${x(at).toFixed(1)},${(19 - (18 * sample[field]) / most).toFixed(1)}`);
  area.setAttribute("d", `M${x(0).toFixed(1)},20 L${points("asked").join(" ")} L100,20 Z`);
  for (const line of lines) {
    const field = line.getAttribute("class");
    const any = samples.some((sample) => sample[field] > 0);
    line.setAttribute("points", any ? points(field).join(" ") : "");
  }
}

/** A partition as a container: its fill, and pipes for what was admitted, refused, freed and forgotten. */
export function vessel() {
  return svg("svg", { class: "vessel", viewBox: "0 0 100 80", "aria-hidden": "true" },
    svg("path", { class: "pipe admitted", d: "M50 64V80" }),
    svg("path", { class: "pipe refused", d: "M74 16H100" }),
    svg("path", { class: "pipe freed", d: "M26 56H0" }),
    svg("path", { class: "pipe forgotten", d: "M26 24H0" }),
    svg("rect", { class: "level", x: 27, width: 46, y: 63, height: 0 }),
    svg("path", { class: "wall", d: "M26 6V60Q26 64 30 64H70Q74 64 74 60V6" }));
}

/** Sets the fill, from 0 to 1, and the rates of the pipes. */
export function fillVessel(drawing, fill, rates) {
  const height = fill > 0 ? Math.max(1.5, 56 * Math.min(1, fill)) : 0;
  const level = drawing.querySelector(".level");
  level.setAttribute("y", 63 - height);
  level.setAttribute("height", height);
  for (const [name, perSecond] of Object.entries(rates)) {
    const pipe = drawing.querySelector(`.pipe.${name}`);
    pipe.classList.toggle("on", perSecond > 0);
    pipe.style.strokeWidth = perSecond > 0 ? Math.min(12, 2 + 2 * Math.log10(1 + perSecond)) : 2;
  }
}
