"use strict";
// Swagger UI has its own dark colours under a class of the root; it follows the page's theme.
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => root.classList.toggle("dark-mode", (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark");
  follow();
  prefersDark.addEventListener("change", follow);
  document.addEventListener("theme", follow);
})();
