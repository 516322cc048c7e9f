const [AllIndices, Glyph, IndexFilter] = ["AllIndices", "Glyph", "IndexFilter"].map((name) => Bokeh.Models.get(name));

async function start() {
  document.getElementById("no-script").hidden = true;
  document.getElementById("elsewhere").hidden = ["file:", "http:", "https:"].includes(location.protocol);
  startFilters();
  startList();
  startDetails();
  await startViews();
  startTheme();
  chooseByAddress();
  addEventListener("hashchange", chooseByAddress);
  document.documentElement.dataset.ready = "true"; // for those who drive it
}

function chooseByAddress() {
  const index = indexOf(addressed());
  if (index !== null && !state.shown.includes(index)) clear(); // filters that hide what is asked for
  state.set("chosen", index);
}

function addressed() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // no address of ours
  }
}

start();
