"use strict";
// The result of an engine's test, as soon as it is there: what is typed in the form beside it stays.
(() => {
  const EVERY_MS = 1000;
  const isRunning = (part) => part?.hasAttribute("data-running");

  const renew = async () => {
    const shown = document.getElementById("engine-test");
    if (!isRunning(shown)) return;
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const newer = page.getElementById("engine-test");
      if (newer) shown.replaceWith(newer);
    } catch {
      // the service restarts, say: the next try may do better
    }
    setTimeout(renew, EVERY_MS);
  };
  setTimeout(renew, EVERY_MS);
})();
