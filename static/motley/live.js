"use strict";
// Refreshes #live while the page is visible, and shows the age of its content.
(() => {
  const live = document.getElementById("live");
  if (!live?.hasAttribute("data-live")) return;
  const PERIOD_MS = 2000;
  const STALE_AFTER_S = 15;
  const mark = document.getElementById("freshness");
  const banner = document.getElementById("stale");
  let fresh = Date.now();

  const refresh = () => { if (!document.hidden) live.dispatchEvent(new Event("refresh")); };

  const show = () => {
    const age = Math.floor((Date.now() - fresh) / 1000);
    const stale = age >= STALE_AFTER_S && !document.hidden;
    mark.hidden = false;
    mark.textContent = document.hidden ? "paused" : `${stale ? "stale" : "live"}, ${age} s`;
    mark.classList.toggle("stale", stale);
    banner.hidden = !stale;
    document.getElementById("stale-age").textContent = `${age} s`;
  };

  document.addEventListener("htmx:before:response", (event) => {
    if (event.detail.ctx.response.raw.redirected) location.reload(); // the session has ended
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.response.status === 200) fresh = Date.now();
    show();
  });
  document.addEventListener("visibilitychange", () => { refresh(); show(); });
  setInterval(refresh, PERIOD_MS);
  setInterval(show, 1000);
  show();
})();
