// The linked views. Bokeh draws them from four sources, which are filled here; selections of a source show in all of its views.

const VIEWS = { speedup: "speedup", efficiency: "scaling_efficiency", utilization: "utilization_percent" };
const DRAWN = [...Object.values(VIEWS), "predicted_epoch_time_s", "epoch_time_s"];
const NUMBERS = DRAWN.flatMap((name) => [name, `${name}_low`, `${name}_high`]);
const PARTS = Object.keys(payload.parts);
const MOST_BARS = 16; // that a reader can tell apart; the others come with a filter
const BAR_PX = 26;
const AXES_PX = 70;
const NOTE_LETTERS = 140;
const LABEL_LETTERS = 28;
const LABEL_END = 17; // of which the launcher and the topology are
const MS = 1000;
// Bokeh's hatches, as paths in a square of 12
const HATCHES = {
  x: "M0 0 12 12M12 0 0 12",
  ".": "M3 3h0M9 3h0M3 9h0M9 9h0",
  "/": "M0 6 6 0M0 12 12 0M6 12 12 6",
  "\\": "M6 0 12 6M0 0 12 12M0 6 6 12",
  o: "M9 6a3 3 0 1 1-6 0a3 3 0 1 1 6 0",
  "-": "M0 2h12M0 6h12M0 10h12",
};

let bokeh = null; // its document, once it is embedded

const model = (name) => bokeh.get_model_by_name(name);
const number = (value) => value ?? NaN;

async function startViews() {
  const { documents, items } = payload.document;
  await Bokeh.embed.embed_items(documents, items);
  bokeh = Bokeh.documents[0];
  model("cells").data = {
    ...Object.fromEntries([...NUMBERS, "place"].map((name) => [name, cells[name].map(number)])),
    ...Object.fromEntries(["cell", "repeats", "spread", "speedup_spread"].map((name) => [name, cells[name]])),
    verdict: cells.verdict.map((verdict) => verdict ?? ""),
    limited_by: cells.limited_by.map((part) => part ?? ""),
    note: cells.cell.map((_, index) => shortened(cells.warnings[index] ?? "")),
    colour: cells.strategy.map((strategy) => payload.looks[strategy].colour),
    mark: cells.strategy.map((strategy) => payload.looks[strategy].mark),
  };
  for (const { canvas_view } of plotViews()) canvas_view.events_el.tabIndex = -1; // keyboards have the table
  fillCausesLegend();
  followSource("cells", (row) => row);
  followSource("bars", (row) => indexOf(model("bars").data.cell[row]));
  state.follow("shown", drawShown);
  state.follow("pointed", drawPointed);
  state.follow("chosen", drawChosen);
  drawShown();
}

function shortened(text) {
  return text.length > NOTE_LETTERS ? `${text.slice(0, NOTE_LETTERS)} ...` : text;
}

// What the reader points at or chooses in the views of a source.
function followSource(name, cellOf) {
  const source = model(name);
  source.connect(source.inspect, () => {
    const [row] = source.inspected.indices;
    state.set("pointed", row === undefined ? null : cellOf(row));
  });
  source.selected.connect(source.selected.properties.indices.change, () => {
    const [row] = source.selected.indices;
    if (row !== undefined) state.set("chosen", cellOf(row));
    else if (name === "cells" || chosenBar() !== null) state.set("chosen", null);
  });
}

function drawShown() {
  const view = model("shown");
  view.filter = state.shown.length === COUNT ? new AllIndices() : new IndexFilter({ indices: state.shown });
  drawLines();
  drawBars();
  drawPointed();
  for (const [name, column] of Object.entries(VIEWS)) {
    showPlot(name, state.shown.some((index) => cells[column][index] !== null), whyNothing(name));
  }
  const predicted = state.shown.some((index) => cells.predicted_epoch_time_s[index] !== null);
  showPlot("prediction", predicted, "No cell that is shown is predicted: prediction in the experiment's configuration asks for it.");
}

function whyNothing(name) {
  if (!state.shown.some(isMeasured)) return "No cell that is shown was measured: the reasons are below.";
  return name === "utilization" ? "Utilisation was not sampled." : "No cell that is shown has a base: one device, all else equal.";
}

function showPlot(name, has, otherwise) {
  const plot = document.getElementById(`view-${name}`);
  plot.hidden = !has;
  plot.nextElementSibling.hidden = has;
  plot.nextElementSibling.textContent = has ? "" : otherwise;
}

// A line for each strategy, launcher and number of nodes, through its cells that are shown.
function drawLines() {
  const lines = new Map();
  for (const index of state.shown) {
    const key = [cells.strategy[index], cells.launcher[index], cells.nodes[index]].join();
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(index);
  }
  const all = [...lines.values()].map((line) => line.sort((one, other) => cells.devices[one] - cells.devices[other]));
  model("lines").data = {
    places: all.map((line) => line.map((index) => cells.place[index])),
    ...Object.fromEntries(DRAWN.map((name) => [name, all.map((line) => line.map((index) => number(cells[name][index])))])),
    colour: all.map(([first]) => payload.looks[cells.strategy[first]].colour),
    dash: all.map(([first]) => payload.dashes[cells.launcher[first]]),
  };
}

