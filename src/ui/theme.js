// Sets the theme that was chosen before anything is painted; no module, since modules come later.
try {
  const theme = JSON.parse(localStorage.getItem("tessella.theme"));
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
} catch {
  // Nothing is kept: the system's theme it is.
}
