const [AllIndices, Glyph, IndexFilter] = ["AllIndices", "Glyph", "IndexFilter"].map((name) => Bokeh.Models.get(name));

async function start() {
  document.getElementById("no-script").hidden = true;
  document.getElementById("elsewhere").hidden = ["file:", "http:", "https:"].includes(location.protocol);
  startFilters();
  startList();
  startDetails();
  await startViews();
  startTheme();
  state.set("chosen", indexOf(decodeURIComponent(location.hash.slice(1))));
  document.documentElement.dataset.ready = "true"; // for those who drive it
}

start();
