"use strict";
// What a page can do beyond being read: sort tables, give them as CSV, point at values, move a threshold.
// Without it nothing is missing but that. It asks nobody for anything.

const make = (tag, attributes = {}, text = "") => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
};

// --- tables
const valueOf = (cell) => {
  const text = cell.dataset.v ?? cell.textContent.trim();
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
};

const ordered = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b);
};

const sortBy = (table, column) => {
  const heads = [...table.tHead.rows[0].cells];
  const down = heads[column].getAttribute("aria-sort") === "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[column]), row]);
  rows.sort(([a], [b]) => (down ? ordered(b, a) : ordered(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
};

const quoted = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);

const asCsv = (table) => {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map(valueOf));
  return [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
};

const save = (table, name) => {
  const link = make("a", { download: `${name}.csv`, href: URL.createObjectURL(new Blob([asCsv(table)], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

for (const table of document.querySelectorAll("table.sort")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button" }, head.textContent);
    button.addEventListener("click", () => sortBy(table, column));
    head.replaceChildren(button);
  });
  const region = table.closest("[aria-labelledby]");
  const heading = document.getElementById(region.getAttribute("aria-labelledby")).textContent;
  const tools = make("div", { class: "tools" });
  if (table.dataset.more) {
    table.classList.add("short");
    const all = make("button", { type: "button", "aria-expanded": "false" }, `Show all ${table.dataset.more}`);
    all.addEventListener("click", () => {
      const short = table.classList.toggle("short");
      all.setAttribute("aria-expanded", String(!short));
      all.textContent = short ? `Show all ${table.dataset.more}` : "Show fewer";
    });
    tools.append(all);
  }
  const csv = make("button", { type: "button", "aria-label": `${heading} as CSV` }, "CSV");
  csv.addEventListener("click", () => save(table, heading.toLowerCase().replace(/[^a-z0-9]+/g, "-")));
  tools.append(csv);
  region.after(tools);
}

// --- figures: the value nearest to the pointer; with the keyboard, arrows go along a line and from line to line
const short = (value) => String(Number(value.toPrecision(4)));

for (const figure of document.querySelectorAll("figure.plot")) {
  const source = figure.querySelector("script[type='application/json']");
  if (!source) continue;
  const { x, y, lines } = JSON.parse(source.textContent);
  const svg = figure.querySelector("svg");
  const tip = make("div", { class: "tip", role: "status" });
  const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  dot.setAttribute("class", "dot");
  let line = 0;
  let index = -1;
  figure.append(tip);

  const hide = () => {
    tip.textContent = "";
    dot.remove();
  };
  const show = () => {
    const [px, py, vx, vy] = lines[line].at[index];
    tip.textContent = `${lines[line].name ? lines[line].name + ": " : ""}${x} ${short(vx)}, ${y} ${short(vy)}`;
    dot.setAttribute("cx", px);
    dot.setAttribute("cy", py);
    dot.setAttribute("r", 4);
    svg.append(dot);
    const box = svg.viewBox.baseVal;
    const scale = svg.clientWidth / box.width || 1;
    const left = svg.getBoundingClientRect().left - figure.getBoundingClientRect().left + figure.scrollLeft + px * scale;
    tip.style.left = `${Math.max(0, Math.min(left + 10, figure.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(0, py * scale - tip.offsetHeight - 10)}px`;
  };
  figure.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = 900;
    lines.forEach(({ at: points }, k) =>
      points.forEach(([px, py], i) => {
        const distance = (px - at.x) ** 2 + (py - at.y) ** 2;
        if (distance < best) [best, line, index] = [distance, k, i];
      }),
    );
    if (best < 900) show();
    else hide();
  });
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    line = (line + step[0] + lines.length) % lines.length;
    index = Math.max(0, Math.min(index + step[1], lines[line].at.length - 1));
    show();
  });
}

// --- the threshold of two classes
for (const box of document.querySelectorAll(".threshold")) {
  const { threshold, tpr, fpr, positives, negatives } = JSON.parse(box.querySelector("script").textContent);
  const slider = box.querySelector("input");
  const put = (name, text) => (box.querySelector(`.${name}`).textContent = text);
  const share = (a, b) => (b > 0 ? `${((100 * a) / b).toFixed(2)} %` : "–");
  const update = () => {
    const k = threshold.length - 1 - Number(slider.value); // to the right: a higher threshold, fewer rows
    const tp = Math.round(tpr[k] * positives);
    const fp = Math.round(fpr[k] * negatives);
    const counts = { tp, fp, fn: positives - tp, tn: negatives - fp };
    for (const [name, n] of Object.entries(counts)) put(name, n.toLocaleString("en"));
    const at = threshold[k] === null ? "more than any row has" : short(threshold[k]);
    put("at", at);
    put("accuracy", share(tp + counts.tn, positives + negatives));
    put("precision", share(tp, tp + fp));
    put("recall", share(tp, positives));
    put("f1", share(2 * tp, 2 * tp + fp + counts.fn));
    slider.setAttribute("aria-valuetext", `decision value ${at}`);
  };
  slider.max = threshold.length - 1;
  slider.value = threshold.length - 1 - Math.max(0, threshold.findLastIndex((value) => value !== null && value >= 0));
  slider.addEventListener("input", update);
  update();
  box.hidden = false;
}
