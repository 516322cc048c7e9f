// Names for what Snakemake's report shows as a picture alone, for readers who hear it. Its page is drawn anew at each click.
"use strict";

const BY_ICON = { eye: "Show", "information-circle": "About" };
const BY_PICTURE = { "M3 5a1": "Open the menu", "M4.293": "Close the menu", "M10.70": "Back to the start" }; // paths begin so

const isBare = (element) => !element.textContent.trim() && !element.hasAttribute("aria-label");

function nameOfLink(link) {
  const icon = BY_ICON[link.getAttribute("iconname")];
  if (icon) {
    const row = link.closest("tr")?.querySelector("td")?.textContent.trim() ?? "";
    return `${icon} ${row}`.trim();
  }
  const path = link.querySelector("path")?.getAttribute("d") ?? "";
  return BY_PICTURE[path.slice(0, 6)] ?? link.title ?? link.getAttribute("iconname");
}

function label() {
  for (const link of [...document.querySelectorAll("a[href]")].filter(isBare)) {
    const name = nameOfLink(link);
    if (name) link.setAttribute("aria-label", name);
  }
  for (const summary of [...document.querySelectorAll("details[title] > summary")].filter(isBare)) {
    summary.setAttribute("aria-label", summary.parentElement.title);
  }
  for (const input of document.querySelectorAll("input[placeholder]:not([aria-label])")) {
    input.setAttribute("aria-label", input.placeholder);
  }
  for (const image of document.querySelectorAll("img:not([alt])")) {
    const name = /filename=([^;]+)\.\w+;/.exec(image.src)?.[1] ?? "";
    image.alt = name === "logo" ? "" : name; // the logo says nothing that its heading does not
  }
}

new MutationObserver(label).observe(document.documentElement, { childList: true, subtree: true });
label();
