// Runs before the page is drawn, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("switchgear.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the theme is that of the system.
}
