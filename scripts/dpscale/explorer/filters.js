// Which cells are shown: of each dimension those with a checked value, or all while none is checked.

const checked = Object.fromEntries(Object.keys(DIMENSIONS).map((name) => [name, new Set()]));

function startFilters() {
  const groups = document.getElementById("filter-groups");
  for (const [dimension, title] of Object.entries(DIMENSIONS)) {
    const chips = [...new Set(cells[dimension])].map((value) => chip(dimension, value));
    groups.append(element("fieldset", {}, element("legend", { text: title }), element("div", { class: "chips" }, ...chips)));
  }
  document.getElementById("clear").addEventListener("click", clear);
  state.follow("shown", count);
  count();
}

function chip(dimension, value) {
  const box = element("input", { type: "checkbox", value, name: dimension });
  box.addEventListener("change", () => {
    if (box.checked) checked[dimension].add(value);
    else checked[dimension].delete(value);
    filter();
  });
  return element("label", { class: "chip" }, box, element("span", { class: "face" }, ...lookOf(dimension, value), value));
}

// Strategies have colours and marks, launchers have dashes: chips are the views' legend.
function lookOf(dimension, value) {
  if (dimension === "strategy") return [signOf(value)];
  if (dimension !== "launcher") return [];
  const line = drawing("line", { x1: 0, y1: 1, x2: 32, y2: 1 });
  if (payload.dashes[value] !== "solid") line.setAttribute("stroke-dasharray", payload.dashes[value]);
  const svg = drawing("svg", { class: "dash", "aria-hidden": "true" });
  svg.append(line);
  return [svg];
}

function clear() {
  for (const values of Object.values(checked)) values.clear();
  for (const box of document.querySelectorAll("#filters input:checked")) box.checked = false;
  filter();
}

function filter() {
  const narrowed = Object.keys(DIMENSIONS).filter((name) => checked[name].size);
  const passes = (index) => narrowed.every((name) => checked[name].has(cells[name][index]));
  state.set("shown", [...cells.cell.keys()].filter(passes));
  if (state.chosen !== null && !state.shown.includes(state.chosen)) state.set("chosen", null);
}

function count() {
  const measured = state.shown.filter(isMeasured).length;
  const absent = state.shown.length - measured;
  const text = `${state.shown.length} of ${COUNT} cells shown${absent ? `, ${absent} of them not measured` : ""}`;
  document.getElementById("count").textContent = text;
  document.getElementById("clear").hidden = state.shown.length === COUNT;
}
