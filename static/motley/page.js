"use strict";
// Keyboard, copy buttons and menus. Every page works without this.
(() => {
  const help = document.getElementById("help");
  const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");

  const search = () => {
    const field = document.querySelector("[data-search]");
    if (field) field.focus();
    else location.href = document.querySelector('nav a[href$="/jobs"]').href;
  };
  const step = (by) => {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement);
    rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
  };
  const keys = { "/": search, j: () => step(1), k: () => step(-1), "?": () => help.showModal() };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || help.open) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // A menu closes with Escape and by a click elsewhere; arrows move in it.
  const menuOf = (target) => target.closest?.("details.menu[open]");
  document.addEventListener("keydown", (event) => {
    const menu = menuOf(event.target);
    if (!menu || !["Escape", "ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const items = [menu.querySelector("summary"), ...menu.querySelectorAll(".sheet a, .sheet button:not([hidden])")];
    if (event.key === "Escape") menu.open = false;
    const by = { Escape: -Infinity, ArrowDown: 1, ArrowUp: -1 }[event.key];
    items[Math.min(items.length - 1, Math.max(0, items.indexOf(document.activeElement) + by))].focus();
  });
  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
  });

  // On a narrow screen the navigation is wider than the page.
  document.querySelector("nav [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });

  document.addEventListener("click", async (event) => {
    if (event.target.closest("[data-help]")) help.showModal();
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });


  // Rows selected for an action on several jobs.
  const boxes = () => [...document.querySelectorAll("#chosen .pick input[name]")];
  const tellPicked = () => {
    const place = document.querySelector("[data-picked]");
    if (place) place.textContent = `${boxes().filter((box) => box.checked).length} selected`;
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) boxes().forEach((box) => { box.checked = event.target.checked; });
    tellPicked();
  });

  // A page served over plain HTTP from another machine has no clipboard.
  const reveal = () => {
    if (navigator.clipboard) document.querySelectorAll("[data-copy][hidden]").forEach((button) => { button.hidden = false; });
    document.querySelectorAll("[data-help][hidden], [data-pick-all][hidden]").forEach((button) => { button.hidden = false; });
  };
  const settle = () => {
    reveal();
    tellPicked();
  };
  document.addEventListener("htmx:after:swap", settle);
  settle();
})();
