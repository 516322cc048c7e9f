"use strict";
// What is known, and what is shown, pointed at and chosen. Everything else follows `state` and tells it what the reader does.

const payload = JSON.parse(document.getElementById("payload").textContent);
const cells = payload.cells; // columns: a value per cell
const COUNT = cells.cell.length;
const DIMENSIONS = { strategy: "Strategy", launcher: "Launcher", topology: "Topology", precision: "Precision" };

const state = {
  shown: [...cells.cell.keys()], // numbers of the cells that pass the filters, in the order of the plan
  pointed: null, // number of the cell under the pointer or the keyboard's focus
  chosen: null,
  followers: { shown: [], pointed: [], chosen: [] },

  follow(what, follower) {
    this.followers[what].push(follower);
  },
  set(what, value) {
    if (this[what] === value) return;
    this[what] = value;
    for (const follower of this.followers[what]) follower(value);
  },
};

function indexOf(name) {
  const index = cells.cell.indexOf(name);
  return index < 0 ? null : index;
}

function isMeasured(index) {
  return cells.status[index] === "ok";
}

// Three digits, or all before the point; null is no number.
function rounded(value) {
  if (value === null) return "";
  return Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

// Of a column with a low and a high beside it.
function range(column, index) {
  const [low, high] = [cells[`${column}_low`]?.[index] ?? null, cells[`${column}_high`]?.[index] ?? null];
  return low === null || low === high ? "" : `${rounded(low)} to ${rounded(high)}`;
}

// An element with its attributes (text, on..., class ...) and children.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function drawing(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function coloured(tag, className, colour, text) {
  const made = element(tag, { class: className, "aria-hidden": "true", text });
  made.style.color = colour;
  return made;
}

function signOf(strategy) {
  const { colour, mark } = payload.looks[strategy];
  return coloured("span", "sign", colour, payload.signs[mark]);
}
