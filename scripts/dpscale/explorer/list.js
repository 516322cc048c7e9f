// The cells as a table, a page at a time: what the views show, for keyboards and for those who do not see them.

const PAGE = 25;
const MOST_NAMES = 12; // of cells that share a reason
const COLUMNS = {
  cell: "Cell",
  precision: "Precision",
  devices: "N",
  speedup: "Speed-up",
  scaling_efficiency: "Efficiency",
  epoch_time_s: "Epoch time, s",
  utilization_percent: "Utilisation, %",
  repeats: "n",
};
const order = { column: null, descending: false };
let page = 0;

function startList() {
  const heads = document.getElementById("heads");
  for (const [name, title] of Object.entries(COLUMNS)) {
    const head = element("th", { scope: "col", class: `column-${name}` });
    head.append(element("button", { type: "button", text: title, onclick: () => sortBy(name, head) }));
    heads.append(head);
  }
  heads.append(element("th", { scope: "col", class: "text", text: "To know" }));
  document.getElementById("earlier").addEventListener("click", () => turn(-1));
  document.getElementById("later").addEventListener("click", () => turn(1));
  document.getElementById("rows").addEventListener("keydown", walk);
  state.follow("shown", () => {
    page = 0;
    drawList();
  });
  state.follow("chosen", (index) => {
    if (index !== null) page = pageOf(index);
    drawList();
  });
  state.follow("pointed", markRows);
  drawList();
}

function sortBy(name, head) {
  order.descending = order.column === name ? !order.descending : false;
  order.column = name;
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
  page = 0;
  drawList();
}

// Cells without a value come last, whichever way it goes.
function sorted() {
  if (order.column === null) return state.shown;
  const values = cells[order.column];
  const sign = order.descending ? -1 : 1;
  return [...state.shown].sort((one, other) => {
    if (values[one] === null || values[other] === null) return (values[one] === null) - (values[other] === null);
    return sign * (values[one] < values[other] ? -1 : values[one] > values[other] ? 1 : one - other);
  });
}

function turn(by) {
  page += by;
  drawList();
}

function drawList() {
  const all = sorted();
  const pages = Math.max(1, Math.ceil(all.length / PAGE));
  const here = all.slice(page * PAGE, (page + 1) * PAGE);
  const focused = document.activeElement?.closest("#rows tr")?.dataset.index;
  document.getElementById("rows").replaceChildren(...here.map(rowOf));
  document.querySelector(`#rows tr[data-index="${focused}"] button`)?.focus();
  document.getElementById("pager").hidden = pages === 1;
  document.getElementById("page").textContent = `Page ${page + 1} of ${pages}`;
  document.getElementById("earlier").disabled = page === 0;
  document.getElementById("later").disabled = page === pages - 1;
  markRows();
  drawAbsent();
}

function rowOf(index) {
  const name = element("button", { type: "button", onclick: () => choose(index) }, signOf(cells.strategy[index]), cells.cell[index]);
  name.setAttribute("aria-pressed", String(state.chosen === index));
  const values = Object.keys(COLUMNS).slice(1).map((column) => valueOf(column, index));
  const row = element("tr", { "data-index": index }, element("th", { scope: "row" }, name), ...values, toKnow(index));
  row.addEventListener("mouseenter", () => state.set("pointed", index));
  row.addEventListener("mouseleave", () => state.set("pointed", null));
  name.addEventListener("focus", () => state.set("pointed", index));
  name.addEventListener("blur", () => state.set("pointed", null));
  return row;
}

function valueOf(column, index) {
  const value = cells[column][index];
  const cell = element("td", { class: `column-${column}`, text: typeof value === "number" ? rounded(value) : (value ?? "") });
  if (value === null) cell.textContent = column === "precision" ? "" : "n/a";
  else if (`${column}_low` in cells) cell.append(element("span", { class: "range", text: range(column, index) }));
  return cell;
}

function toKnow(index) {
  const [status, reason] = [cells.status[index], cells.reason[index]];
  const text = status === "ok" ? cells.warnings[index] ?? "" : `${status}: ${reason}`;
  return element("td", { class: "text", text: shortened(text) });
}

function choose(index) {
  state.set("chosen", state.chosen === index ? null : index);
  if (state.chosen !== null) readDetails();
}

function focusRow(index) {
  page = pageOf(index);
  drawList();
  document.querySelector(`#rows tr[data-index="${index}"] button`)?.focus();
}

function pageOf(index) {
  return Math.floor(Math.max(0, sorted().indexOf(index)) / PAGE);
}

function walk(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  const buttons = [...document.querySelectorAll("#rows button")];
  const next = buttons[buttons.indexOf(document.activeElement) + by];
  if (next) {
    next.focus();
    event.preventDefault();
  }
}

function markRows() {
  for (const row of document.getElementById("rows").children) {
    const index = Number(row.dataset.index);
    row.classList.toggle("pointed", index === state.pointed);
    row.classList.toggle("chosen", index === state.chosen);
  }
}

function drawAbsent() {
  const absent = grouped(
    state.shown.filter((index) => !isMeasured(index)),
    (index) => `${cells.status[index]}: ${cells.reason[index]}`,
  );
  const entries = [...absent].flatMap(([reason, those]) => [
    element("dt", { text: reason }),
    element("dd", { text: namesOf(those) }),
  ]);
  document.getElementById("absent").hidden = !absent.size;
  document.getElementById("absent-reasons").replaceChildren(...entries);
}

function grouped(indices, keyOf) {
  const groups = new Map();
  for (const index of indices) {
    const key = keyOf(index);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(index);
  }
  return groups;
}

function namesOf(indices) {
  const names = indices.slice(0, MOST_NAMES).map((index) => cells.cell[index]).join(", ");
  return indices.length > MOST_NAMES ? `${names} and ${indices.length - MOST_NAMES} more` : names;
}
