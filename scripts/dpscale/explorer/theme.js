// Dark and light: as the system has it, until the reader switches. Views take their colours from the style sheet.

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const THEME = "dpscale-theme";
let theme = "light"; // on the screen

// A page in a frame of another document, such as a report, may not remember anything.
function remembered() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

function remember(theme) {
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // it is kept for as long as the page is open
  }
}

function setTheme(chosen) {
  theme = chosen;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  wear(theme);
}

function wear(colours) {
  document.documentElement.dataset.theme = colours;
  paintViews();
}

function startTheme() {
  setTheme(remembered() ?? (systemIsDark.matches ? "dark" : "light"));
  systemIsDark.addEventListener("change", () => remembered() === null && setTheme(systemIsDark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const other = theme === "dark" ? "light" : "dark";
    remember(other);
    setTheme(other);
  });
  startPrinting();
}

// Paper is light. Some browsers tell of it by an event, some by the medium, some by both.
function startPrinting() {
  const paper = matchMedia("print");
  const printed = (begins) => {
    wear(begins ? "light" : theme);
    drawNow(); // the next frame may come after the print
  };
  addEventListener("beforeprint", () => printed(true));
  addEventListener("afterprint", () => printed(false));
  paper.addEventListener("change", () => printed(paper.matches));
}
