"use strict";
// Runs before the first paint: tells the service the browser's time zone, in which it writes pages.
(() => {
  const YEAR_S = 31_536_000;
  const root = document.documentElement;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const cookie = `time_zone=${zone}`;
  const isKept = () => document.cookie.split("; ").includes(cookie);
  if (!zone || isKept()) return;
  document.cookie = `${cookie}; path=/; max-age=${YEAR_S}; samesite=lax`;
  if (isKept() && "followsBrowser" in root.dataset && root.dataset.zone !== zone) location.reload();
})();
