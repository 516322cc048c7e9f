// Dark and light: as the system has it, until the reader switches. Views take their colours from the style sheet.

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const THEME = "dpscale-theme";

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

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  paintViews();
}

function startTheme() {
  setTheme(remembered() ?? (systemIsDark.matches ? "dark" : "light"));
  systemIsDark.addEventListener("change", () => remembered() === null && setTheme(systemIsDark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember(other);
    setTheme(other);
  });
}