// The explained cells around the chosen one: each part begins where the one before it ends, on its side of zero.
function drawBars() {
  const explained = state.shown.filter((index) => cells.step_s[index] !== null);
  const around = explained.indexOf(state.chosen) - MOST_BARS / 2;
  const first = Math.max(0, Math.min(around, explained.length - MOST_BARS));
  const bars = explained.slice(first, first + MOST_BARS);
  showPlot("causes", bars.length > 0, "");
  document.getElementById("causes-legend").hidden = !bars.length;
  whyUnexplained(explained.length, bars.length);
  if (!bars.length) return;
  const data = { cell: bars.map((index) => cells.cell[index]), rounds: bars.map((index) => cells.cause_rounds[index]) };
  data.label = labelsOf(data.cell);
  for (const [name, column] of [["step", "step_s"], ["step_low", "step_s_low"], ["step_high", "step_s_high"]]) {
    data[name] = bars.map((index) => MS * cells[column][index]);
  }
  const ends = bars.map(() => ({ above: 0, below: 0 }));
  for (const part of PARTS) {
    data[part] = bars.map((index) => MS * (cells[part][index] ?? 0));
    const left = data[part].map((value, row) => (value < 0 ? ends[row].below : ends[row].above));
    data[`${part}_left`] = left;
    data[`${part}_right`] = data[part].map((value, row) => left[row] + value);
    data[part].forEach((value, row) => (ends[row][value < 0 ? "below" : "above"] += value));
  }
  model("causes_range").factors = [...data.label].reverse();
  model("causes").height = AXES_PX + BAR_PX * bars.length;
  model("bars").data = data;
  model("bars").selected.indices = chosenBar() === null ? [] : [chosenBar()];
}

// Names beside bars leave room for these, so that long ones have a middle left out; no two are the same.
function labelsOf(names) {
  const short = names.map((name) =>
    name.length > LABEL_LETTERS ? `${name.slice(0, LABEL_LETTERS - LABEL_END - 1)}…${name.slice(-LABEL_END)}` : name,
  );
  return short.map((label, row) => {
    const same = short.slice(0, row).filter((before) => before === label).length;
    return same ? `${label} (${same + 1})` : label;
  });
}

function chosenBar() {
  const row = state.chosen === null ? -1 : (model("bars").data.cell ?? []).indexOf(cells.cell[state.chosen]);
  return row < 0 ? null : row;
}

function whyUnexplained(count, drawn) {
  const place = document.querySelector("#view-causes + .nothing");
  const without = grouped(
    state.shown.filter((index) => isMeasured(index) && cells.unexplained_because[index]),
    (index) => cells.unexplained_because[index],
  );
  const lines = [...without].map(([reason, those]) => `Without causes: ${namesOf(those)} (${reason})`);
  if (count > drawn) lines.unshift(`${drawn} of ${count} explained cells: filter, or choose a cell, to see others.`);
  if (!count && !lines.length) lines.push("No cell that is shown was measured: the reasons are below.");
  place.hidden = !lines.length;
  place.replaceChildren(...lines.map((text) => element("span", { text, class: "line" })));
}

function fillCausesLegend() {
  const list = document.getElementById("causes-legend");
  for (const [part, name] of Object.entries(payload.parts)) {
    const { fill_color, hatch_pattern } = model(part).glyph;
    list.append(element("li", {}, swatch(fill_color.value, HATCHES[hatch_pattern?.value]), name));
  }
}

function swatch(colour, hatch = "") {
  const square = drawing("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" });
  square.append(drawing("rect", { width: 12, height: 12, fill: colour }), drawing("path", { class: "hatch", d: hatch }));
  return square;
}

function drawPointed() {
  const index = state.pointed;
  const here = index === null || !state.shown.includes(index) ? [] : [index];
  if (!here.length && !model("pointed").data.place.length) return;
  const columns = ["place", ...DRAWN];
  model("pointed").data = Object.fromEntries(columns.map((name) => [name, here.map((one) => number(cells[name][one]))]));
}

function drawChosen(index) {
  const selected = model("cells").selected;
  const indices = index === null ? [] : [index];
  if (String(selected.indices) !== String(indices)) selected.indices = indices;
  drawBars();
}

// Every colour that is not data's: from the style sheet.
function paintViews() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const inks = { points: "text", ring: "text", step: "text", step_interval: "text", linear: "soft" };
  for (const plot of bokeh.roots()) {
    for (const axis of [...plot.below, ...plot.left]) {
      axis.setv({
        axis_label_text_color: colour("soft"),
        axis_label_text_font_style: "normal",
        axis_label_text_font_size: "13px",
        major_label_text_color: colour("soft"),
        major_label_text_font_size: "12px",
        axis_line_color: colour("line"),
        major_tick_line_color: colour("line"),
        minor_tick_line_color: null,
      });
    }
    for (const grid of plot.center) grid.grid_line_color = colour("grid");
    for (const { name, glyph, selection_glyph, nonselection_glyph } of plot.renderers) {
      for (const drawn of [glyph, selection_glyph, nonselection_glyph].filter((one) => one instanceof Glyph)) {
        if (name in inks) drawn.line_color = { value: colour(inks[name]) };
        if (name === "step") drawn.fill_color = { value: colour("panel") };
      }
    }
  }
}

function drawNow() {
  for (const view of plotViews()) view.repaint();
}

// Bokeh's list holds its tooltips, too.
function plotViews() {
  return Bokeh.index.roots.filter((view) => view.canvas_view);
}
