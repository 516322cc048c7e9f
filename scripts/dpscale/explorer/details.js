// The chosen cell: its figures, and of each of its trials the record, the log, and the command that measures it again.

const RECORD = "record.json";
const LOG = "trial.log";

function startDetails() {
  document.getElementById("close").addEventListener("click", letGo);
  document.addEventListener("keydown", (event) => event.key === "Escape" && letGo());
  state.follow("chosen", drawDetails);
  const nowhere = document.getElementById("details-body").firstElementChild;

  function drawDetails(index) {
    isFromRow = false;
    document.getElementById("details").classList.toggle("chosen", index !== null);
    document.getElementById("close").hidden = index === null;
    document.getElementById("title-details").textContent = index === null ? "Choose a cell" : cells.cell[index];
    document.getElementById("details-body").replaceChildren(...(index === null ? [nowhere] : describe(index)));
    history.replaceState(null, "", index === null ? "#" : `#${encodeURI(cells.cell[index])}`);
  }
}

let isFromRow = false; // the chosen cell: chosen in the table, which is far from the panel

function readDetails() {
  isFromRow = true;
  document.getElementById("details").scrollIntoView({ block: "nearest" });
  document.getElementById("title-details").focus({ preventScroll: true });
}

function letGo() {
  const row = isFromRow ? state.chosen : null;
  isFromRow = false;
  state.set("chosen", null);
  if (row !== null) focusRow(row);
}

function describe(index) {
  const warnings = cells.warnings[index] ? [element("p", { class: "warning", text: `To know: ${cells.warnings[index]}` })] : [];
  const absent = isMeasured(index) ? [] : [element("p", { class: "warning", text: `${cells.status[index]}: ${cells.reason[index]}` })];
  const facts = factsOf(index).flatMap(([name, text]) => [element("dt", { text: name }), element("dd", { text })]);
  return [...absent, element("dl", { class: "facts" }, ...facts), ...warnings, trialsOf(index)];
}

function factsOf(index) {
  const value = (column, unit = "", spread = "spread") => {
    if (cells[column][index] === null) return null;
    const within = [range(column, index), cells[spread][index]].filter(Boolean).join("; ");
    return `${rounded(cells[column][index])}${unit} (${within})`;
  };
  const text = (column) => cells[column][index];
  const predicted = value("predicted_epoch_time_s", " s", "verdict")?.replace(";", " for 4 of 5 launches;");
  const memory = text("peak_memory_MiB");
  const facts = [
    ["devices N", `${cells.devices[index]} (${cells.topology[index]})`],
    ["precision", text("effective_precision") ?? text("precision")],
    ["launches", text("repeats_planned") === null ? null : `${cells.repeats[index]} of ${text("repeats_planned")} measured`],
    ["speed-up", value("speedup", "", "speedup_spread")],
    ["efficiency", value("scaling_efficiency", "", "speedup_spread")],
    ["base", text("base_cell") ?? (isMeasured(index) ? "none: no cell on one device with all else equal, so no speed-up" : null)],
    ["epoch time", value("epoch_time_s", " s")],
    ["predicted", predicted],
    ["predicted from", predicted && `up to ${text("calibrated_up_to")} devices; limited by ${text("limited_by")}`],
    ["utilisation", value("utilization_percent", " %")],
    ["peak memory", memory && `${rounded(memory)} MiB`],
    ["repeats", text("placebo_of") && `${text("placebo_of")}, as a placebo`],
  ];
  return facts.filter(([, found]) => found);
}

function trialsOf(index) {
  const trials = payload.trials;
  const rows = [...trials.cell.keys()].filter((row) => trials.cell[row] === cells.cell[index]);
  return element("ul", { class: "trials" }, ...rows.map((row) => trialOf(row)));
}

function trialOf(row) {
  const { cell, repeat, status, reason, epoch_time_s: epoch, record } = payload.trials;
  const folder = `trials/${cell[row]}/r${repeat[row]}`;
  const says = status[row] === "ok" ? `epoch ${rounded(epoch[row])} s` : `${status[row]}: ${reason[row]}`;
  const line = element("div", { class: "line" }, element("strong", { text: `r${repeat[row]}` }), element("span", { text: says }));
  if (record[row] !== null) {
    line.append(element("a", { href: record[row], text: "record", "aria-label": `record of ${cell[row]} r${repeat[row]}` }));
    const log = record[row].replace(RECORD, LOG);
    line.append(element("a", { href: log, text: "log", "aria-label": `log of ${cell[row]} r${repeat[row]}` }));
  }
  return element("li", {}, line, commandOf(`${payload.rerun}${folder}/${RECORD}`, `${cell[row]} r${repeat[row]}`));
}

function commandOf(text, name) {
  const code = element("code", { text, tabindex: "0", "aria-label": `Command that measures ${name} again` });
  const button = element("button", { type: "button", class: "quiet", text: "Copy", "aria-label": `Copy the command for ${name}` });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // where a page may not write there: it is marked for the reader's own copy
      button.textContent = "Marked";
    }
  });
  return element("div", { class: "command" }, code, button);
}
